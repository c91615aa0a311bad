"""The run's own directory: what is in it, whose it is, and when it may go.

The directory carries its owner in its name (pid and start time), so there is
no moment at which it exists without a recorded owner.
"""

import os
import re
import secrets
import shutil
import stat
import tempfile
from pathlib import Path

from testbed import slurmconf
from testbed.names import ADA, GPUS, MUNGE, NODES, Account

_NAME = re.compile(r"slurm-testbed-(?P<pid>\d+)-(?P<start>\d+)")


def start_time(pid: int) -> str | None:
    """Return field 22 of /proc/PID/stat (clock ticks since boot), or None when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    after_name = text.rpartition(")")[2].split()
    return None if after_name[0] in "ZX" else after_name[19]


def sweep(folder: Path | None = None) -> list[Path]:
    """Remove what runs left whose supervisor was killed outright; return what was removed."""
    folder = folder or Path(tempfile.gettempdir())
    dead = []
    for path in folder.glob("slurm-testbed-*"):
        name = _NAME.fullmatch(path.name)
        if not name or path.is_symlink() or path.lstat().st_uid != os.geteuid():
            continue
        if start_time(int(name["pid"])) != name["start"]:
            shutil.rmtree(path, ignore_errors=True)
            dead.append(path)
    return dead


def path_of(pid: int) -> Path:
    """Return the directory that the supervisor `pid` owns."""
    return Path(tempfile.gettempdir(), f"slurm-testbed-{pid}-{start_time(pid)}")


def create(state: Path) -> None:
    """Create and fill a run's directory."""
    state.mkdir(mode=0o700)
    os.umask(0o022)
    for name, text in slurmconf.etc_files().items():
        path = state / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (state / "etc/shadow").chmod(0o600)
    _directory(state / "etc/munge", owner=MUNGE, mode=0o700)
    key = state / "etc/munge/munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    os.chown(key, MUNGE.uid, MUNGE.gid)
    _directory(state / "home/ada", owner=ADA)
    _fill_run(state / "run")


def log_files(state: Path) -> list[Path]:
    """Return the daemons' logs; what one printed (`.out`) counts while it has no log yet."""
    folder = state / "run/slurm/log"
    printed = [path for path in folder.glob("*.out") if not path.with_suffix(".log").exists()]
    return sorted([*folder.glob("*.log"), *printed])


def _fill_run(run: Path) -> None:
    for name in ("lock", "sshd", "slurm/state", "slurm/spool", "slurm/log", "slurm/dev"):
        _directory(run / name)
    for node in NODES:
        _directory(run / "slurm/spool" / node)
    (run / "lock").chmod(0o1777)
    (run / "shm").symlink_to("/dev/shm")
    _directory(run / "munge", owner=MUNGE)
    for i in range(GPUS):
        device = run / f"slurm/dev/gpu{i}"
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.chmod(0o666)


def _directory(path: Path, *, owner: Account | None = None, mode: int = 0o755) -> None:
    path.mkdir(parents=True)
    path.chmod(mode)
    if owner:
        os.chown(path, owner.uid, owner.gid)

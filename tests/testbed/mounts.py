"""What the cluster's processes see of the file system.

Called in a fresh mount namespace whose propagation is private, so that
nothing mounted here is ever seen by the machine. Sources lie in the run's
state directory; targets are the paths that Slurm and its users expect.
"""

import os
import stat
from pathlib import Path

from testbed import kernel, slurmconf

_FOLDERS = ("/home", "/run", "/etc/munge", "/etc/slurm")


def enter_private_view(state: Path, project: Path) -> None:
    """Cover the machine's accounts, names, run-time files and homes, then show the project."""
    kernel.mount(None, "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    machine_project = os.open(project, os.O_PATH | os.O_DIRECTORY)
    for folder in _FOLDERS:
        kernel.bind(state / folder.lstrip("/"), folder)
    for name in slurmconf.etc_files():
        if "/" not in name:
            _cover_file(Path("/etc", name), state / "etc" / name)
    reveal(project, machine_project)
    os.close(machine_project)


def enter_node_view() -> None:
    """Give a host its own processes, interfaces, shared memory and record of log-ins."""
    kernel.mount(None, "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", "/proc", kind="proc", flags=flags)
    kernel.mount("sysfs", "/sys", kind="sysfs", flags=flags)
    kernel.mount(
        "tmpfs",
        "/dev/shm",
        kind="tmpfs",
        flags=kernel.MS_NOSUID | kernel.MS_NODEV,
        options="mode=1777",
    )
    # Else sshd would enter the cluster's log-ins into the machine's wtmp and lastlog.
    _empty_tmpfs(Path("/var/log"))


def reveal(project: Path, machine_project: int) -> None:
    """Make the project reachable for everybody at its own absolute path.

    `machine_project` is a descriptor of the folder from before anything was
    covered. The first ancestor that others cannot traverse gets a tmpfs; the
    way down from there, or from a covered /home, is made of empty folders.
    """
    for place in (*reversed(project.parents), project):
        if not place.exists():
            place.mkdir(mode=0o755)
        elif not place.stat().st_mode & stat.S_IXOTH:
            _empty_tmpfs(place)
    source = f"/proc/self/fd/{machine_project}"
    original = os.fstat(machine_project)
    if os.path.samestat(project.stat(), original):
        return
    if original.st_mode & stat.S_IXOTH and original.st_mode & stat.S_IROTH:
        kernel.bind(source, project)
    else:
        _show_entries(source, project)


def _show_entries(source: str, target: Path) -> None:
    """Show what is in a closed folder now: its own mode would come along with a bind mount."""
    for entry in os.scandir(source):
        place = target / entry.name
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
            continue
        if entry.is_dir():
            place.mkdir(mode=0o755)
        else:
            place.touch()
        kernel.bind(entry.path, place)


def _empty_tmpfs(place: Path) -> None:
    kernel.mount("tmpfs", place, kind="tmpfs", flags=kernel.MS_NOSUID, options="mode=755")


def _cover_file(target: Path, source: Path) -> None:
    """Bind over a file of /etc; a link into /run points nowhere since /run was covered."""
    real = Path(os.path.realpath(target))
    if not real.exists() and real.is_relative_to("/run"):
        real.parent.mkdir(parents=True, exist_ok=True)
        real.touch()
    kernel.bind(source, real)

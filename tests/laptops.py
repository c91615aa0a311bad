"""A laptop of ada's: a home of its own, no command of Slurm's, and the cluster's nodes over SSH.

It is a mount namespace on the head, so that a file of the one machine is never seen by the other.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from conftest import ADAPTER
from testbed import SshHosts, enter
from testbed.child import Child
from testbed.names import ADA
from testbed.waiting import LONG_S

HOME = PurePosixPath(ADA.home)
CODE = HOME / "my code"
"""Where the code lies on the laptop; no such folder is on the cluster."""
_ENTER = """\
set -e
mount --bind "$1" "$2"
for tool in /usr/bin/s{acct,alloc,batch,cancel,control,info,queue,run}; do
    [ ! -e "$tool" ] || mount --bind /dev/null "$tool"
done
mount -t tmpfs tmpfs /etc/slurm
mount -t tmpfs tmpfs /run/munge
cd "$3"
groups=$4
shift 4
exec setpriv --reuid=ada --regid=ada --groups="$groups" "$@"
"""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """What it said on stderr, a line each, without our name before it."""
        return [line.removeprefix("slurm-adapter: ") for line in self.err.splitlines()]


@dataclass(frozen=True)
class Laptop:
    """The laptop, and the login node that its commands go through."""

    hosts: SshHosts
    place: PurePosixPath
    """Where its home lies for the cluster's other processes."""
    login: str = "ada@gpu-n00"
    env: Mapping[str, str] = field(default_factory=dict)

    def here(self, path: str | PurePosixPath) -> Path:
        """Return where the test process finds a path of the laptop's home."""
        return self.hosts.cluster.state / str(self.place / path).lstrip("/")

    def there(self, path: str) -> Path:
        """Return where it finds one of the home on the cluster."""
        return self.hosts.cluster.outside(path)

    def write(self, name: str, text: str) -> None:
        """Write a file of the code."""
        path = self.here(CODE.relative_to(HOME) / name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        for one in (path, path.parent):
            os.chown(one, ADA.uid, ADA.gid)

    def start(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        stdout: enter.Stream = subprocess.PIPE,
        stderr: enter.Stream = subprocess.PIPE,
    ) -> Child[str]:
        """Start `slurm-adapter WORDS` in the code directory; the child is the command itself."""
        groups = ",".join(map(str, (ADA.gid, *ADA.groups)))
        places = (str(self.place), str(HOME), str(CODE), groups)
        own = {"HOME": str(HOME), "USER": ADA.name, "LOGNAME": ADA.name}
        path = f"{ADAPTER.parent}:/usr/bin:/bin"
        return self.hosts.cluster.popen(
            ["unshare", "--mount", "bash", "-c", _ENTER, "bash", *places, str(ADAPTER), *words],
            user="root",
            cwd="/",
            env={**own, "PATH": path, **self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )

    def types(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        """Run `slurm-adapter WORDS` to its end."""
        with self.start(*words, env=env) as process:
            out, err = process.communicate(timeout=LONG_S)
        assert "Traceback" not in err, err
        return Done(process.returncode, out, err)

    def submits(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        """Run `slurm-adapter sbatch --login LOGIN WORDS` to its end."""
        return self.types("sbatch", "--login", self.login, *words, env=env)


@contextmanager
def laptop(hosts: SshHosts, name: str) -> Iterator[Laptop]:
    """Give ada a laptop with her key and what she knows of the hosts."""
    place = PurePosixPath("/home") / f"laptop-{name}"
    made = Laptop(hosts, place)
    home = made.here(".")
    (home / CODE.name).mkdir(parents=True)
    shutil.copytree(hosts.cluster.outside(".ssh"), home / ".ssh")
    for path in (home, *home.rglob("*")):
        os.chown(path, ADA.uid, ADA.gid)
    try:
        yield made
    finally:
        shutil.rmtree(home)

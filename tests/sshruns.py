"""`slurm-adapter ssh` as the cluster's ordinary user types it, run to its end.

Every byte of its output is kept, and its records lie in a folder of their own.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from conftest import ADAPTER, User
from steps import SCRIPTS
from testbed import SshHosts
from testbed.child import Child
from testbed.waiting import LONG_S

NODES = "gpu-n[00-02]"
_RANK = re.compile(r"\[([^/\]]*)/(\d+)\] (.*)")


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str
    jobs: Path
    """Where its records are."""

    def lines(self, rank: int) -> list[str]:
        """Return what a rank wrote to stdout, without the prefix."""
        return _of_rank(self.out, rank)

    def errors(self, rank: int) -> list[str]:
        """Return what a rank wrote to stderr, likewise."""
        return _of_rank(self.err, rank)

    @property
    def said(self) -> list[str]:
        """Return what the command itself said on stderr, a line each."""
        return [line for line in self.err.splitlines() if not _RANK.fullmatch(line)]

    @property
    def record(self) -> Path:
        """Return the folder of the one job that there is a record of."""
        (folder,) = self.jobs.iterdir()
        return folder


def run_ssh(
    user: User,
    *words: str,
    hosts: str | None = NODES,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> Ended:
    """Run `slurm-adapter ssh -H HOSTS WORDS` in the user's directory.

    A file of `scripts/` that is named among the words is put there before.

    Args:
        user: whose directory it is.
        words: options, and the program.
        hosts: as behind -H; None where the words say which.
        env: variables on top of a login's.
        check: whether it must succeed.
    """
    for word in words:
        script = SCRIPTS / Path(word).name
        if word and script.is_file():
            user.write(script.name, script.read_text(), 0o755)
    where = () if hosts is None else ("-H", hosts)
    return run_adapter(user, "ssh", *where, *words, env=env, check=check)


def run_adapter(
    user: User, *words: str, env: Mapping[str, str] | None = None, check: bool = True
) -> Ended:
    """Run `slurm-adapter WORDS` likewise."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with start_adapter(user, *words, env=env, stdout=out, stderr=err) as head:
            status = head.wait(LONG_S)
        ended = Ended(status, _text(out), _text(err), jobs_folder(user))
    assert not any(line.startswith("Traceback") for line in ended.said), ended.err
    assert not check or status == 0, (status, ended.out, ended.err)
    return ended


def start_adapter(
    user: User,
    *words: str,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
) -> Child[str]:
    """Start `slurm-adapter WORDS` likewise; the child is the command itself."""
    return user.cluster.popen(
        [ADAPTER, *words],
        cwd=str(user.folder),
        env={**user.environment, "XDG_STATE_HOME": f"{user.folder}/state", **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
    )


def jobs_folder(user: User) -> Path:
    """Return where the records of these commands are."""
    return user.outside("state/slurm-adapter/jobs")


def left(hosts: SshHosts) -> dict[str, list[int]]:
    """Return what runs on the nodes, by node: nothing of a job that has ended."""
    found = {node: hosts.processes(node) for node in hosts.nodes}
    return {node: pids for node, pids in found.items() if pids}


@contextmanager
def listening(user: User, node: str, address: str, port: int) -> Iterator[None]:
    """Have something listen on a port of a node."""
    code = (
        "import socket, sys, time\n"
        "taken = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
        "print('up', flush=True)\n"
        "time.sleep(1000)\n"
    )
    words = ["python3", "-c", code, address, str(port)]
    with user.cluster.popen(words, node=node) as holder:
        try:
            assert holder.stdout
            assert holder.stdout.readline() == "up\n"
            yield
        finally:
            holder.kill()


def _of_rank(text: str, rank: int) -> list[str]:
    matches = [_RANK.fullmatch(line) for line in text.split("\n")]
    return [match[3] for match in matches if match and int(match[2]) == rank]


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="surrogateescape")

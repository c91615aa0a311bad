"""A job of `slurm-adapter ssh` on the test bed's hosts, its processes as the machine sees them."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from commandline import ADAPTER, BIN
from testbed import SshHosts, processes, until
from testbed.waiting import LONG_S

_AGENT = "slurm-adapter agent "


@dataclass(frozen=True)
class End:
    """How a head ended."""

    status: int
    out: str
    said: list[str]
    """Its own lines on stderr."""


class SshJob:
    """A running `slurm-adapter ssh`."""

    def __init__(
        self,
        hosts: SshHosts,
        head: "subprocess.Popen[str]",
        errors: IO[str],
        afterwards: contextlib.ExitStack,
    ) -> None:
        self.hosts, self.head = hosts, head
        self.afterwards = afterwards
        """What has to be undone when all is over."""
        self._errors = errors
        self._out = ""

    def wait_until_up(self, count: int = 3) -> None:
        """Read stdout until so many ranks have said that they are up."""
        assert self.head.stdout
        seen = 0
        while seen < count:
            line = self.head.stdout.readline()
            assert line, self.errors()
            self._out += line
            seen += line.endswith(" up\n")

    def wait_for_line(self, text: str) -> None:
        """Read stdout until some rank has said that."""
        assert self.head.stdout
        while text not in (line := self.head.stdout.readline()):
            assert line, self.errors()
            self._out += line
        self._out += line

    def errors(self) -> str:
        """Return all that has come on stderr until now."""
        return Path(f"/proc/self/fd/{self._errors.fileno()}").read_text(errors="replace")

    def said(self) -> list[str]:
        """Return what the head itself has said, without the ranks' lines."""
        ranks = re.compile(r"\[[^\]]*/\d+\] ")
        return [line for line in self.errors().splitlines() if not ranks.match(line)]

    def end(self) -> End:
        """Wait until the head has ended."""
        assert self.head.stdout
        if not self.head.stdout.closed:
            self._out += self.head.stdout.read()
        status = self.head.wait(timeout=LONG_S)
        return End(status if status >= 0 else 128 - status, self._out, self.said())

    def agents(self, node: str) -> list[int]:
        """Return a node's agent processes, each the parent of the next; the last is init."""
        own = {pid for pid in self.hosts.cluster.pids(node) if _AGENT in processes.title(pid)}
        chain = [pid for pid in own if parent(pid) not in own]
        while below := [pid for pid in own if parent(pid) == chain[-1]]:
            chain += below
        return chain

    def rank_pid(self, node: str) -> int:
        """Return the pid of a node's one rank."""
        first = self.agents(node)[-1]
        (found,) = [
            pid for pid in self.hosts.cluster.pids(node) if parent(pid) == first and is_rank(pid)
        ]
        return found

    def session(self, node: str) -> int:
        """Return the pid of the sshd process that carries the connection of this job."""
        (found,) = self.hosts.sessions(node)
        return found


def is_rank(pid: int) -> bool:
    """Tell a rank from an orphan, which has the same parent."""
    return "train.py" in processes.title(pid)


def parent(pid: int) -> int:
    """Return a process's parent, 0 where it is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[1])
    return 0


@contextlib.contextmanager
def ssh_job(
    hosts: SshHosts,
    folder: PurePosixPath,
    script: str,
    *options: str,
    nodes: tuple[str, ...] | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[SshJob]:
    """Start a script on the hosts as their user; whatever is left of it is killed at the end."""
    hosts.cluster.write(folder / "train.py", script)
    wanted = ",".join(nodes or hosts.nodes)
    with tempfile.TemporaryFile("w+") as errors, contextlib.ExitStack() as afterwards:
        head = hosts.cluster.popen(
            [ADAPTER, "ssh", "-H", wanted, *options, "train.py"],
            cwd=str(folder),
            env={"PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin", **(env or {})},
            stdin=subprocess.DEVNULL,
            stderr=errors,
        )
        with head:
            try:
                yield SshJob(hosts, head, errors, afterwards)
            finally:
                head.kill()
                afterwards.close()
                for node in hosts.nodes:
                    kill_all(hosts, node)


def kill_all(hosts: SshHosts, node: str) -> None:
    """End what a failed test left on a node."""

    def none_left() -> bool:
        left = hosts.processes(node)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    assert until(none_left)


def left(hosts: SshHosts, *, connections: bool = True, limit_s: float = LONG_S) -> list[str]:
    """Return what runs on the hosts still, once `limit_s` have passed or nothing does."""
    found: list[str] = []

    def gone() -> bool:
        found[:] = [
            f"{node}: {pid} {processes.title(pid)}"
            for node in hosts.nodes
            for pid in hosts.processes(node, connections=connections)
        ]
        return not found

    until(gone, limit_s)
    return found

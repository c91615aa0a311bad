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

LONG_S = 60.0
"""Far more than anything here takes; a test that needs it has failed."""
NEVER = ("--grace", "1000", "--link-timeout", "1000")
"""For what ends without either: were one of them waited for, the test would fail."""

# A child in a session of its own, whose output is not ours. `fail` comes with SIGUSR1.
FAMILY = """\
import os, signal, subprocess, sys, time
rank = int(os.environ.get("RANK") or os.environ["VC_TASK_INDEX"])
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
subprocess.Popen(["sleep", "1000"], start_new_session=True,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
UP = "print('up', flush=True)\n"
WAIT = UP + "while True:\n    signal.pause()\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT
TICK = UP + "while True:\n    print('tick', flush=True)\n    time.sleep(0.01)\n"

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

    def __init__(self, hosts: SshHosts, head: "subprocess.Popen[str]", errors: IO[str]) -> None:
        self.hosts, self.head = hosts, head
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
        """Return a node's agent processes, each the parent of the next: outer, keeper, first."""
        own = {pid for pid in self.hosts.cluster.pids(node) if _AGENT in processes.title(pid)}
        chain = [pid for pid in own if parent(pid) not in own]
        while below := [pid for pid in own if parent(pid) == chain[-1]]:
            chain += below
        assert len(chain) == len(own), (chain, own)
        return chain

    def rank(self, node: str) -> int:
        """Return the pid of a node's one rank."""
        first = self.agents(node)[-1]
        (found,) = [pid for pid in self.hosts.cluster.pids(node) if parent(pid) == first]
        return found

    def session(self, node: str) -> int:
        """Return the pid of the sshd process that carries the connection of this job."""
        (found,) = self.hosts.sessions(node)
        return found


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
    with tempfile.TemporaryFile("w+") as errors:
        head = hosts.cluster.popen(
            [ADAPTER, "ssh", "-H", wanted, *options, "train.py"],
            cwd=str(folder),
            env={"PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin", **(env or {})},
            stdin=subprocess.DEVNULL,
            stderr=errors,
        )
        with head:
            try:
                yield SshJob(hosts, head, errors)
            finally:
                head.kill()
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

"""An sshd in each node: started when a test asks for it, restarted as a test wants it.

Keys and the lists of authorized keys lie in /run/ssh, not in the user's home:
a node that is given another home still lets its user in.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import daemons, faults, processes
from testbed.names import ADA, ADDRESSES, NODES, SYSTEM_PATH
from testbed.waiting import LONG_S

if TYPE_CHECKING:
    from testbed.child import Child
    from testbed.cluster import SlurmCluster

_FOLDER = "/run/ssh"
_SSHD = "/usr/sbin/sshd"
_PORT = 22
_STEP_S = 0.005
_OPTIONS = (
    f"Port={_PORT}",
    "UsePAM=no",
    "PasswordAuthentication=no",
    "KbdInteractiveAuthentication=no",
    "PrintMotd=no",
    "PrintLastLog=no",
    "PidFile=none",
    "Subsystem=sftp internal-sftp",
)
_DAEMONS = frozenset({"slurmd-wlm", "slurmd", "slurmctld-wlm", "slurmctld", "munged"})
"""The programs of the test bed's own daemons; Debian's carry the suffix."""


class SshHosts:
    """The cluster's nodes as SSH hosts; `SlurmCluster.start_ssh` makes it."""

    nodes: tuple[str, ...] = NODES
    user = ADA.name
    """Who logs in, with a key of theirs and the hosts' keys in ~/.ssh/known_hosts."""

    def __init__(self, cluster: "SlurmCluster") -> None:
        """Make every key and start an sshd on each node."""
        self.cluster = cluster
        self._daemons: dict[str, Child[str]] = {}
        self._make_keys()
        for node in self.nodes:
            self._launch(node)
        for node in self.nodes:
            self._wait_until_listening(node)

    def start(
        self, node: str, *options: str, changed_key: bool = False, authorized: bool = True
    ) -> None:
        """Replace a node's sshd: `options` as of sshd_config go before the usual ones and win.

        With `changed_key` it shows a host key that nobody knows; unless
        `authorized` it knows no key of its user. Sessions of the former go on.
        """
        self.stop(node)
        self._launch(node, *options, changed_key=changed_key, authorized=authorized)
        self._wait_until_listening(node)

    def stop(self, node: str) -> None:
        """End a node's sshd: connections are refused, sessions go on; may be called again."""
        daemon = self._daemons.pop(node, None)
        if daemon:
            daemon.kill()
            daemon.wait(LONG_S)

    @contextlib.contextmanager
    def restarted(
        self, node: str, *options: str, changed_key: bool = False, authorized: bool = True
    ) -> Iterator[None]:
        """Run a node's sshd as `start` says, and as usual afterwards."""
        try:
            self.start(node, *options, changed_key=changed_key, authorized=authorized)
            yield
        finally:
            self.start(node)

    @contextlib.contextmanager
    def stopped(self, node: str) -> Iterator[None]:
        """Have no sshd on a node for a while."""
        self.stop(node)
        try:
            yield
        finally:
            self.start(node)

    @contextlib.contextmanager
    def cut(self, node: str) -> Iterator[None]:
        """Take a node off the network for a while."""
        self.cluster.cut(node)
        try:
            yield
        finally:
            self.cluster.heal(node)

    @contextlib.contextmanager
    def known_hosts(self, text: str) -> Iterator[None]:
        """Give the user's ~/.ssh/known_hosts another text for a while."""
        before = self.cluster.outside(".ssh/known_hosts").read_text()
        self.cluster.write(".ssh/known_hosts", text)
        try:
            yield
        finally:
            self.cluster.write(".ssh/known_hosts", before)

    def covered(
        self, node: str, folder: str | os.PathLike[str]
    ) -> contextlib.AbstractContextManager[Path]:
        """Show an empty folder in the place of one on one node; see `faults.covered`."""
        return faults.covered(self.cluster, node, folder)

    def hidden(self, node: str, *patterns: str) -> contextlib.AbstractContextManager[None]:
        """Make files vanish on one node, by path or wildcard; see `faults.hidden`."""
        return faults.hidden(self.cluster, node, *patterns)

    def host_key(self, node: str, *, changed: bool = False) -> str:
        """Return a node's public host key as known_hosts has it: type and key."""
        public = self._outside(self._host_key(node, changed=changed) + ".pub").read_text()
        return " ".join(public.split()[:2])

    def listener(self, node: str) -> int:
        """Return the pid, outside, of a node's listening sshd."""
        return self._daemons[node].pid

    def daemons(self) -> list[int]:
        """Return the pids, outside, of every listening sshd."""
        return [daemon.pid for daemon in self._daemons.values()]

    def sshd_pids(self, node: str) -> list[int]:
        """Return every sshd process of a node: the listener and all of each connection."""
        return [pid for pid in self.cluster.pids(node) if processes.program(pid) == "sshd"]

    def sessions(self, node: str) -> list[int]:
        """Return the `sshd: ada@notty` processes of a node: one for each connection let in."""
        start = f"sshd: {self.user}@"
        return [pid for pid in self.sshd_pids(node) if processes.title(pid).startswith(start)]

    def processes(self, node: str, *, connections: bool = True) -> list[int]:
        """Return what runs on a node beside the test bed's own daemons: all that is of a job.

        Without `connections`, the sshd processes of connections do not count
        either: a node that was cut off keeps those until TCP gives up.
        """
        daemon = self._daemons.get(node)
        own = {self.cluster.holder(node), daemon.pid if daemon else 0}
        programs = _DAEMONS if connections else _DAEMONS | {"sshd"}
        found = [(pid, processes.program(pid)) for pid in self.cluster.pids(node) if pid not in own]
        return [pid for pid, name in found if name and name not in programs]

    def _make_keys(self) -> None:
        folder = self._outside(_FOLDER)
        folder.mkdir()
        wanted = [self._host_key(n, changed=c) for n in self.nodes for c in (False, True)]
        for path in (*wanted, f"{_FOLDER}/user_key"):
            _make_key(self._outside(path))
        mine = self._outside(f"{_FOLDER}/user_key")
        public = mine.with_suffix(".pub").read_text()
        for node in self.nodes:
            (folder / f"authorized_keys.{node}").write_text(public)
        write = self.cluster.write
        write(".ssh/id_ed25519", mine.read_text(), 0o600)
        write(".ssh/id_ed25519.pub", public)
        write(".ssh/known_hosts", "".join(self.known_line(node) for node in self.nodes))
        self.cluster.outside(".ssh").chmod(0o700)
        mine.unlink()

    def known_line(self, node: str, *, changed: bool = False) -> str:
        """Return a node's line of known_hosts, by name and address."""
        return f"{node},{ADDRESSES[node]} {self.host_key(node, changed=changed)}\n"

    def _launch(
        self, node: str, *options: str, changed_key: bool = False, authorized: bool = True
    ) -> None:
        keys = f"{_FOLDER}/authorized_keys.{node}" if authorized else "none"
        settings = (
            *options,
            *_OPTIONS,
            f"HostKey={self._host_key(node, changed=changed_key)}",
            f"AuthorizedKeysFile={keys}",
        )
        log = f"/run/slurm/log/sshd.{node}.log"
        words = [_SSHD, "-D", "-f", "/dev/null", "-E", log]
        words += [word for setting in settings for word in ("-o", setting)]
        self._daemons[node] = self.cluster.popen(
            words,
            node=node,
            user="root",
            cwd="/",
            env={"PATH": SYSTEM_PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _wait_until_listening(self, node: str) -> None:
        daemon = self._daemons[node]
        deadline = time.monotonic() + LONG_S
        while not processes.listens(daemon.pid, _PORT):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise daemons.StartError(f"sshd of {node}:\n{self.cluster.log_tails()}")
            time.sleep(_STEP_S)

    def _host_key(self, node: str, *, changed: bool = False) -> str:
        return f"{_FOLDER}/{'changed_' if changed else ''}host_key.{node}"

    def _outside(self, path: str) -> Path:
        return self.cluster.state / path.lstrip("/")


def _make_key(path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", path]
    subprocess.run(words, env={"PATH": SYSTEM_PATH}, stdin=subprocess.DEVNULL, check=True)

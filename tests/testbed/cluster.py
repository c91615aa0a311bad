"""The handle that tests use: start a cluster, run things in it, look at what happened."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import TracebackType

from testbed import daemons, enter, netns, processes, waiting
from testbed.child import Child
from testbed.jobs import JobEnd, parse_end
from testbed.names import ACCOUNTS, ADA, ADDRESSES, HEAD, NODES, SYSTEM_PATH
from testbed.ssh import SshHosts

_POLL_S = 0.05
_ASK_ANYWAY_S = 1.0


class ClusterError(Exception):
    """The cluster did not start, or is gone."""


class SlurmCluster:
    """A running cluster; it ends with `stop`, or with the process that started it."""

    nodes: tuple[str, ...] = NODES
    addresses: Mapping[str, str] = ADDRESSES
    """IPv4 address by host name, the head's included."""
    user = ADA.name
    """The ordinary user as whom everything runs unless said otherwise."""
    home = Path(ADA.home)
    """That user's home as seen inside; `outside` translates."""

    def __init__(
        self, supervisor: "subprocess.Popen[str]", directory: Path, pids: dict[str, int]
    ) -> None:
        """Take over a supervisor that has reported; use `start`."""
        self.state = directory
        self._supervisor = supervisor
        self._pids = pids
        self._holders = {host: os.pidfd_open(pid) for host, pid in pids.items()}
        self._children: list[Child[str]] = []
        self._ssh: SshHosts | None = None

    @classmethod
    def start(cls, project: Path) -> "SlurmCluster":
        """Bring a cluster up in which `project` is readable at its own absolute path.

        Raises ClusterError with the ends of the daemons' logs.
        """
        with tempfile.TemporaryFile("w+") as errors:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "testbed.supervisor", str(Path(project).resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd="/",
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
                start_new_session=True,
            )
            try:
                line = supervisor.stdout.readline() if supervisor.stdout else ""
                report = json.loads(line or "{}")
                if "holders" in report:
                    return cls(supervisor, Path(report["state"]), report["holders"])
            except BaseException:
                # Closing the pipe tells the supervisor; it needs no other word.
                supervisor.communicate()
                raise
            supervisor.communicate()
            errors.seek(0)
            raise ClusterError(report.get("error") or f"the supervisor died: {errors.read()}")

    def stop(self) -> None:
        """End every process of the cluster and remove its directory; may be called again."""
        for holder in self._holders.values():
            os.close(holder)
        self._holders = {}
        if self._supervisor.stdin:
            self._supervisor.stdin.close()
        if self._supervisor.stdout:
            self._supervisor.stdout.close()
        while self._supervisor.poll() is None:
            # A child of ours that ended unwaited would hold its PID namespace up.
            self._children = [child for child in self._children if child.poll() is None]
            time.sleep(0.01)
        for child in self._children:
            child.wait()  # its namespace has ended, and so has it

    def __enter__(self) -> "SlurmCluster":  # noqa: PYI034 - Self came with Python 3.11
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def popen(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        node: str = HEAD,
        user: str = ADA.name,
        cwd: str | os.PathLike[str] = ADA.home,
        env: Mapping[str, str] | None = None,
        stdin: enter.Stream = subprocess.PIPE,
        stdout: enter.Stream = subprocess.PIPE,
        stderr: enter.Stream = subprocess.PIPE,
        new_session: bool = True,
    ) -> Child[str]:
        """Start a program on `node` as `user` with a login's environment plus `env`.

        The child is the program itself: signals sent to it arrive there. Use it as a context
        manager, that it is ended and waited for whatever happens.
        """
        if not self._holders:
            raise ClusterError("the cluster has been stopped")
        account = ACCOUNTS[user]
        try:
            child = enter.spawn(
                self._holders[node],
                argv,
                account=account,
                cwd=cwd,
                env=enter.login_environment(account, env),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                new_session=new_session,
            )
        except OSError as error:
            if self._supervisor.poll() is not None:
                raise ClusterError("the cluster's supervisor has ended") from error
            raise
        self._children = [old for old in self._children if old.returncode is None] + [child]
        return child

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        node: str = HEAD,
        user: str = ADA.name,
        cwd: str | os.PathLike[str] = ADA.home,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002 - the name that subprocess.run uses
        timeout: float = waiting.LONG_S,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end; after `timeout` seconds kill all that it started.

        Killed are its descendants and its session, not the Slurm jobs it
        submitted: those belong to slurmd.
        """
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        child = self.popen(argv, node=node, user=user, cwd=cwd, env=env, stdin=stdin)
        with child:
            out, err = child.communicate(input, timeout=timeout)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    def outside(self, path: str | os.PathLike[str]) -> Path:
        """Return where the test process finds a path of ada's home."""
        place = PurePosixPath(os.path.normpath(self.home / path))
        return self.state / "home/ada" / place.relative_to(self.home)

    def write(
        self, path_inside: str | os.PathLike[str], content: str | bytes, mode: int = 0o644
    ) -> Path:
        """Write a file of ada's, with the folders above it, and return its path inside."""
        place = self.outside(path_inside)
        for folder in reversed(place.parents):
            if not folder.exists():
                folder.mkdir(mode=0o755)
                os.chown(folder, ADA.uid, ADA.gid)
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        place.write_bytes(data)
        place.chmod(mode)
        os.chown(place, ADA.uid, ADA.gid)
        return self.home / path_inside

    @contextlib.contextmanager
    def etc_file(self, name: str, text: str) -> Iterator[None]:
        """Give a file of /etc that the cluster covers another text on every host, for a while."""
        path = self.state / "etc" / name
        before = path.read_text()
        path.write_text(text)  # in place: what is mounted is this very file
        try:
            yield
        finally:
            path.write_text(before)

    def pids(self, node: str) -> list[int]:
        """Return every process in the node's network namespace, by its pid outside."""
        return processes.on_host(self._pids[node])

    def holder(self, node: str) -> int:
        """Return the pid, outside, of the process that keeps a host's namespaces alive."""
        return self._pids[node]

    def root(self, node: str) -> Path:
        """Return where the test process finds a host's files as that host sees them."""
        return Path(f"/proc/{self._pids[node]}/root")

    def daemons(self) -> set[int]:
        """Return the children of this process that serve the hosts: they come and go with them."""
        return set(self._ssh.daemons()) if self._ssh else set()

    def start_ssh(self) -> SshHosts:
        """Start an sshd on each node, unless that has been done."""
        if not self._ssh:
            self._ssh = SshHosts(self)
        return self._ssh

    def wait_for_job(self, job_id: int | str, timeout: float = waiting.LONG_S) -> JobEnd:
        """Return how a job ended, once Slurm has also cleaned up after it.

        The file of ended jobs is watched; Slurm itself is asked when that
        grows, and now and then. A requeued job has not ended.
        """
        deadline = time.monotonic() + timeout
        record = self.state / "run/slurm/log/jobcomp"
        size, asked = -1, 0.0
        while time.monotonic() < deadline:
            now = record.stat().st_size if record.exists() else 0
            if now != size or time.monotonic() - asked > _ASK_ANYWAY_S:
                shown = self.run(["scontrol", "show", "job", str(job_id)], user="root")
                if "Invalid job id" in shown.stderr:
                    raise LookupError(f"job {job_id}: {shown.stderr.strip()}")
                end = parse_end(shown.stdout)
                if end:
                    return end
                asked = time.monotonic()
                # COMPLETING ends without a record of its own: go on asking.
                size = -1 if "JobState=COMPLETING" in shown.stdout else now
            time.sleep(_POLL_S)
        queue = self.run(["squeue", "--all"], user="root").stdout
        raise TimeoutError(f"job {job_id} did not end in {timeout} s\n{queue}\n{self.log_tails()}")

    def cut(self, node: str) -> None:
        """Take a node off the network."""
        netns.ip_batch(self._pids[node], netns.cut_commands())

    def heal(self, node: str) -> None:
        """Undo `cut`."""
        netns.ip_batch(self._pids[node], netns.heal_commands())

    @contextlib.contextmanager
    def controller_away(self) -> Iterator[None]:
        """End slurmctld for a while; whatever runs goes on, and it comes back to what it knew."""
        (pid,) = (pid for pid in self.pids(HEAD) if processes.title(pid).startswith("slurmctld "))
        os.kill(pid, signal.SIGTERM)
        waiting.until(lambda: not processes.program(pid))
        try:
            yield
        finally:
            path = {"PATH": SYSTEM_PATH}
            nothing = subprocess.DEVNULL
            self.popen(
                ["slurmctld", "-D"], user="root", cwd="/", env=path,
                stdin=nothing, stdout=nothing, stderr=nothing,
            )  # fmt: skip
            answers = ["scontrol", "ping"]
            waiting.until(lambda: "is UP" in self.run(answers, user="root").stdout)

    def log_tails(self) -> str:
        """Return the last lines of every daemon's log."""
        return daemons.log_tails(self.state)

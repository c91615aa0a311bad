"""Fixtures that stand on the test cluster."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, settings

import leftovers
import slurm_adapter
from testbed import JobEnd, SlurmCluster, SshHosts, no_ssh, unavailable
from testbed.child import Child
from testbed.waiting import LONG_S

PROJECT = Path(__file__).parents[1]
ADAPTER = Path(sys.executable).with_name("slurm-adapter")

# Tests here run ranks on this machine itself, and expect a view.
_WITH_VIEWS = (
    *("boot_steps", "dryrun", "env", "exec", "local", "local_ends", "local_output"),
    *("local_view", "terminal", "torch"),
)
_SINGLE = ("test_becomes_a_command_line", "test_channels_and_the_interpreter_arrive")


# An example takes as long as a busy machine makes it take; and all of one test may share a folder.
settings.register_profile(
    "here",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("here")


def _check_installed() -> None:
    """Refuse to try the folder that the tests stand beside, or a package that is behind it."""
    installed, folder = Path(slurm_adapter.__file__).parent, PROJECT / "slurm_adapter"
    ours, theirs = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*.py")}
        for root in (installed, folder)
    ]
    if installed == folder or ours != theirs:
        pytest.exit(f"{installed} is not {folder} as installed: make test installs it", 2)


def pytest_configure() -> None:
    """Have what tests start heed all signals, also where this was started by nohup or with &."""
    _check_installed()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            # Unlike one that is ignored, a signal that is handled is not inherited so.
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a view, with the reason, on a machine that gives none."""
    modules = {f"test_{name}" for name in _WITH_VIEWS}
    concerned = [item for item in items if item.path.stem in modules or item.name in _SINGLE]
    reason = _why_no_view() if concerned else ""
    for item in concerned if reason else ():
        item.add_marker(pytest.mark.skip(reason))


def _why_no_view() -> str:
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(
            [ADAPTER, "local", "--view", "full", "--command", "true"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    return tried.stderr.partition("\n")[0] if tried.returncode else ""


_lasting: list[SlurmCluster] = []
"""The cluster of all tests, once there is one."""


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves a child or a thread; what fixtures of wider scope have may stay."""
    with leftovers.none(lambda: {pid for one in _lasting for pid in one.daemons()}):
        yield


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an attempt to connect take its time also where none is to follow."""
    monkeypatch.setattr("slurm_adapter.remote.transport.connect_all._SHORTEST_S", LONG_S)


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A running three-node cluster; skipped with the reason where none can run."""
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with SlurmCluster.start(PROJECT) as cluster:
        _lasting.append(cluster)
        yield cluster


@pytest.fixture(scope="session")
def ssh_hosts(slurm: SlurmCluster) -> SshHosts:
    """The cluster's nodes with an sshd on each, into which its user is let by key."""
    reason = no_ssh()
    if reason:
        pytest.skip(reason)
    return slurm.start_ssh()


@dataclass(frozen=True)
class User:
    """The cluster's ordinary user in a directory of their own, the project's venv on PATH."""

    cluster: SlurmCluster
    folder: PurePosixPath

    @property
    def environment(self) -> dict[str, str]:
        """What their shell would have set."""
        return {"PATH": f"{ADAPTER.parent}:/usr/local/bin:/usr/bin:/bin"}

    def run(self, *words: str, env: dict[str, str] | None = None, check: bool = True) -> str:
        """Run a command on the head, return its stdout; a failure shows what it said."""
        done = self.cluster.run(
            words, cwd=str(self.folder), env={**self.environment, **(env or {})}
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *words: str, env: dict[str, str] | None = None) -> Child[str]:
        """Start a command on the head, in a session of its own; the child is the command itself."""
        return self.cluster.popen(
            words,
            cwd=str(self.folder),
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
        )

    def write(self, name: str, text: str | bytes, mode: int = 0o644) -> None:
        """Write a file in their directory."""
        self.cluster.write(self.folder / name, text, mode)

    def outside(self, name: str) -> Path:
        """Return where a file of theirs lies for this process."""
        return self.cluster.outside(Path(self.folder / name))

    def finish(self, job_id: str) -> JobEnd:
        """Wait until a job has ended."""
        return self.cluster.wait_for_job(job_id.strip())

    def log(self, pattern: str) -> str:
        """Return the text of the one file that matches a pattern below their directory."""
        (path,) = self.outside(".").glob(pattern)
        return path.read_text(errors="surrogateescape")

    def outputs(self, job: str) -> list[str]:
        """Return what stands in each worker's log file of a job of that name, in order."""
        return read_worker_logs(self.outside(f"slurm-adapter/{job}/log"))


def read_worker_logs(folder: Path) -> list[str]:
    """Return the text of each worker's log file in a job's log folder, worker 0 first."""
    paths = {int(path.stem.rpartition("-")[2]): path for path in folder.glob("*-worker-*.log")}
    assert sorted(paths) == list(range(len(paths)))
    return [paths[index].read_text(errors="surrogateescape") for index in sorted(paths)]


@pytest.fixture
def user(slurm: SlurmCluster, request: pytest.FixtureRequest) -> User:
    """The ordinary user, in a directory with a space in its name that no other test has."""
    module, test = request.node.path.stem.removeprefix("test_"), request.node.name
    name = "".join(letter if letter.isalnum() else "-" for letter in f"{module} {test}")
    folder = PurePosixPath("/home/ada") / f"my runs {name}"
    slurm.write(folder / ".made", "")
    return User(slurm, folder)

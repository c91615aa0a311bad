"""`ssh --sync`: copies on hosts that are right whatever was there, and nothing else touched."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localconnection import LocalConnection, end_let_go
from loopback import LoopbackSshd, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.errors import CLUSTER_UNFIT, BadValueError, ClusterUnfitError, report
from slurm_adapter.launch.ssh.fleet import AgentFleet, Timing
from slurm_adapter.node.agent import copy_lock
from slurm_adapter.node.agent.code_copy import MARKER
from slurm_adapter.node.agent.copy_lock import STATE, hold
from slurm_adapter.node.protocol.copy_messages import Differences
from slurm_adapter.remote import agent_archive
from slurm_adapter.remote.agent import Agent
from slurm_adapter.remote.agent_archive import AgentFiles, agent_files
from slurm_adapter.remote.code import Synced, find_code, sync
from slurm_adapter.remote.code.copy import Source
from slurm_adapter.remote.requests import NoReplyError
from slurm_adapter.remote.transport.connector import Connector
from slurm_adapter.remote.transport.port import (
    Answer,
    CommandChannel,
    Connection,
    ConnectionLostError,
)
from testbed.child import Child
from testbed.waiting import LONG_S, until

DESTINATION = "/proc/self/cwd/job/code/proj"
"""One path on all hosts, whose agents each begin in a directory of their own."""
_MEANT_FOR_US = (
    *(b".", b"..", b".git", b"__pycache__", b".gitignore", b".slurm-adapter-ignore"),
    MARKER.encode(),
)


class Host:
    """A host whose agents begin in a directory of its own, over any connection."""

    def __init__(self, connection: Connection, folder: Path, around: str = "{}") -> None:
        self.node = connection.node
        self.folder = folder
        self.copy = folder / "job/code/proj"
        self._connection = connection
        self._around = around
        """What becomes of a command."""

    def start(self, command: str) -> CommandChannel:
        inside = f"cd {shlex.quote(str(self.folder))} && {command}"
        return self._connection.start(self._around.replace("{}", inside))

    def run(self, command: str, data: bytes = b"", limit_s: float = 60.0) -> Answer:
        return self._connection.run(command, data, limit_s)

    def alive(self) -> bool:
        return self._connection.alive()

    def close(self) -> None:
        """Nothing: the next agent needs it, too."""


@contextmanager
def begun(*hosts: Connection, files: AgentFiles | None = None) -> Iterator[list[Agent]]:
    """Have an agent on each host."""
    agents = [Agent(host, index, sys.executable, uuid4().hex) for index, host in enumerate(hosts)]
    try:
        for agent in agents:
            agent.begin(files or agent_files(), LONG_S)
        yield agents
    finally:
        for agent in agents:
            agent.close()


@contextmanager
def stopped(agent: Agent) -> Iterator[None]:
    """Have an agent that does nothing any more, but has not ended."""
    os.kill(pid_of(agent), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid_of(agent), signal.SIGKILL)


def replace(sources: dict[str, bytes], module: str, old: bytes, new: bytes) -> None:
    """Change a module of the node's."""
    name = f"slurm_adapter/node/{module}"
    assert old in sources[name]
    sources[name] = sources[name].replace(old, new)


def pid_of(agent: Agent) -> int:
    """Return the pid of an agent on this machine."""
    process = agent._channel._process  # type: ignore[attr-defined]  # noqa: SLF001
    return int(process.pid)


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_let_go()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "proj"
    (folder / "pkg/deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "pkg/deep/mod.py").write_bytes(bytes(300_000))
    (folder / "pkg/zero").touch()
    (folder / "latest").symlink_to("pkg/deep")
    return folder


@pytest.fixture
def make_host(tmp_path: Path) -> Callable[..., Host]:
    def make(name: str = "gpu01", around: str = "{}", folder: Path | None = None) -> Host:
        folder = tmp_path / name if folder is None else folder
        folder.mkdir(exist_ok=True)
        return Host(LocalConnection(Node(name)), folder, around)

    return make


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    return make_host()


def synced(code: Path, *hosts: Host, patience_s: float = LONG_S) -> Synced:
    with begun(*hosts) as agents:
        return sync(find_code(str(code)), DESTINATION, agents, patience_s=patience_s)


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return everything below a directory that a copy is to have as well."""
    found: dict[str, tuple[object, ...]] = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        if path.is_symlink():
            about: tuple[object, ...] = (os.readlink(path),)  # noqa: PTH115
        elif path.is_dir():
            about = (oct(facts.st_mode),)
        else:
            about = (oct(facts.st_mode), facts.st_mtime_ns, path.read_bytes())
        if path.name != MARKER:
            found[str(path.relative_to(folder))] = about
    return found


def assert_left_clean(host: Host) -> None:
    def left() -> set[str]:
        return {path.name for path in (host.copy.parent / STATE).iterdir()}

    # The receiving end tidies up when its input has ended.
    assert until(lambda: left() == {"lock", "used-proj"}), left()


class TestCopies:
    def test_the_first_one_is_whole(self, code: Path, host: Host) -> None:
        done = synced(code, host)
        assert tree(host.copy) == tree(code)
        assert (done.files, done.hosts[0].changed, done.hosts[0].host) == (4, 4, "gpu01")
        assert done.hosts[0].sent > done.size == sum(one.size for one in find_code(str(code)).files)
        assert (host.folder / "job").stat().st_mode & 0o777 == 0o700
        assert_left_clean(host)

    def test_the_next_one_sends_what_changed(self, code: Path, host: Host) -> None:
        synced(code, host)
        assert synced(code, host).hosts[0].changed == 0
        (code / "train.py").write_text("print('world')\n")  # of the same size
        (code / "new.py").write_text("x")
        done = synced(code, host).hosts[0]
        assert (done.changed, done.removed) == (2, 0)
        assert done.line().startswith("gpu01: 2 changed, ")
        assert done.sent < 30_000
        assert tree(host.copy) == tree(code)

    def test_times_and_permissions_cost_no_contents(self, code: Path, host: Host) -> None:
        synced(code, host)
        os.utime(code / "pkg/deep/mod.py", (1, 1))
        (code / "train.py").chmod(0o750)
        (code / "pkg").chmod(0o500)
        done = synced(code, host).hosts[0]
        (code / "pkg").chmod(0o700)  # as the copy has it: it must stay writable
        assert (done.changed, tree(host.copy)) == (0, tree(code))

    def test_what_is_gone_goes_and_what_a_job_made_stays(self, code: Path, host: Host) -> None:
        synced(code, host)
        for made in ("out.log", "pkg/deep/weights.pt", "pkg/__pycache__/x.pyc", "old/y"):
            (host.copy / made).parent.mkdir(exist_ok=True)
            (host.copy / made).write_text("a job's")
        shutil.rmtree(code / "pkg")
        (code / "latest").unlink()
        assert synced(code, host).hosts[0].removed == 3
        kept = {str(path.relative_to(host.copy)) for path in host.copy.rglob("*")}
        assert {"out.log", "pkg/deep/weights.pt", "old/y"} < kept
        assert not kept & {"latest", "pkg/zero", "pkg/deep/mod.py"}

    def test_a_directory_that_is_gone_goes_with_pythons_cache(self, code: Path, host: Host) -> None:
        synced(code, host)
        (host.copy / "pkg/deep/__pycache__").mkdir()
        (host.copy / "pkg/deep/__pycache__/mod.pyc").touch()
        shutil.rmtree(code / "pkg")
        synced(code, host)
        assert not (host.copy / "pkg").exists()

    def test_what_became_something_else(self, code: Path, host: Host) -> None:
        synced(code, host)
        shutil.rmtree(code / "pkg")
        (code / "pkg").write_text("a file now")
        (code / "latest").unlink()
        (code / "latest").mkdir()
        (code / "latest/x").write_text("x")
        (code / "train.py").unlink()
        (code / "train.py").symlink_to("run.sh")
        synced(code, host)
        assert tree(host.copy) == tree(code)

    def test_links_that_a_job_put_in_its_place_lead_nobody_astray(
        self, code: Path, host: Host, tmp_path: Path
    ) -> None:
        synced(code, host)
        precious = tmp_path / "precious"
        shutil.copytree(code / "pkg", precious)
        shutil.rmtree(host.copy / "pkg")
        (host.copy / "pkg").symlink_to(precious)
        before = tree(precious)
        (code / "pkg/zero").unlink()
        synced(code, host)
        assert tree(host.copy) == tree(code)
        (host.copy / "pkg/deep").rename(tmp_path / "moved")
        (host.copy / "pkg/deep").symlink_to(precious / "deep")
        shutil.rmtree(code / "pkg")
        synced(code, host)
        assert tree(precious) == before

    def test_links_that_lead_nowhere_there_are_told(self, code: Path, host: Host) -> None:
        (code / "data").symlink_to("/datasets/x")
        (code / "tmp").symlink_to("/tmp")
        assert synced(code, host).warnings == ("data leads nowhere on gpu01",)

    names = st.binary(min_size=1, max_size=40).map(
        lambda name: name.replace(b"\0", b"0").replace(b"/", b"1")
    )

    @settings(max_examples=8)
    @given(st.lists(names.filter(lambda name: name not in _MEANT_FOR_US), max_size=8))
    def test_any_name(self, tmp_path_factory: pytest.TempPathFactory, raw: list[bytes]) -> None:
        folder = tmp_path_factory.mktemp("names")
        code = folder / "proj"
        inner = code / os.fsdecode(b"d \n'\"$(x)\xff")
        inner.mkdir(parents=True)
        for name in raw:
            (inner / os.fsdecode(name)).write_bytes(name)
        (code / ".slurm-adapter-ignore").write_text("!*\n")
        host = Host(LocalConnection(Node("gpu01")), folder)
        synced(code, host)
        assert tree(host.copy) == tree(code)
        shutil.rmtree(inner)
        synced(code, host)
        assert tree(host.copy) == tree(code)


class TestForeign:
    @pytest.mark.parametrize("what", ["files", "a link", "a file", "a marker of others"])
    def test_a_directory_that_is_not_ours_is_left_alone(
        self, code: Path, host: Host, make_host: Callable[..., Host], tmp_path: Path, what: str
    ) -> None:
        host.copy.parent.mkdir(parents=True)
        if what == "a link":
            (tmp_path / "mine").mkdir()
            host.copy.symlink_to(tmp_path / "mine")
        elif what == "a file":
            host.copy.write_text("mine")
        else:
            host.copy.mkdir()
            (host.copy / ("train.py" if what == "files" else MARKER)).write_text("mine")
        other = make_host("gpu02")
        with pytest.raises(ClusterUnfitError) as caught:
            synced(code, host, other)
        assert caught.value.exit_status == CLUSTER_UNFIT
        first, second, *rest = report(caught.value).splitlines()
        assert first == "slurm-adapter: 1 of 2 hosts cannot have a copy of the code:"
        reasons = {
            "files": f"{DESTINATION} holds files that no --sync put there",
            "a marker of others": f"{DESTINATION}/{MARKER} was not written by --sync",
        }
        assert second == f"  gpu01: {reasons.get(what, f'{DESTINATION} is no directory')}"
        assert rest == ["  Nothing was started. --job-folder DIR names another place."]
        if what == "files":
            assert [path.name for path in host.copy.iterdir()] == ["train.py"]
        assert not what.startswith("a link") or not list((tmp_path / "mine").iterdir())

    def test_an_empty_one_is_taken(self, code: Path, host: Host) -> None:
        host.copy.mkdir(parents=True)
        synced(code, host)
        assert tree(host.copy) == tree(code)

    def test_what_a_job_made_is_not_replaced_by_a_file_of_the_code(
        self, code: Path, host: Host
    ) -> None:
        synced(code, host)
        (host.copy / "out").mkdir()
        (host.copy / "out/weights.pt").write_text("precious")
        (code / "out").write_text("x")
        with pytest.raises(ClusterUnfitError, match="out holds files that a job made, and is a fi"):
            synced(code, host)
        assert (host.copy / "out/weights.pt").read_text() == "precious"


class TestInterruption:
    @pytest.mark.parametrize("after", [200, 20_000, 200_000, 390_000])
    def test_the_next_one_repairs(self, code: Path, host: Host, after: int) -> None:
        (code / "old").mkdir()
        (code / "old/gone.py").write_text("x")
        synced(code, host)
        shutil.rmtree(code / "old")
        (code / "a.py").write_bytes(os.urandom(100_000))
        (code / "pkg/deep/mod.py").write_bytes(os.urandom(300_000))
        cut = _CutConnection(Node("gpu01"), host.folder)
        found = find_code(str(code))
        with begun(cut) as agents:
            cut.left = after
            with pytest.raises(ClusterUnfitError, match="gpu01: the connection was lost"):
                sync(found, DESTINATION, agents)
        (code / "a.py").unlink()  # half of what was being copied is no longer wanted
        synced(code, host)
        assert tree(host.copy) == tree(code)
        assert_left_clean(host)

    def test_ctrl_c_ends_it_soon(self, code: Path, make_host: Callable[..., Host]) -> None:
        first, found = make_host(), find_code(str(code))

        def interrupt() -> None:
            assert until(lambda: list((first.copy.parent / STATE).glob("seen-*")))
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        with begun(first, make_host("gpu02")) as agents, stopped(agents[1]):
            interrupting.start()
            started = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                sync(found, DESTINATION, agents, patience_s=1000)
            assert time.monotonic() - started < LONG_S, "the patience was waited for"
        interrupting.join()

    def test_a_file_that_changes_meanwhile(self, code: Path, host: Host) -> None:
        found = find_code(str(code))
        (code / "train.py").write_text("print('hello, world')\n")
        with begun(host) as agents:
            what = r"train\.py was changed while it was being copied"
            with pytest.raises(BadValueError, match=what):
                sync(found, DESTINATION, agents)
            (code / "train.py").unlink()  # whoever is asked again goes on
            with pytest.raises(BadValueError, match=r"train\.py cannot be read: No such file"):
                sync(found, DESTINATION, agents)
            (code / "train.py").write_text("")
            assert sync(find_code(str(code)), DESTINATION, agents).hosts[0].changed == 1
        assert tree(host.copy) == tree(code)


class TestSharedDirectory:
    def test_it_is_copied_once(self, code: Path, make_host: Callable[..., Host]) -> None:
        (shared := make_host("gpu02")).folder.with_name("gpu03").symlink_to(shared.folder)
        hosts = [make_host("gpu01"), shared, make_host("gpu03"), make_host("gpu04")]
        done = synced(code, *hosts)
        assert [(one.host, one.changed, one.same_as) for one in done.hosts] == [
            ("gpu01", 4, None),
            ("gpu02", 4, None),
            ("gpu03", 0, "gpu02"),
            ("gpu04", 4, None),
        ]
        assert all(tree(host.copy) == tree(code) for host in hosts)
        assert_left_clean(shared)
        first, _, _, third, _ = done.lines()
        assert first.startswith("code: 4 files, 293.0 KiB, on 4 hosts in ")
        assert third == "  gpu03: has the directory of gpu02"

    def test_two_at_once_wait_for_each_other(
        self, code: Path, make_host: Callable[..., Host]
    ) -> None:
        hosts = [make_host("gpu01") for _ in range(4)]
        results: list[Synced] = []
        threads = [
            threading.Thread(target=lambda host=host: results.append(synced(code, host)))
            for host in hosts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(one.hosts[0].changed for one in results) == 4
        assert len(results) == 4
        assert tree(hosts[0].copy) == tree(code)


# As an agent does: holds a version of a copy until its input ends.
HOLD = """\
import sys
from slurm_adapter.node.agent.copy_lock import hold
hold(*sys.argv[1:])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def running_from(host: Host, version: str) -> Iterator[None]:
    """Have a job run from the copy."""
    words = [sys.executable, "-c", HOLD, str(host.copy), version, "gpu01"]
    with Child(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout
        assert job.stdout.readline() == b"held\n"
        yield


class TestAJobThatRuns:
    @pytest.fixture
    def version(self, code: Path, host: Host) -> str:
        return synced(code, host).hosts[0].version

    @pytest.mark.parametrize("what", ["edited", "new", "removed", "mode", "folder", "link"])
    def test_keeps_its_code_as_it_is(
        self, code: Path, host: Host, make_host: Callable[..., Host], version: str, what: str
    ) -> None:
        before = tree(host.copy)
        if what == "edited":
            (code / "train.py").write_text("print('world')\n")
        elif what == "new":
            (code / "new.py").touch()
        elif what == "removed":
            (code / "run.sh").unlink()
        elif what == "mode":
            (code / "run.sh").chmod(0o644)
        elif what == "folder":
            (code / "new").mkdir()
        else:
            (code / "latest").unlink()
            (code / "latest").symlink_to("empty")
        with running_from(host, version):
            with pytest.raises(ClusterUnfitError) as caught:
                synced(code, host, make_host("gpu02"))
            assert caught.value.exit_status == CLUSTER_UNFIT
            assert report(caught.value).splitlines() == [
                "slurm-adapter: 1 of 2 hosts cannot have a copy of the code:",
                f"  gpu01: a job runs from {DESTINATION}",
                "  Nothing was started. Wait for it, or give this one a folder of its own with"
                " --job-folder DIR.",
            ]
            assert tree(host.copy) == before
        assert synced(code, host).hosts[0].version != version
        assert tree(host.copy) == tree(code)

    def test_shares_it_with_another_that_has_the_same(
        self, code: Path, host: Host, version: str
    ) -> None:
        os.utime(code / "train.py", (1, 1))
        (host.copy / "out.log").write_text("a job's")
        with running_from(host, version):
            done = synced(code, host).hosts[0]
            assert (done.changed, done.version) == (0, version)
            with running_from(host, version):
                assert synced(code, host).hosts[0].version == version

    def test_does_not_start_from_what_another_has_changed(
        self, code: Path, host: Host, version: str
    ) -> None:
        (code / "train.py").write_text("print('world')\n")
        newer = synced(code, host).hosts[0].version
        with pytest.raises(ClusterUnfitError) as caught:
            hold(str(host.copy), version, "gpu01")
        told = f"gpu01: another --sync has changed {host.copy} meanwhile"
        assert (caught.value.found, caught.value.exit_status) == (told, CLUSTER_UNFIT)
        with running_from(host, newer):
            pass

    def test_does_not_start_while_another_changes_it(
        self, code: Path, host: Host, version: str
    ) -> None:
        use = copy_lock.open_use(bytes(host.copy))
        copy_lock.take_alone(use, str(host.copy), version)
        with pytest.raises(ClusterUnfitError, match="another --sync has changed"):
            hold(str(host.copy), version, "gpu01")
        copy_lock.give_back(use)
        with running_from(host, version):
            pass
        os.close(use)
        assert code.exists()

    def test_knows_the_copy_of_a_host_that_shares_the_directory(
        self, code: Path, make_host: Callable[..., Host]
    ) -> None:
        (shared := make_host("gpu01")).folder.with_name("gpu02").symlink_to(shared.folder)
        first, second = synced(code, shared, make_host("gpu02")).hosts
        assert second.same_as == "gpu01"
        assert first.version == second.version != ""

    def test_is_not_forgotten_after_a_day(self, code: Path, host: Host, version: str) -> None:
        (used,) = (host.copy.parent / STATE).glob("used-*")
        with running_from(host, version):
            os.utime(used, (1, 1))
            (code / "train.py").write_text("print('world')\n")
            for _ in range(2):
                with pytest.raises(ClusterUnfitError, match="a job runs from"):
                    synced(code, host)


class TestHostsThatCannot:
    def test_one_message_has_them_all(self, code: Path, make_host: Callable[..., Host]) -> None:
        hosts = [make_host(f"gpu0{number}") for number in range(1, 5)]
        hosts[1].copy.parent.mkdir(parents=True)
        (hosts[1].copy.parent / STATE).write_text("no directory")
        with begun(*hosts) as agents:
            for agent in agents[2:]:
                os.kill(pid_of(agent), signal.SIGKILL)
            with pytest.raises(ClusterUnfitError) as caught:
                sync(find_code(str(code)), DESTINATION, agents)
        lines = report(caught.value).splitlines()
        assert lines[0] == "slurm-adapter: 3 of 4 hosts cannot have a copy of the code:"
        assert lines[1].endswith(f"/{STATE}: File exists")
        assert lines[2] == "  gpu03, gpu04: its agent was ended by SIGKILL"
        assert not hosts[0].copy.exists()

    def test_no_room(self, code: Path, host: Host, make_host: Callable[..., Host]) -> None:
        full = make_host("gpu02", around="ulimit -f 200; {}")  # nothing above 100 kB
        with pytest.raises(ClusterUnfitError, match=r"gpu02: .*/pkg/deep/mod\.py: File too large"):
            synced(code, host, full)
        synced(code, host, make_host("gpu02"))
        assert tree(full.copy) == tree(code)

    def test_no_place(self, code: Path, make_host: Callable[..., Host]) -> None:
        with pytest.raises(
            ClusterUnfitError, match="gpu02: /proc/self/cwd/job: No such file or directory"
        ):
            synced(code, make_host("gpu01"), make_host("gpu02", folder=Path("/proc")))

    def test_one_that_hangs(self, code: Path, make_host: Callable[..., Host]) -> None:
        with begun(make_host("gpu02")) as agents, stopped(agents[0]):
            fleet = AgentFleet(agents, Timing(10.0, 0.2), pytest.fail)  # whose heartbeats go on
            with pytest.raises(ClusterUnfitError, match=r"gpu02: no answer for 1 s"):
                sync(find_code(str(code)), DESTINATION, agents, patience_s=1)
            fleet.close()

    def test_one_that_takes_its_time_says_so(
        self, code: Path, host: Host, slow: AgentFiles
    ) -> None:
        started = time.monotonic()
        with begun(host, files=slow) as agents:
            sync(find_code(str(code)), DESTINATION, agents, patience_s=5)
        assert time.monotonic() - started > 5
        assert tree(host.copy) == tree(code)

    @pytest.fixture
    def slow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentFiles]:
        """Make an agent for which each step of a copy is hard work."""
        sources = agent_archive._sources()  # noqa: SLF001
        replace(sources, "protocol/framing.py", b"LONGEST_BEAT_S = 5.0", b"LONGEST_BEAT_S = 0.3")
        replace(sources, "agent/code_copy.py", b"self._alive()", b"time.sleep(0.6); self._alive()")
        monkeypatch.setattr(agent_archive, "_sources", lambda: sources)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        agent_files.cache_clear()
        yield agent_files()
        agent_files.cache_clear()

    def test_start_up_files_that_print_do_not_matter(
        self, code: Path, make_host: Callable[..., Host]
    ) -> None:
        host = make_host(around="echo welcome; echo >&2 to; {}")
        synced(code, host)
        assert tree(host.copy) == tree(code)


class TestAHostThatLies:
    @pytest.mark.parametrize("number", [-1, 0, 99])
    @pytest.mark.parametrize("where", ["missing", "older", "doubtful"])
    def test_about_files_that_there_are_not(self, code: Path, number: int, where: str) -> None:
        source = Source(find_code(str(code)))  # the first entry is a directory
        told: dict[str, Any] = {"missing": (), "older": (), "doubtful": (), "others": 0}
        told[where] = ((number, ""),) if where == "doubtful" else (number,)
        with pytest.raises(NoReplyError, match="makes no sense"):
            source.judge(Differences(**told))


class TestLargeFiles:
    def test_of_which_an_older_version_is_there_are_sent_whole(
        self, code: Path, host: Host
    ) -> None:
        path = code / "pkg/it's \udcff\nlarge.bin"
        path.write_bytes(os.urandom(3_000_000))
        synced(code, host)
        with path.open("r+b") as file:
            file.seek(1_000_000)
            file.write(b"changed")
        done = synced(code, host).hosts[0]
        assert (done.changed, 3_000_000 < done.sent < 3_100_000) == (1, True)
        assert tree(host.copy) == tree(code)

    @pytest.mark.parametrize("grown", [0, 5])
    def test_links_that_are_followed(
        self, code: Path, host: Host, tmp_path: Path, grown: int
    ) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib/util.py").write_bytes(b"old")
        (code / "lib").symlink_to("../lib")
        (code / "util.py").symlink_to("../lib/util.py")
        synced(code, host)
        (tmp_path / "lib/util.py").write_bytes(b"new" + bytes(grown))
        assert synced(code, host).hosts[0].changed == 2
        assert not (host.copy / "lib").is_symlink()
        assert (host.copy / "lib/util.py").read_bytes() == b"new" + bytes(grown)
        assert (host.copy / "util.py").read_bytes() == b"new" + bytes(grown)


@pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd())
class TestOverSsh:
    @pytest.fixture
    def connections(self) -> Iterator[list[Connection]]:
        with LoopbackSshd.start(listen="0.0.0.0") as server:
            connector = Connector(server.config)
            found = [connector.open(Node(f"127.0.0.{number}")) for number in (1, 2, 3)]
            yield list(found)
            for connection in found:
                connection.close()

    def test_three_hosts(self, code: Path, tmp_path: Path, connections: list[Connection]) -> None:
        (code / "large.bin").write_bytes(os.urandom(5_000_000))
        hosts = [Host(one, tmp_path / one.node.name) for one in connections]
        for host in hosts:
            host.folder.mkdir()
        assert [one.changed for one in synced(code, *hosts).hosts] == [5, 5, 5]
        (code / "train.py").write_text("print('world')\n")
        assert [one.changed for one in synced(code, *hosts).hosts] == [1, 1, 1]
        assert all(tree(host.copy) == tree(code) for host in hosts)


class _CutConnection(LocalConnection):
    """One that breaks after so many bytes more."""

    left = 1 << 60

    def start(self, command: str) -> "_CutChannel":
        return _CutChannel(super().start(command), self)


class _CutChannel:
    def __init__(self, channel: CommandChannel, connection: _CutConnection) -> None:
        self._channel = channel
        self._connection = connection

    def __getattr__(self, name: str) -> object:
        return getattr(self._channel, name)

    def write(self, data: bytes) -> int:
        if self._connection.left <= 0:
            self._connection.close()
            raise ConnectionLostError("gpu01: the connection was lost")
        taken = self._channel.write(data[: self._connection.left])
        self._connection.left -= taken
        return taken

    def read(self, limit: int) -> bytes | None:
        return self._channel.read(limit) if self._connection.alive() else b""

    def status(self) -> int | None:
        return self._channel.status() if self._connection.alive() else None

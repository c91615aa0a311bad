"""A job followed, picked up and stopped from the head while something is amiss with it."""

import contextlib
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import User
from sshdetached import (
    detach,
    end_of,
    go,
    kill_all,
    logs,
    nothing_stays,
    read_begins,
    record,
    signal_head,
    state,
)
from sshruns import NODES, jobs_folder, left, run_adapter, start_adapter
from testbed import SshHosts, processes, until
from testbed.waiting import LONG_S

# What it leaves behind is in a session of its own, and deaf to SIGTERM.
DAEMON = """\
import pathlib, subprocess, sys, time
code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True,
                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("left it", flush=True)
while not (pathlib.Path(sys.argv[-2]) / "go").exists():
    time.sleep(0.02)
"""
FLOOD = """\
import os, sys, time
for _ in range(3000 if os.environ["VC_TASK_INDEX"] == "1" else 0):
    sys.stdout.write("flood of lines\\n" * 8000)
sys.stdout.flush()
time.sleep(1000)
"""
LONG = 'import time\nprint("line\\n" * 100_000, end="", flush=True)\nprint("begin", flush=True)\n'


@pytest.fixture(autouse=True)
def _nothing_stays(user: User, ssh_hosts: SshHosts) -> Iterator[None]:
    with nothing_stays(user, ssh_hosts):
        yield


def goes_on(job: str) -> str:
    """Return what is said when a job is followed no longer."""
    return f"slurm-adapter: {job} goes on; slurm-adapter stop {job} ends it\n"


def ranks(hosts: SshHosts, node: str) -> list[int]:
    """Return the ranks that run on a node."""
    pids = hosts.processes(node, connections=False)
    return [pid for pid in pids if "count.py" in processes.title(pid)]


def head_gone(user: User, job: str) -> None:
    """Wait until nobody watches a job."""
    assert until(lambda: "its head is gone" in state(user, job))


def set_head(user: User, job: str, head: str) -> None:
    """Have a job's record name another process as its head."""
    path = jobs_folder(user) / job / "job.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"head": head}))


class TestANodeThatKnowsNothingOfIt:
    """The others do as they are told, and it is named."""

    @pytest.fixture
    def job(self, user: User, ssh_hosts: SshHosts) -> Iterator[str]:
        """Give a job without a head, that gpu-n02 has forgotten."""
        job = detach(user, "count.py", "--grace", "1")
        signal_head(user, job, "KILL")
        head_gone(user, job)
        runs = user.cluster.outside(".local/state/slurm-adapter/runs")
        shutil.rmtree(runs / record(user, job)["run"] / "2")
        yield job
        for node in ssh_hosts.nodes:
            kill_all(ssh_hosts.processes(node))

    def test_is_no_reason_not_to_stop_it(self, user: User, ssh_hosts: SshHosts, job: str) -> None:
        told = run_adapter(user, "stop", job, check=False)
        assert told.status == 4
        run = record(user, job)["run"]
        assert told.said == [
            f"slurm-adapter: not confirmed: gpu-n02: knows nothing of run {run}",
            f"slurm-adapter: {job} was told to stop",
        ]
        assert not ranks(ssh_hosts, "gpu-n00")
        assert not ranks(ssh_hosts, "gpu-n01")
        assert ranks(ssh_hosts, "gpu-n02")
        assert record(user, job)["end"] is None

    def test_is_no_reason_not_to_show_it(self, user: User, job: str) -> None:
        shown = logs(user, job)
        assert [shown.lines(rank) for rank in range(3)] == [["begin"], ["begin"], []]
        assert shown.err.startswith(
            "slurm-adapter: warning: without gpu-n02: knows nothing of run "
        )

    def test_is_no_reason_not_to_follow_it(self, user: User, job: str) -> None:
        go(user)
        followed = logs(user, job, "-f", status=4)
        assert [followed.lines(rank) for rank in range(3)] == [["begin", "end"]] * 2 + [[]]
        assert f"slurm-adapter: {job} goes on where it could not be reached: gpu-n02: " in (
            followed.err
        )


class TestAnAttachedJob:
    @pytest.fixture
    def head(self, user: User) -> Iterator["subprocess.Popen[str]"]:
        """Give the head of a running one, ssh-1."""
        words = ("--link-timeout", "5", "--grace", "1", "count.py", str(user.folder), "0")
        with start_adapter(user, "ssh", "-H", NODES, *words) as head:
            read_begins(head)
            yield head
            head.kill()

    def test_whose_head_is_killed_has_ended(
        self, user: User, head: "subprocess.Popen[str]"
    ) -> None:
        with start_adapter(user, "logs", "ssh-1", "-f") as follower:
            read_begins(follower)
            head.kill()
            assert follower.wait(LONG_S) == 4
            assert follower.stderr
            assert follower.stderr.read() == (
                "slurm-adapter: ssh-1: its head was killed: its hosts end its ranks, and nobody"
                " knows how they ended\n"
            )
        assert state(user, "ssh-1") == "its head was killed"
        assert record(user, "ssh-1")["end"]["status"] == 4

    def test_whose_head_is_elsewhere_is_followed(
        self, user: User, head: "subprocess.Popen[str]"
    ) -> None:
        own = record(user, "ssh-1")["head"]
        set_head(user, "ssh-1", f"elsewhere/{own.partition('/')[2]}")
        with start_adapter(user, "logs", "ssh-1", "-f") as follower:
            read_begins(follower)
            with pytest.raises(subprocess.TimeoutExpired):
                follower.wait(2)
            go(user)
            assert follower.wait(LONG_S) == 0
            assert follower.stdout
            assert follower.stdout.read().count(" end\n") == 3
        assert head.wait(LONG_S) == 0

    def test_is_picked_up_for_removal_when_the_next_one_starts(
        self, user: User, head: "subprocess.Popen[str]", ssh_hosts: SshHosts
    ) -> None:
        head.kill()
        head.wait()
        assert until(lambda: not left(ssh_hosts))
        go(user)
        detach(user, "count.py")
        assert record(user, "ssh-1")["end"]["words"] == "its head was killed"


class TestWhoeverFollowsWithoutAHead:
    def test_ends_what_a_rank_left_behind(self, user: User, ssh_hosts: SshHosts) -> None:
        user.write("daemon.py", DAEMON)
        job = detach(user, "daemon.py", "--grace", "1")
        signal_head(user, job, "KILL")
        go(user)
        followed = logs(user, job, "-f")
        assert [followed.lines(rank) for rank in range(3)] == [["left it"]] * 3
        assert followed.err == ""
        assert not left(ssh_hosts)
        assert record(user, job)["end"]["words"] == "done"

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_leaves_alone(self, user: User, ssh_hosts: SshHosts, number: signal.Signals) -> None:
        job = detach(user, "count.py")
        signal_head(user, job, "KILL")
        with start_adapter(user, "logs", job, "-f") as follower:
            read_begins(follower)
            follower.send_signal(number)
            assert follower.wait(LONG_S) == 128 + number
            assert follower.stderr
            assert follower.stderr.read() == goes_on(job)
        assert all(ranks(ssh_hosts, node) for node in ssh_hosts.nodes)
        go(user)
        assert logs(user, job, "-f").lines(1) == ["begin", "end"]
        assert state(user, job) == "done"

    def test_may_read_no_further(self, user: User, ssh_hosts: SshHosts) -> None:
        job = detach(user, "count.py")
        signal_head(user, job, "KILL")
        with start_adapter(user, "logs", job, "-f") as follower:
            read_begins(follower)
            assert follower.stdout
            follower.stdout.close()
            go(user)
            assert follower.wait(LONG_S) == 128 + signal.SIGPIPE
            assert follower.stderr
            assert "Traceback" not in follower.stderr.read()
        assert until(lambda: not left(ssh_hosts))
        assert logs(user, job, "-f").lines(1) == ["begin", "end"]


class TestAHeadThatIsToEnd:
    """A login node that is switched off ends no detached job."""

    @pytest.mark.parametrize("name", ["TERM", "HUP", "INT"])
    def test_leaves_its_ranks_alone(self, user: User, ssh_hosts: SshHosts, name: str) -> None:
        job = detach(user, "count.py", status=6)
        signal_head(user, job, name)
        head_gone(user, job)
        assert all(ranks(ssh_hosts, node) for node in ssh_hosts.nodes)
        assert record(user, job)["end"] is None
        assert (jobs_folder(user) / job / "head.log").read_text() == ""
        go(user)
        assert logs(user, job, "-f", status=6).lines(1) == ["begin", "end"]
        assert state(user, job) == "ended 6"

    def test_says_so_where_it_was_told_by_stop(self, user: User) -> None:
        job = detach(user, "count.py")
        assert run_adapter(user, "stop", job).err == f"slurm-adapter: {job} was stopped\n"
        end = record(user, job)["end"]
        assert end["status"] == 143
        assert end["words"].startswith("stopped: ending rank 0 on gpu-n00, ")


def reads_a_rank(pid: int) -> bool:
    """Say whether a process has the output of rank 1 open."""
    with contextlib.suppress(OSError):
        return any(one.readlink().name == "rank-1.log" for one in Path(f"/proc/{pid}/fd").iterdir())
    return False


class TestALinkThatIsCut:
    """What followed on the node ends there, reading and writing alike."""

    @pytest.mark.parametrize("script", ["count.py", "flood.py"])
    def test_is_noticed_there(self, user: User, ssh_hosts: SshHosts, script: str) -> None:
        user.write("flood.py", FLOOD)
        job = detach(user, script, "--link-timeout", "5")
        signal_head(user, job, "KILL")
        head_gone(user, job)

        def there() -> set[int]:
            return set(ssh_hosts.processes("gpu-n01", connections=False))

        assert until(lambda: not ssh_hosts.sessions("gpu-n01"))
        before = there()
        with start_adapter(user, "logs", job, "-f", stdout=subprocess.DEVNULL) as follower:
            try:
                # Not before it reads: until then it waits for its first word, however long.
                assert until(lambda: any(map(reads_a_rank, there() - before)))
                with ssh_hosts.cut("gpu-n01"):
                    assert until(lambda: there() == before)
            finally:
                follower.send_signal(signal.SIGINT)
            follower.wait(LONG_S)
        assert run_adapter(user, "stop", job).err == f"slurm-adapter: {job} was stopped\n"


def test_all_that_was_written_is_shown(user: User) -> None:
    user.write("long.py", LONG + "time.sleep(1000)\n")
    job = detach(user, "long.py")
    kept = user.cluster.outside(".local/state/slurm-adapter/runs") / record(user, job)["run"]
    assert until(lambda: all(path.read_bytes()[-6:] == b"begin\n" for path in kept.rglob("*.log")))
    shown = logs(user, job)
    assert [len(shown.lines(rank)) for rank in range(3)] == [100_001] * 3
    run_adapter(user, "stop", job)


def test_a_job_that_is_watched_from_elsewhere_is_not_called_ended(user: User) -> None:
    job = detach(user, "count.py")
    signal_head(user, job, "KILL")
    own = record(user, job)["head"]
    set_head(user, job, f"elsewhere/{own.partition('/')[2]}")
    go(user)
    assert until(lambda: logs(user, job).out.count(" end\n") == 3)
    logs(user, job)
    assert record(user, job)["end"] is None
    set_head(user, job, own)
    logs(user, job)
    assert end_of(user, job) == 0

"""A detached job needs nobody who watches it, and is picked up again by whoever wants to."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import User
from sshdetached import (
    detach,
    end_of,
    go,
    logs,
    nothing_stays,
    read_begins,
    record,
    signal_head,
    state,
)
from sshruns import NODES, jobs_folder, left, run_adapter, run_ssh, start_adapter
from testbed import SshHosts, processes, until
from testbed.waiting import LONG_S


@pytest.fixture(autouse=True)
def _nothing_stays(user: User, ssh_hosts: SshHosts) -> Iterator[None]:
    with nothing_stays(user, ssh_hosts):
        yield


class TestADetachedJob:
    def test_returns_its_id_when_all_ranks_run(self, user: User, ssh_hosts: SshHosts) -> None:
        job = detach(user, "count.py")
        assert job == "ssh-1"
        for node in ssh_hosts.nodes:
            titles = [processes.title(pid) for pid in ssh_hosts.processes(node)]
            assert sum("count.py" in title for title in titles) == 1
        assert state(user, job) == "detached"
        go(user)
        assert end_of(user, job) == 0
        assert state(user, job) == "done"

    def test_is_shown_as_far_as_it_is(self, user: User) -> None:
        job = detach(user, "count.py")
        assert until(lambda: logs(user, job).out.count("begin") == 3)
        go(user)
        assert end_of(user, job) == 0
        shown = logs(user, job)
        assert [shown.lines(rank) for rank in range(3)] == [["begin", "end"]] * 3

    @pytest.mark.parametrize("status", [0, 7])
    def test_is_followed_to_its_end(self, user: User, status: int) -> None:
        job = detach(user, "count.py", status=status)
        with start_adapter(user, "logs", job, "-f") as follower:
            assert follower.stdout
            assert [follower.stdout.readline().split()[1] for _ in range(3)] == ["begin"] * 3
            go(user)
            assert follower.wait(LONG_S) == status
        assert end_of(user, job) == status
        ended = logs(user, job, "-f", status=status)
        assert ended.lines(1) == ["begin", "end"]
        assert ("rank 1 on gpu-n01 failed first: exit status 7" in ended.err) == bool(status)

    def test_goes_on_when_its_follower_is_interrupted(self, user: User) -> None:
        job = detach(user, "count.py")
        with start_adapter(user, "logs", job, "--follow") as follower:
            assert follower.stdout
            assert follower.stdout.readline().endswith("begin\n")
            follower.send_signal(signal.SIGINT)
            assert follower.wait(LONG_S) == 130
            assert follower.stderr
            assert "Traceback" not in follower.stderr.read()
        assert state(user, job) == "detached"
        go(user)
        assert end_of(user, job) == 0

    def test_is_stopped_by_a_rank_that_fails_though_nobody_watches(
        self, user: User, ssh_hosts: SshHosts
    ) -> None:
        job = detach(user, "fail.py", status=9)
        go(user)
        assert end_of(user, job) == 9
        assert until(lambda: not left(ssh_hosts))
        assert state(user, job) == "ended 9"
        assert record(user, job)["end"]["words"].startswith(
            "rank 1 on gpu-n01 failed first: exit status 9; ending rank 0 on gpu-n00"
        )

    def test_is_kept_for_its_owner_alone(self, user: User) -> None:
        job = detach(user, "count.py")
        go(user)
        assert end_of(user, job) == 0
        here = jobs_folder(user) / job
        there = user.cluster.outside(".local/state/slurm-adapter/runs")
        run = there / record(user, job)["run"]
        for folder in (here, there, run, *run.iterdir()):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
        files = [path for path in (*here.iterdir(), *run.rglob("*")) if path.is_file()]
        assert {path.name for path in files} >= {"job.json", "head.log", "rank-2.log", "gone"}
        for path in files:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path

    def test_that_cannot_start_is_told_as_ever(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.stopped("gpu-n01"):
            ended = run_ssh(user, "--detach", "count.py", "x", "0", check=False)
        assert (ended.status, ended.out) == (3, "")
        assert "gpu-n01: connection refused" in ended.err
        assert not ended.jobs.exists()
        assert not left(ssh_hosts)

    def test_that_fails_to_start_is_no_running_one(self, user: User, ssh_hosts: SshHosts) -> None:
        user.write("data/part", "")
        with ssh_hosts.covered("gpu-n01", user.folder / "data"):
            words = ("--detach", "--input", "d=data/part", "count.py", "x", "0")
            ended = run_ssh(user, *words, check=False)
        assert (ended.status, ended.out) == (3, "")
        assert "gpu-n01 has no " in ended.err
        assert state(user, "ssh-1") == "ended 3"
        assert logs(user, "ssh-1", "-f", status=3).err == (
            "slurm-adapter: ssh-1: it could not be started\n"
        )
        assert not left(ssh_hosts)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_is_none_where_it_is_interrupted_before(
        self, user: User, ssh_hosts: SshHosts, number: signal.Signals
    ) -> None:
        listener = ssh_hosts.listener("gpu-n01")
        os.kill(listener, signal.SIGSTOP)
        try:
            words = ("ssh", "-H", NODES, "--detach", "count.py", str(user.folder), "0")
            with start_adapter(user, *words) as head:
                assert until(lambda: ssh_hosts.sessions("gpu-n02"))
                send = os.killpg if number == signal.SIGINT else os.kill  # as a terminal does
                send(head.pid, number)
                assert head.wait(LONG_S) == 128 + number
        finally:
            os.kill(listener, signal.SIGCONT)
        assert until(lambda: not left(ssh_hosts))
        assert not jobs_folder(user).exists()


class TestAStoppedJob:
    def test_is_gone_everywhere(self, user: User, ssh_hosts: SshHosts) -> None:
        job = detach(user, "count.py")
        stopped = run_adapter(user, "stop", job)
        assert stopped.err == f"slurm-adapter: {job} was stopped\n"
        assert not left(ssh_hosts)
        assert state(user, job) == "ended 143"
        assert run_adapter(user, "stop", job).err.startswith(
            f"slurm-adapter: {job} has ended already: "
        )
        assert logs(user, job, "-f", status=143).lines(0) == ["begin"]

    def test_is_gone_everywhere_without_its_head(self, user: User, ssh_hosts: SshHosts) -> None:
        job = detach(user, "count.py")
        signal_head(user, job, "KILL")
        assert run_adapter(user, "stop", job).err == f"slurm-adapter: {job} was stopped\n"
        assert not left(ssh_hosts)
        assert state(user, job) == "ended 143"

    def test_may_be_an_attached_one(self, user: User, ssh_hosts: SshHosts) -> None:
        with start_adapter(user, "ssh", "-H", NODES, "count.py", str(user.folder), "0") as head:
            read_begins(head)
            assert state(user, "ssh-1") == "running"
            with start_adapter(user, "logs", "ssh-1") as reader:
                assert reader.stdout
                assert reader.stdout.read().count("begin") == 3
            assert run_adapter(user, "stop", "ssh-1").status == 0
            assert head.wait(LONG_S) == 143
        assert not left(ssh_hosts)
        assert state(user, "ssh-1") == "ended 143"

    def test_cannot_be_one_that_there_is_no_record_of(self, user: User) -> None:
        assert run_adapter(user, "jobs").err == ("slurm-adapter: no jobs were started from here\n")
        for words in (("stop", "ssh-9"), ("logs", "ssh-9"), ("logs", "../x", "-f")):
            ended = run_adapter(user, *words, check=False)
            assert (ended.status, ended.out) == (2, "")
            assert f"there is no job {words[1]!r} in " in ended.err


class TestAJobWhoseHeadWasKilled:
    def test_is_picked_up_with_all_its_output(self, user: User) -> None:
        job = detach(user, "count.py", status=5)
        signal_head(user, job, "KILL")
        assert "its head is gone" in state(user, job)
        with start_adapter(user, "logs", job, "-f") as follower:
            read_begins(follower)
            go(user)
            assert follower.wait(LONG_S) == 5
        ended = logs(user, job, "-f", status=5)
        assert [ended.lines(rank) for rank in range(3)] == [["begin", "end"]] * 3
        assert state(user, job) == "ended 5"

    def test_has_ended_where_nobody_saw_it(self, user: User, ssh_hosts: SshHosts) -> None:
        job = detach(user, "count.py", status=5)
        signal_head(user, job, "KILL")
        go(user)
        assert until(lambda: not left(ssh_hosts))
        ended = logs(user, job, "-f", status=5)
        assert [ended.lines(rank) for rank in range(3)] == [["begin", "end"]] * 3
        assert state(user, job) == "ended 5"

    def test_is_ended_for_a_failure_by_whoever_follows(
        self, user: User, ssh_hosts: SshHosts
    ) -> None:
        job = detach(user, "fail.py", status=9)
        signal_head(user, job, "KILL")
        go(user)
        said = logs(user, job, "-f", status=9).err
        assert said.startswith(
            "slurm-adapter: rank 1 on gpu-n01 failed first: exit status 9;"
            " ending rank 0 on gpu-n00, rank 2 on gpu-n02\n"
        )
        assert not left(ssh_hosts)
        assert state(user, job) == "ended 9"

    def test_leaves_nothing_where_it_was_attached(self, user: User, ssh_hosts: SshHosts) -> None:
        words = ("--link-timeout", "5", "--grace", "1", "count.py", str(user.folder), "0")
        with start_adapter(user, "ssh", "-H", NODES, *words) as head:
            read_begins(head)
            head.kill()
        assert until(lambda: not left(ssh_hosts))
        assert state(user, "ssh-1") == "its head was killed"
        assert logs(user, "ssh-1").out.count("begin") == 3
        refused = run_adapter(user, "stop", "ssh-1", check=False)
        assert refused.status == 3
        assert "Its head was killed: its hosts have ended it" in refused.err


class TestALostLink:
    """What runs behind it goes on, and is not forgotten."""

    @pytest.fixture
    def job(self, user: User, ssh_hosts: SshHosts) -> Iterator[str]:
        """Give a job whose head has lost sight of gpu-n01; afterwards the link is up again."""
        job = detach(user, "count.py", "--link-timeout", "5")
        with ssh_hosts.cut("gpu-n01"):
            log = jobs_folder(user) / job / "head.log"
            assert until(lambda: "gpu-n01: it has not been heard of for 5 s" in log.read_text())
            # Its agent has lost sight of the head, too: what it would do of that it has done.
            assert not until(lambda: not self.runs(ssh_hosts), 3)
            yield job

    def runs(self, ssh_hosts: SshHosts) -> bool:
        """Say whether the rank on gpu-n01 runs."""
        pids = ssh_hosts.processes("gpu-n01", connections=False)
        return any("count.py" in processes.title(pid) for pid in pids)

    def test_is_repaired_and_the_job_followed(
        self, user: User, ssh_hosts: SshHosts, job: str
    ) -> None:
        ssh_hosts.cluster.heal("gpu-n01")
        with start_adapter(user, "logs", job, "-f") as follower:
            read_begins(follower)
            go(user)
            assert follower.wait(LONG_S) == 0
        assert until(lambda: state(user, job) == "done")

    def test_is_repaired_and_the_job_stopped(
        self, user: User, ssh_hosts: SshHosts, job: str
    ) -> None:
        ssh_hosts.cluster.heal("gpu-n01")
        assert run_adapter(user, "stop", job).err == f"slurm-adapter: {job} was stopped\n"
        assert until(lambda: not left(ssh_hosts))
        assert state(user, job) == "ended 143"

    def test_keeps_the_job_from_being_stopped_there(
        self, user: User, ssh_hosts: SshHosts, job: str
    ) -> None:
        user.write("ssh config", "Host gpu-n01\n  ConnectTimeout 2\n")
        env = {"SLURM_ADAPTER_SSH_CONFIG": f"{user.folder}/ssh config"}
        told = run_adapter(user, "stop", job, env=env, check=False)
        assert told.status == 4
        assert "slurm-adapter: not confirmed: gpu-n01: " in told.err
        assert told.said[-1] == f"slurm-adapter: {job} was told to stop"
        assert not ssh_hosts.processes("gpu-n00")
        assert self.runs(ssh_hosts)
        shown = run_adapter(user, "logs", job, env=env)
        assert "slurm-adapter: warning: without gpu-n01: " in shown.err
        assert [shown.lines(rank) for rank in range(3)] == [["begin"], [], ["begin"]]
        ssh_hosts.cluster.heal("gpu-n01")
        assert run_adapter(user, "stop", job).err == f"slurm-adapter: {job} was stopped\n"
        assert until(lambda: not left(ssh_hosts))


def test_a_node_that_knows_nothing_of_it_is_told(user: User) -> None:
    job = detach(user, "count.py")
    go(user)
    assert end_of(user, job) == 0
    runs = user.cluster.outside(".local/state/slurm-adapter/runs") / record(user, job)["run"]
    moved = Path(f"{runs}.aside")
    runs.rename(moved)
    ended = run_adapter(user, "logs", job, check=False)
    assert ended.status == 3
    assert "knows nothing of run" in ended.err

"""Jobs of a real Slurm cluster from the head again: followed, listed, stopped."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from conftest import PROJECT, User
from testbed import SlurmCluster
from testbed.waiting import LONG_S, until

if TYPE_CHECKING:
    import subprocess

COUNT = """
import os, pathlib, sys, time
rank = os.environ["VC_TASK_INDEX"]
print("begun", flush=True)
while not pathlib.Path(sys.argv[-2]).exists():
    time.sleep(0.05)
print("gone on", flush=True)
pathlib.Path(f"done-{rank}").touch()
while rank == "1" and len(list(pathlib.Path().glob("done-*"))) < 3:
    time.sleep(0.05)
sys.exit(int(sys.argv[-1]) if rank == "1" else 0)
"""
LINES = [f"[{rank}] {words}" for words in ("begun", "gone on") for rank in range(3)]


@pytest.fixture
def job(user: User) -> User:
    """The user, with a script that goes on once the file that it is told of is there."""
    user.write("count.py", COUNT)
    return user


@pytest.fixture
def own(slurm: SlurmCluster) -> Iterator[User]:
    """The same on a cluster of its own, whose daemons may be ended and nodes taken down."""
    del slurm  # where that can run, this can
    with SlurmCluster.start(PROJECT) as cluster:
        user = User(cluster, PurePosixPath("/home/ada"))
        user.write("count.py", COUNT)
        yield user


def arguments(user: User, status: int = 0) -> list[str]:
    """Return the script, the file and the status of rank 1."""
    return ["count.py", f"{user.folder}/go", str(status)]


class Followed:
    """`slurm-adapter sbatch --follow` at work: what it has written so far."""

    def __init__(self, user: User, process: "subprocess.Popen[str]") -> None:
        self._user, self.process = user, process

    @property
    def out(self) -> str:
        return self._user.outside("followed.out").read_text()

    @property
    def err(self) -> str:
        return self._user.outside("followed.err").read_text()

    def end(self) -> int:
        """Wait for its end, return its status."""
        return self.process.wait(LONG_S)

    def ranks(self) -> list[str]:
        """Return the ranks' lines, by what they say, then by rank."""
        lines = [line for line in self.out.splitlines() if re.match(r"\[\d\] (begun|gone)", line)]
        return sorted(lines, key=lambda line: (line[4:], line))


@contextmanager
def followed(user: User, *words: str) -> Iterator[Followed]:
    """Start a command on the head with its output in files; it is killed at the end."""
    shell = 'exec "$@" > followed.out 2> followed.err'
    with user.start("sh", "-c", shell, "sh", "slurm-adapter", *words) as process:
        try:
            assert until(user.outside("followed.err").exists)
            yield Followed(user, process)
        finally:
            process.kill()


def begun(job: Followed) -> bool:
    """Say whether all ranks have."""
    return job.out.count("begun") == 3


def test_a_failing_job_gives_its_own_status(job: User) -> None:
    with followed(job, "sbatch", "-N", "3", "--follow", *arguments(job, 7)) as seen:
        assert until(lambda: begun(seen) and " runs on gpu-n[00-02]" in seen.err)
        job.write("go", "")
        assert seen.end() == 7
        assert seen.ranks() == LINES
        said = seen.err.splitlines()
        number = seen.out.split()[3]
        assert f"slurm-adapter: job {number} runs on gpu-n[00-02]" in said
        assert "slurm-adapter: rank 1 on gpu-n01 failed first: Exited with exit code 7" in said
        assert said[-1] == f"slurm-adapter: job {number} ended: FAILED, exit status 7"
    assert "ended 7: FAILED" in job.run("slurm-adapter", "jobs")


def test_a_controller_that_is_away_ends_nothing(own: User) -> None:
    with followed(own, "sbatch", "-N", "3", "--follow", *arguments(own)) as seen:
        assert until(lambda: begun(seen))
        with own.cluster.controller_away():
            assert until(lambda: "Slurm does not answer" in seen.err)
            own.write("go", "")
            assert until(lambda: seen.out.count("gone on") == 3)
            assert seen.process.poll() is None
        assert seen.end() == 0
        assert seen.ranks() == LINES
        assert "slurm-adapter: Slurm answers again" in seen.err.splitlines()


def test_a_follower_that_leaves_leaves_the_job_alone(job: User) -> None:
    with followed(job, "sbatch", "-N", "3", "--follow", *arguments(job)) as seen:
        assert until(lambda: begun(seen))
        seen.process.send_signal(signal.SIGINT)
        assert seen.end() == 130
        number = seen.out.split()[3]
        assert f"job {number} goes on; slurm-adapter stop {number} ends it" in seen.err
    with followed(job, "logs", number, "-f") as again:
        assert until(lambda: begun(again))
        assert job.run("squeue", "-h", "-o", "%T", "-j", number) == "RUNNING\n"
        done = job.cluster.run(
            ["slurm-adapter", "stop", number], cwd=str(job.folder), env=job.environment
        )
        assert (done.returncode, done.stderr) == (0, f"slurm-adapter: job {number} was stopped\n")
        assert again.end() == 143
    assert job.run("squeue", "-h", "-j", number, "-t", "running") == ""
    assert "ended 143: CANCELLED" in job.run("slurm-adapter", "jobs")


def test_a_node_that_goes_down_is_named(own: User) -> None:
    down = ["scontrol", "update", "nodename=gpu-n02", "state=down", "reason=broken"]
    words = ("sbatch", "-N", "3", "--sbatch", "no-requeue", "--follow", *arguments(own))
    with followed(own, *words) as seen:
        assert until(lambda: begun(seen))
        own.cluster.run(down, user="root")
        assert seen.end() == 4
        last = seen.err.splitlines()[-1]
        assert last.endswith("ended: NODE_FAIL, exit status 4; lost: gpu-n02")


def test_waiting_is_told_with_its_reason(job: User) -> None:
    words = ("sbatch", "-N", "1", "--sbatch", "begin=now+1hour", "--wait", *arguments(job))
    with followed(job, *words) as seen:
        assert until(lambda: "is waiting: BeginTime; expected to start" in seen.err)
        number = seen.out.split()[3]
        assert "waiting: BeginTime" in job.run("slurm-adapter", "jobs")
        job.run("slurm-adapter", "stop", number)
        assert seen.end() == 143


def test_jobs_of_others_are_listed_when_asked_for(job: User) -> None:
    number = job.run(
        "sbatch", "--parsable", "--begin=now+1hour", "--job-name=theirs", "--wrap", "true"
    ).strip()
    try:
        assert "theirs" not in job.run("slurm-adapter", "jobs")
        (line,) = [
            one for one in job.run("slurm-adapter", "jobs", "--all").splitlines() if "theirs" in one
        ]
        assert line.split()[:2] == [number, "theirs"]
    finally:
        job.run("scancel", number)


def test_what_slurm_has_forgotten_is_in_the_record(job: User) -> None:
    """As after MinJobAge on a site without accounting."""
    job.write("go", "")
    with followed(job, "sbatch", "-N", "3", "--follow", *arguments(job, 5)) as seen:
        assert seen.end() == 5
        number = seen.out.split()[3]
    record = Path(f"/home/ada/.local/state/slurm-adapter/batch/{number}.json")
    there = job.cluster.outside(record)
    assert there.stat().st_mode & 0o777 == 0o600
    assert '"state": "FAILED"' in there.read_text()
    env = {"PATH": f"{job.environment['PATH'].split(':')[0]}:/bin"}  # no Slurm is asked
    assert "ended 5: FAILED" in job.run("slurm-adapter", "jobs", env=env)
    assert job.run("slurm-adapter", "logs", number).count("gone on") == 3


@pytest.mark.parametrize("command", ["logs", "stop"])
def test_an_unknown_job_is_told(user: User, command: str) -> None:
    done = user.cluster.run(
        ["slurm-adapter", command, "4711"], cwd=str(user.folder), env=user.environment
    )
    assert done.returncode == 2
    assert "job 4711 was not submitted by slurm-adapter from here" in done.stderr

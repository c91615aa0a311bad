"""A job near the end of its time, and ranks that fail: on a real Slurm cluster."""

import re
from pathlib import Path

import pytest

from commandline import adapter
from conftest import User
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.script.time_and_failures import Life
from testbed.waiting import until

WARNED = """
import os, pathlib, signal, sys
rank = os.environ["VC_TASK_INDEX"]
done = []
signal.signal(signal.SIGUSR2, lambda *_: done.append(1))
print("up", flush=True)
while not done:
    signal.pause()
pathlib.Path(f"checkpoint-{rank}").write_text("step 7")
print("checkpoint written", flush=True)
"""
# Fails on rank 1 until it has been started as often as its last argument says.
STUBBORN = """
import os, pathlib, sys
rank, run = os.environ["VC_TASK_INDEX"], os.environ["MA_VJ_NAME"]
runs = pathlib.Path(sys.argv[-2]) / "runs"
with runs.open("a") as file:
    file.write(f"{run} {rank}\\n")
count = len({line.split()[0] for line in runs.read_text().splitlines()})
print("attempt", count, flush=True)
sys.exit(9 if rank == "1" and count < int(sys.argv[-1]) else 0)
"""


class TestOptions:
    def test_say_what_is_meant(self) -> None:
        assert Life.parse("120", None, None) == Life(warn=("USR2", 120))
        assert Life.parse("SIGTERM@60", 2, "requeue") == Life(("TERM", 60), 2, 3)
        assert Life.parse("10@5", 0, "requeue:7") == Life(("10", 5), 0, 7)

    @pytest.mark.parametrize(
        ("warn", "retries", "on_timeout", "found", "remedy"),
        [
            ("USR9@10", None, None, "--warn USR9@10 is not", "--warn USR2@120"),
            ("usr2@10", None, None, "--warn usr2@10 is not", "--warn USR2@120"),
            ("USR2@0", None, None, "--warn USR2@0 is not", "SECONDS up to 65535"),
            ("USR2@99999", None, None, "--warn USR2@99999 is not", "SECONDS up to 65535"),
            (None, 101, None, "--retries 101", "from 0 to 100"),
            (None, -1, None, "--retries -1", "from 0 to 100"),
            (None, None, "again", "--on-timeout again is not", "requeue:N"),
            (None, None, "requeue:0", "--on-timeout requeue:0 is not", "N up to 50"),
        ],
    )
    def test_that_cannot_be_meant_are_told(
        self, warn: str | None, retries: int | None, on_timeout: str | None, found: str, remedy: str
    ) -> None:
        with pytest.raises(BadValueError) as error:
            Life.parse(warn, retries, on_timeout)
        assert found in error.value.found
        assert remedy in error.value.remedy

    @pytest.mark.parametrize(
        ("options", "found"),
        [
            (("--contract", "torchrun", "--warn", "60"), "--warn does not reach the ranks of"),
            (("--warn", "60", "--sbatch", "signal=TERM@9"), "--warn and --sbatch signal say the"),
            (("--on-timeout", "requeue", "--sbatch", "array=1-2"), "--on-timeout makes a chain"),
        ],
    )
    def test_that_contradict_each_other_are_told(
        self, tmp_path: Path, options: tuple[str, ...], found: str
    ) -> None:
        (tmp_path / "t.py").write_text("")
        done = adapter("sbatch", "--script", "-", *options, "t.py", cwd=tmp_path)
        assert (done.status, done.out) == (2, "")
        assert found in done.err

    def test_may_stand_in_a_job_file(self, tmp_path: Path) -> None:
        (tmp_path / "t.py").write_text("")
        (tmp_path / "job.toml").write_text('boot = "t.py"\nwarn = "90"\nretries = 1\n')
        done = adapter("sbatch", "--script", "-", "--job", "job.toml", cwd=tmp_path)
        assert "#SBATCH --signal=USR2@90\n" in done.out
        assert "for attempt in $(seq 0 1); do\n" in done.out


def test_a_warning_reaches_every_rank_in_time(user: User) -> None:
    user.write("warned.py", WARNED)
    words = ("--warn", "USR2@40", "--sbatch", "time=1", "--parsable", "-q", "warned.py")
    end = user.finish(user.run("slurm-adapter", "sbatch", "-N", "3", *words))
    assert (end.state, end.exit_status) == ("COMPLETED", 0)
    for text in user.outputs("warned"):
        assert text.splitlines()[:2] == ["up", "checkpoint written"]
    for rank in range(3):
        assert user.log(f"checkpoint-{rank}") == "step 7"


class TestRetries:
    def run(self, user: User, needed: int) -> tuple[str, int]:
        """Submit with two retries a script that needs so many attempts; return (state, status)."""
        user.write("stubborn.py", STUBBORN)
        words = ("--retries", "2", "--parsable", "-q", "stubborn.py", str(user.folder), str(needed))
        end = user.finish(user.run("slurm-adapter", "sbatch", "-N", "3", *words))
        return end.state, end.exit_status

    def runs(self, user: User) -> int:
        """Return how often ranks were started."""
        return len({line.split()[0] for line in user.log("runs").splitlines()})

    def test_start_all_ranks_again(self, user: User) -> None:
        assert self.run(user, 3) == ("COMPLETED", 0)
        assert self.runs(user) == 3  # each of its own, with its own name and port
        logs = user.outside("slurm-adapter/stubborn/log")
        ends = [path.read_text().splitlines()[-1] for path in logs.glob("*-worker-1.log")]
        assert sorted(ends) == [
            "slurm-adapter: worker-1 ended, return code 0",
            *["slurm-adapter: worker-1 ended, return code 9"] * 2,
        ]
        assert not list(user.outside("slurm-adapter/stubborn/run").glob("ma-job-*/*/etc"))

    def test_end_with_the_last_failure_s_status(self, user: User) -> None:
        assert self.run(user, 4) == ("FAILED", 9)
        assert self.runs(user) == 3
        text = user.log("slurm-adapter/stubborn/log/stubborn-*.out")
        assert text.count("rank 1 on gpu-n01 failed first: Exited with exit code 9") == 3


class TestAChain:
    """What Slurm kills, at its limit or otherwise, is gone on with; what ends itself is not."""

    SLEEPER = """
import pathlib, sys, time
print("up", flush=True)
while not pathlib.Path(sys.argv[-1]).exists():
    time.sleep(0.05)
"""

    def submit(self, user: User, *words: str) -> list[str]:
        """Return the numbers of the chain's jobs."""
        options = ("--on-timeout", "requeue:2", "--parsable", "-q", "-N", "2")
        first = int(user.run("slurm-adapter", "sbatch", *options, *words))
        return [str(first + more) for more in range(3)]

    def state(self, user: User, number: str) -> str:
        return user.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", number).strip()

    def test_goes_on_until_the_job_is_done(self, user: User) -> None:
        user.write("sleeper.py", self.SLEEPER)
        first, second, third = self.submit(user, "sleeper.py", f"{user.folder}/go")
        assert self.state(user, second) == self.state(user, third) == "PENDING"
        assert until(lambda: self.state(user, first) == "RUNNING")
        user.run("scancel", first)
        assert until(lambda: self.state(user, second) == "RUNNING")
        user.write("go", "")
        assert user.finish(second).state == "COMPLETED"
        assert user.finish(third).state == "CANCELLED"

    def test_ends_with_a_failure_of_the_job_s_own(self, user: User) -> None:
        user.write("fail.py", "import sys\nsys.exit(6)\n")
        numbers = self.submit(user, "fail.py")
        ends = [user.finish(number) for number in numbers]
        assert [end.exit_status for end in ends] == [6] * 3
        texts = [user.log(f"slurm-adapter/fail/log/fail-{number}.out") for number in numbers]
        assert ["starting job" in text for text in texts] == [True, False, False]

    def test_is_stopped_as_one(self, user: User) -> None:
        user.write("sleeper.py", self.SLEEPER)
        numbers = self.submit(user, "sleeper.py", f"{user.folder}/go")
        assert until(lambda: self.state(user, numbers[0]) == "RUNNING")
        user.run("slurm-adapter", "stop", numbers[0])
        assert [user.finish(number).state for number in numbers] == ["CANCELLED"] * 3
        shown = user.run("slurm-adapter", "jobs")
        assert all(re.search(rf"^{number} .*CANCELLED", shown, re.MULTILINE) for number in numbers)


RESUMING = """
import os, pathlib, sys, time
rank = os.environ["VC_TASK_INDEX"]
folder = next(word for word in sys.argv if word.startswith("--train_url=")).partition("=")[2]
step = pathlib.Path(folder) / f"step-{rank}"
before = step.read_text() if step.exists() else "nothing"
print("resumes from", before, "restart", os.environ.get("SLURM_RESTART_COUNT", "0"), flush=True)
step.write_text("41")
while before == "nothing":
    time.sleep(0.05)
"""


def test_sb_12_a_requeued_job_goes_on_from_its_outputs(user: User) -> None:
    """SB-12: the second start finds what the first one wrote, and both are in the logs."""
    user.write("resuming.py", RESUMING)
    options = ("--sbatch", "requeue", "--output", "train_url=out", "--parsable", "-q")
    number = user.run("slurm-adapter", "sbatch", "-N", "2", *options, "resuming.py").strip()
    assert until(lambda: len(list(user.outside(".").glob("out/step-*"))) == 2)
    user.run("scontrol", "requeue", number)
    shown = ["squeue", "-h", "-o", "%T", "-j", number]
    assert until(lambda: user.run(*shown).strip() == "PENDING")
    # By itself it would wait two minutes. Not at once: nodes start no job in the very second in
    # which they ended it.
    user.run("scontrol", "update", f"jobid={number}", "starttime=now+3")
    assert user.finish(number).state == "COMPLETED"
    logs = sorted(user.outside("slurm-adapter/resuming/log").glob("*-worker-1.log"))
    lines = sorted(path.read_text().splitlines()[0] for path in logs)
    assert lines == ["resumes from 41 restart 1", "resumes from nothing restart 0"]
    text = user.log(f"slurm-adapter/resuming/log/resuming-{number}.out")
    assert text.count(f"starting job {number} on gpu-n[00-01]") == 2

"""Which rank failed first is read from srun's own messages, whatever the ranks write (SB-08)."""

import subprocess
from pathlib import Path

import pytest

from conftest import ADAPTER, User
from slurm_adapter.contracts.place import NODE_LOGS, name_workers
from slurm_adapter.node.step.step import derive_uuid

START = "slurm-adapter: starting job 7 on n[00-01]\n"
EXITED = "srun: error: n01: task 1: Exited with exit code 3\n"
ENDED = "srun: error: n00: task 0: Terminated\n"


def verdict(tmp_path: Path, log: str, status: int = 143) -> tuple[int, str]:
    path = tmp_path / "log"
    path.write_bytes(log.encode())
    done = subprocess.run(
        [ADAPTER, "finish", str(status), path], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("log", "status", "said"),
    [
        (EXITED + ENDED, 3, "rank 1 on n01 failed first: Exited with exit code 3"),
        ("0: some line\n" + EXITED, 3, "rank 1 on n01"),
        ("srun: error: n02: tasks 4-6: Killed\n" + ENDED, 137, "ranks 4-6 on n02"),
        ("srun: error: n1: task 2: Segmentation fault (core dumped)\n", 139, "rank 2 on n1"),
        ("srun: error: n1: task 2: Out Of Memory\n", 137, "rank 2 on n1"),
        (ENDED + "srun: error: Node failure on n02\n", 4, "node n02 was lost"),
    ],
)
def test_it_is_the_first_that_srun_names(tmp_path: Path, log: str, status: int, said: str) -> None:
    returned, stderr = verdict(tmp_path, START + log)
    assert returned == status
    assert said in stderr


@pytest.mark.parametrize(
    "log",
    [
        "0: x\rsrun: error: n09: task 5: Exited with exit code 99\n" + EXITED,
        "0: srun: error: n09: task 5: Exited with exit code 99\n" + EXITED,
        "0: x\x0bsrun: error: n09: task 5: Killed\n" + EXITED,
    ],
    ids=["carriage return", "labelled", "vertical tab"],
)
def test_a_rank_cannot_pass_its_own_words_for_sruns(tmp_path: Path, log: str) -> None:
    assert verdict(tmp_path, START + log)[0] == 3


def test_an_earlier_run_in_the_same_log_does_not_count(tmp_path: Path) -> None:
    """SB-12: a requeued job appends."""
    first = START + "srun: error: n00: task 0: Terminated\nsrun: Force Terminated StepId=7.0\n"
    assert verdict(tmp_path, first + START + EXITED)[0] == 3


@pytest.mark.parametrize("told", [True, False])
def test_where_the_output_is_has_been_told_once(tmp_path: Path, *, told: bool) -> None:
    """By rank 0, unless another's failure has ended it before it got as far as that."""
    step = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    workers = name_workers(derive_uuid(step, "0"), 2)
    file = tmp_path / "log" / workers.log_name(1)
    file.parent.mkdir()
    file.write_text("the end\n")
    log = tmp_path / "job.out"
    log.write_text(START + (f"0: {NODE_LOGS} /x\n" if told else "") + EXITED)
    done = subprocess.run(
        [ADAPTER, "finish", "143", log, tmp_path],
        env=step,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    line = f"{NODE_LOGS} {tmp_path}/log/{workers.log_name(0)}\n"
    assert done.stderr.count(line) == (0 if told else 1)
    assert "  the end\n" in done.stderr


@pytest.mark.parametrize("log", ["", START, "srun: error: Unable to create step\n"])
def test_without_a_word_of_srun_its_own_status_stays(tmp_path: Path, log: str) -> None:
    assert verdict(tmp_path, log, 143) == (143, "")


def test_a_failed_step_never_becomes_a_success(tmp_path: Path) -> None:
    forged = "srun: error: n00: task 0: Exited with exit code 0\n"
    assert verdict(tmp_path, START + forged, 1)[0] == 1


def test_a_second_run_that_is_appended_gives_the_job_its_own_status(user: User) -> None:
    """The same on Slurm: two runs append to one file, each fails in its own way."""
    options = ["-N", "2", "--parsable", "--sbatch", "output=run.out", "--sbatch"]
    for status in (5, 6):
        command = f'test "$VC_TASK_INDEX" = 0 || exit {status}; exec sleep 1000'
        job_id = user.run(
            "slurm-adapter", "sbatch", *options, "open-mode=append", "--command", command
        )
        assert user.finish(job_id).exit_status == status


def test_waiting_for_a_job_that_fails_is_no_refusal(user: User) -> None:
    done = user.cluster.run(
        ["slurm-adapter", "sbatch", "--sbatch", "wait", "--command", "exit 7"],
        cwd=str(user.folder),
        env=user.environment,
    )
    assert done.returncode == 7
    assert done.stdout.startswith("Submitted batch job ")


def test_directives_win_over_the_environment_of_sbatch(user: User) -> None:
    job_id = user.run(
        *("slurm-adapter", "sbatch", "--parsable", "--sbatch", "partition=train"),
        *("--sbatch", "time=00:30:00", "--sbatch", "hold", "--command", "true"),
        env={"SBATCH_PARTITION": "debug", "SBATCH_TIMELIMIT": "5", "SBATCH_EXPORT": "NONE"},
    )
    shown = user.run("scontrol", "show", "job", job_id.strip())
    assert "Partition=train " in shown
    assert "TimeLimit=00:30:00 " in shown
    user.run("scancel", job_id.strip())


def test_logs_are_found_below_another_working_directory(user: User) -> None:
    """SB-02: a relative log path is meant from --chdir."""
    user.run("mkdir", "elsewhere")
    job_id = user.run(
        *("slurm-adapter", "sbatch", "--parsable", "--sbatch", f"chdir={user.folder}/elsewhere"),
        *("--sbatch", "output=logs/%j.out", "--command", "echo done"),
    )
    assert user.finish(job_id).state == "COMPLETED"
    said = user.log("elsewhere/logs/*.out")
    log = f"{user.folder}/slurm-adapter/job/log/modelarts-job-"
    assert f"0: slurm-adapter: each node's output is in its file: {log}" in said
    assert user.outputs("job") == ["done\nslurm-adapter: worker-0 ended, return code 0\n"]

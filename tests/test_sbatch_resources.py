"""What a job asks Slurm for arrives there: GPUs in the site's way, whole nodes, requeueing."""

import pytest

from conftest import User


@pytest.mark.parametrize(
    ("option", "asked"),
    [("gpus-per-node", "gres:gpu:2"), ("gres", "gres:gpu:2"), ("none", "")],
)
def test_sb_06_gpus_arrive_as_they_are_asked_for(user: User, option: str, asked: str) -> None:
    job = user.run(
        *("slurm-adapter", "sbatch", "--parsable", "-N", "2", "--gpus-per-node", "2"),
        *("--gpu-option", option, "--command", 'echo "$MA_NUM_GPUS GPUs"'),
    ).strip()
    assert user.finish(job).state == "COMPLETED"
    shown = user.run("scontrol", "show", "job", job)
    assert f"TresPerNode={asked}\n" in shown if asked else "TresPerNode" not in shown
    count = 2 if asked else 0
    assert [log.partition("\n")[0] for log in user.outputs("job")] == [f"{count} GPUs"] * 2


@pytest.mark.parametrize(("options", "said"), [([], "OK"), (["--exclusive"], "NO")], ids=str)
def test_whole_nodes_are_nobody_elses(user: User, options: list[str], said: str) -> None:
    job = user.run(
        *("slurm-adapter", "sbatch", "--parsable", "--sbatch", "hold", *options),
        *("--command", "true"),
    ).strip()
    assert f"OverSubscribe={said} " in user.run("scontrol", "show", "job", job)
    user.run("scancel", job)


def test_sb_12_a_requeued_job_keeps_its_first_log(user: User) -> None:
    command = 'echo "run ${SLURM_RESTART_COUNT-first}"; test "$SLURM_RESTART_COUNT" && exit;'
    command += ' scontrol requeue "$SLURM_JOB_ID"; exec sleep 1000'
    job = user.run(
        *("slurm-adapter", "sbatch", "--parsable", "--requeue", "--sbatch", "output=run.out"),
        *("--contract", "env", "--gpus-per-node", "0", "--command", command),
    )
    assert user.finish(job).state == "COMPLETED"
    shown = [line for line in user.log("run.out").splitlines() if "run" in line.split()]
    assert shown == ["0: run first", "0: run 1"]
    assert user.log("run.out").count("slurm-adapter: starting job ") == 2

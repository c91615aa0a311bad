"""Unchanged ModelArts scripts finish a real all-reduce on three nodes of a real Slurm cluster."""

from pathlib import Path

import pytest

from conftest import ADAPTER, User

SCRIPTS = Path(__file__).parent / "scripts"

# name -> (files, boot file or command, its arguments, what every process must print)
KINDS = {
    "node_level": (["node_level.py"], "node_level.py", ["--expect", "6"], "sum 6.0", 3),
    "spawn": (["spawn.py"], "spawn.py", ["--expect", "21"], "sum 21.0", 6),
    "torchrun": (["torchrun.sh", "reduce.py"], "torchrun.sh", [], "sum 21.0", 6),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, user: User) -> str:
    name: str = request.param
    for file in KINDS[name][0]:
        user.write(file, (SCRIPTS / file).read_text())
    return name


def test_through_slurm_adapter_sbatch(user: User, kind: str) -> None:
    _, program, arguments, line, count = KINDS[kind]
    options = ["-N", "3", "--gpus-per-node", "4", "--env", "EXPECT=21", "--parsable", "--name", "t"]
    if program.endswith(".py"):
        job_id = user.run("slurm-adapter", "sbatch", *options, program, *arguments)
    else:
        command = 'bash "$WORKSPACE/torchrun.sh"'
        job_id = user.run("slurm-adapter", "sbatch", *options, "--command", command)
    end = user.finish(job_id)
    text = "".join((user.log("slurm-adapter/t/log/t-*.out"), *user.outputs("t")))
    assert (end.state, text.count(line)) == ("COMPLETED", count), text


@pytest.mark.parametrize(
    ("kind", "call", "line", "count"),
    [
        ("node_level", "exec --boot node_level.py -- --expect 3", "sum 3.0", 2),
        ("torchrun", "exec -- bash torchrun.sh", "sum 10.0", 4),
    ],
    indirect=["kind"],
)
def test_through_a_batch_file_written_by_hand(
    user: User, kind: str, call: str, line: str, count: int
) -> None:
    del kind
    user.write(
        "by hand.sbatch",
        "#!/bin/bash\n"
        "#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:4 --output=hand.out\n"
        "export EXPECT=10\n"
        f"srun slurm-adapter {call}\n",
    )
    end = user.finish(user.run("sbatch", "--parsable", "by hand.sbatch"))
    text = user.log("hand.out")
    assert (end.state, text.count(line)) == ("COMPLETED", count), text


def test_nothing_is_set_that_does_not_exist_on_modelarts(user: User) -> None:
    user.write("hygiene.py", (SCRIPTS / "hygiene.py").read_text())
    job_id = user.run(
        *("slurm-adapter", "sbatch", "-N", "3", "--parsable", "hygiene.py"),
        env={"MASTER_ADDR": "elsewhere", "RANK": "7", "WORLD_SIZE": "9", "NNODES": "2"},
    )
    assert user.finish(job_id).state == "COMPLETED"
    assert user.outputs("hygiene") == [
        f"found []\nslurm-adapter: worker-{index} ended, return code 0\n" for index in range(3)
    ]


def test_the_env_contract_starts_a_rank_for_each_gpu(user: User) -> None:
    user.write("meet.py", (SCRIPTS / "meet.py").read_text())
    job_id = user.run(
        *("slurm-adapter", "sbatch", "-N", "3", "--gpus-per-node", "2", "--contract", "env"),
        *("--parsable", "meet.py"),
    )
    assert user.finish(job_id).state == "COMPLETED"
    lines = user.log("slurm-adapter/meet/log/*.out").splitlines()
    assert sorted(line for line in lines if ": rank " in line) == [
        f"{rank}: rank {rank} of 6, local {rank % 2} of 2: 21" for rank in range(6)
    ]


def test_exec_leaves_no_process_of_ours_in_the_step(user: User) -> None:
    seen = user.run(
        *("srun", "-N", "1", "slurm-adapter", "exec", "--"),
        *("sh", "-c", 'tr "\\0" " " < /proc/$PPID/cmdline; echo; ps -o args= --ppid $$'),
    )
    parent, *children = seen.splitlines()
    assert parent.startswith("slurmstepd: ")
    assert [child for child in children if "slurm-adapter" in child] == []


@pytest.mark.parametrize("where", ["batch", "salloc"])
def test_a_shell_of_the_job_is_not_a_rank(user: User, where: str) -> None:
    """SL-07, SL-08: it would be one rank of several that nobody starts."""
    typed = [str(ADAPTER), "exec", "--boot", "train.py", "--", "--epochs", "5 more"]
    user.write("train.py", "raise SystemExit('started')\n")
    if where == "salloc":
        done = user.cluster.run(["salloc", "-N2", *typed], cwd=str(user.folder))
        said, status = done.stderr, done.returncode
    else:
        user.write("b.sh", '#!/bin/bash\n"$@"\n')
        job_id = user.run("sbatch", "--parsable", "-N2", "--output=b.out", "b.sh", *typed)
        end = user.finish(job_id)
        said, status = user.log("b.out"), end.exit_status
    assert status == 2
    assert "not a task of a step" in said
    assert "slurm-adapter exec --boot train.py -- --epochs '5 more'" in said


def test_left_over_variables_that_fit_by_chance_do_not_make_a_rank(user: User) -> None:
    """SL-07: a batch script of two tasks, submitted from a step of two tasks on the same nodes.

    Its variables describe a step down to the last one; the daemon above it tells the truth.
    """
    user.write("inner.sh", "#!/bin/bash\nslurm-adapter exec -- echo started\n", 0o755)
    user.write(
        "outer.sh",
        "#!/bin/bash\n((SLURM_PROCID)) || sbatch --parsable -N2 -n2 -o inner.out inner.sh\n",
        0o755,
    )
    job_id = user.run("srun", "-N2", "-n2", "--ntasks-per-node=1", "./outer.sh")
    assert user.finish(job_id).exit_status == 2
    said = user.log("inner.out")
    assert f"this runs under {job_id.strip()}.batch of Slurm" in said
    assert "started" not in said.splitlines()


def test_every_node_prints_the_same_identity(user: User) -> None:
    shown = user.run(
        *("srun", "-N3", "--ntasks-per-node=1", "slurm-adapter", "env", "--format", "dotenv")
    )
    lines = shown.splitlines()
    names = {line for line in lines if line.startswith("MA_VJ_NAME=")}
    indices = sorted(line for line in lines if line.startswith("VC_TASK_INDEX="))
    addresses = sorted(line for line in lines if line.startswith("MA_CURRENT_IP="))
    assert len(names) == 1
    assert indices == ['VC_TASK_INDEX="0"', 'VC_TASK_INDEX="1"', 'VC_TASK_INDEX="2"']
    assert addresses == [f'MA_CURRENT_IP="{user.cluster.addresses[n]}"' for n in user.cluster.nodes]


def test_sl_09_a_job_submitted_from_a_step_has_a_step_of_its_own(user: User) -> None:
    """SL-09, SB-04: what the outer step has left in the environment is not taken for the job's."""
    user.write(
        "tell.py", "import os\nprint(os.environ['MA_NUM_HOSTS'], os.environ['VC_TASK_INDEX'])\n"
    )
    inner = ("slurm-adapter", "sbatch", "-N", "2", "--parsable", "-q", "tell.py")
    number = user.run("srun", "-N1", *inner)
    end = user.finish(number)
    assert (end.state, end.exit_status) == ("COMPLETED", 0)
    assert [text.splitlines()[0] for text in user.outputs("tell")] == ["2 0", "2 1"]


def test_arrays_and_steps_at_once_get_different_ports(user: User) -> None:
    """MA-01: two arrays of two tasks and a job of two steps, none ends before all have begun."""
    user.write("meet/.here", "")
    folder = f"{user.folder}/meet"
    user.write(
        "meet.sh",
        f'touch "{folder}/${{MASTER_PORT}}_$SLURM_JOB_ID.$SLURM_STEP_ID.$SLURM_PROCID"\n'
        f'until [ "$(ls "{folder}" | wc -l)" = 12 ]; do sleep 0.1; done\n',
    )
    options = ["-N", "2", "--gpus-per-node", "0", "--contract", "env", "--parsable", "-q"]
    arrays = [
        user.run(
            *("slurm-adapter", "sbatch", *options, "--sbatch", "array=1-2", "--name", name),
            *("--command", f"sh '{user.folder}/meet.sh'"),
        ).strip()
        for name in ("one", "two")
    ]
    step = f"srun --exact -N2 -n2 slurm-adapter exec --contract env -- sh '{user.folder}/meet.sh' &"
    user.write("steps.sh", f"#!/bin/bash\n#SBATCH -N2 --ntasks-per-node=2\n{step}\n{step}\nwait\n")
    steps = user.run("sbatch", "--parsable", "steps.sh")
    for job_id in (*(f"{array}_{task}" for array in arrays for task in (1, 2)), steps):
        assert user.finish(job_id).state == "COMPLETED"
    met = [path.name.split("_") for path in user.outside("meet").glob("[0-9]*")]
    ports: dict[str, set[str]] = {}
    for port, rank in met:
        ports.setdefault(rank.rpartition(".")[0], set()).add(port)
    assert len(ports) == 6
    assert len(set().union(*ports.values())) == 6, ports

"""A step read from a task's variables is the one that Slurm itself ran.

`recordings/slurm-22.05.json` holds the SLURM_* variables and CUDA_VISIBLE_DEVICES of real tasks
and shells, by kind of start, each kind with the command that made it. SLURM_PROCID and
SLURMD_NODENAME of all tasks together say what happened; each task alone must know it.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from slurm_adapter import Step, read_step
from slurm_adapter.errors import NotAStepError, StepError

KINDS: dict[str, Any] = json.loads(
    Path(__file__).with_name("recordings").joinpath("slurm-22.05.json").read_text()
)
Task = dict[str, str]


def recorded_steps() -> dict[str, list[Task]]:
    steps: dict[str, list[Task]] = {}
    for kind, recording in KINDS.items():
        for task in recording["tasks"]:
            name = f"{kind} {task['SLURM_JOB_ID']}.{task['SLURM_STEP_ID']}"
            steps.setdefault(name, []).append(task)
    return steps


STEPS = recorded_steps()
SHELLS = [
    pytest.param(shell, id=f"{kind} {number}")
    for kind, recording in KINDS.items()
    for number, shell in enumerate(recording["shells"])
]


def read_recorded(path: str) -> str:
    return str(next(kind["files"][path] for kind in KINDS.values() if "files" in kind))


@pytest.fixture(params=STEPS)
def tasks(request: pytest.FixtureRequest) -> list[Task]:
    """Give all tasks of one recorded step, in rank order."""
    return STEPS[request.param]


@pytest.fixture
def read(tasks: list[Task]) -> list[Step]:
    """Give what each of them reads."""
    return [read_step(task, read_recorded) for task in tasks]


class TestARecordedStep:
    def test_has_each_task_at_its_rank_and_on_its_node(
        self, tasks: list[Task], read: list[Step]
    ) -> None:
        assert [step.rank for step in read] == list(range(len(tasks)))
        assert [step.rank for step in read] == [int(task["SLURM_PROCID"]) for task in tasks]
        assert [step.node_index for step in read] == [int(task["SLURM_NODEID"]) for task in tasks]
        own = [step.nodes[step.node_index] for step in read]
        assert own == [task["SLURMD_NODENAME"] for task in tasks]

    def test_has_the_tasks_that_ran(self, tasks: list[Task], read: list[Step]) -> None:
        ran = Counter(task["SLURMD_NODENAME"] for task in tasks)
        for step in read:
            assert dict(zip(step.nodes, step.tasks_per_node, strict=True)) == ran
            assert step.local_size == ran[step.nodes[step.node_index]]
            assert step.world_size == sum(step.tasks_per_node) == len(tasks)

    def test_counts_local_ranks_up_from_0(self, tasks: list[Task], read: list[Step]) -> None:
        local_ranks: dict[str, list[int]] = {}
        for task, step in zip(tasks, read, strict=True):
            local_ranks.setdefault(task["SLURMD_NODENAME"], []).append(step.local_rank)
        assert local_ranks == {node: list(range(len(on))) for node, on in local_ranks.items()}

    def test_is_the_same_for_all_its_tasks(self, read: list[Step]) -> None:
        shared = {
            (step.nodes, step.tasks_per_node, step.world_size, step.master, step.label)
            for step in read
        }
        assert len(shared) == 1

    def test_has_its_master_where_rank_0_ran(self, tasks: list[Task], read: list[Step]) -> None:
        assert {step.master for step in read} == {tasks[0]["SLURMD_NODENAME"]}

    def test_orders_its_nodes_by_their_first_ranks(
        self, tasks: list[Task], read: list[Step]
    ) -> None:
        seen = list(dict.fromkeys(task["SLURMD_NODENAME"] for task in tasks))
        for step in read:
            assert [step.nodes[index] for index in step.node_order] == seen

    def test_is_named_by_its_job_and_step(
        self, request: pytest.FixtureRequest, read: list[Step]
    ) -> None:
        for step in read:
            assert f"step {request.node.callspec.params['tasks'].split()[1]}" == step.label
            assert (step.cluster_name, step.restart_count) == ("testbed", 0)


@pytest.mark.parametrize(
    ("step", "nodes", "tasks_per_node", "master"),
    [
        ("plain3 17.0", "gpu-n00 gpu-n01 gpu-n02", (1, 1, 1), "gpu-n00"),
        ("cyclic_exclusive 10.0", "gpu-n00 gpu-n01 gpu-n02", (3, 2, 2), "gpu-n00"),
        ("arbitrary 12.0", "gpu-n00 gpu-n01 gpu-n02", (2, 1, 2), "gpu-n02"),
        ("het2_reversed 5.0", "gpu-n02 gpu-n00 gpu-n01", (2, 2, 1), "gpu-n02"),
        ("het3_some 7.0", "gpu-n00 gpu-n02", (1, 1), "gpu-n00"),
        ("het_batch 1.0", "gpu-n00 gpu-n01 gpu-n02", (2, 2, 1), "gpu-n00"),
        ("het_batch_reversed 3.0", "gpu-n02 gpu-n00 gpu-n01", (1, 2, 2), "gpu-n02"),
        ("het_batch_reversed 3.1", "gpu-n00 gpu-n01", (2, 2), "gpu-n00"),
        ("partial_step 21.0", "gpu-n01 gpu-n02", (1, 1), "gpu-n01"),
        ("partial_step 21.1", "gpu-n00", (1,), "gpu-n00"),
        ("salloc_srun 20.0", "gpu-n00 gpu-n01", (3, 1), "gpu-n00"),
        ("batch_in_step 2.0", "gpu-n00 gpu-n01", (1, 1), "gpu-n00"),
    ],
)
def test_last_task_knows(
    step: str, nodes: str, tasks_per_node: tuple[int, ...], master: str
) -> None:
    last = read_step(STEPS[step][-1], read_recorded)
    assert last.nodes == tuple(nodes.split())
    assert last.tasks_per_node == tasks_per_node
    assert last.master == master


@pytest.mark.parametrize(
    ("step", "gpus"),
    [
        ("plain3 17.0", [None, None, None]),
        ("het2 1.0", [2, 2, 4, 4, 4]),
        ("het_batch 1.0", [2, 2, 2, 2, 1]),
        ("het_batch_reversed 3.0", [None, 2, 2, 2, 2]),
        ("gres_typed 22.0", [2, 2]),
        ("gpus_per_task 23.0", [4, 4, 4, 4]),
        ("two_steps_at_once 28.1", [2, 2]),
    ],
)
def test_gpus_are_those_of_the_step_on_the_tasks_own_node(
    step: str, gpus: list[int | None]
) -> None:
    assert [read_step(task).gpus_on_node for task in STEPS[step]] == gpus


class TestAnArbitraryDistribution:
    def test_tells_rank_0_alone_where_it_is(self) -> None:
        assert read_step(STEPS["arbitrary 12.0"][0]).master == "gpu-n02"

    @pytest.mark.parametrize("text", ["", "gpu-n00\ngpu-n01\n"], ids=["unreadable", "other nodes"])
    def test_needs_its_host_file_for_the_others(self, text: str) -> None:
        with pytest.raises(StepError, match="/home/ada/hostfile readable on every node"):
            read_step(STEPS["arbitrary 12.0"][1], lambda _: text)


class TestARecordedShell:
    @pytest.mark.parametrize("shell", SHELLS)
    def test_is_no_step_and_says_how_to_start_one(self, shell: Task) -> None:
        with pytest.raises(NotAStepError) as caught:
            read_step(shell)
        assert f"(job {shell['SLURM_JOB_ID']})" in caught.value.found
        nodes = shell.get("SLURM_JOB_NUM_NODES", "1")
        which = f"--nodes={nodes} --ntasks={nodes}"
        if "SLURM_HET_SIZE" in shell:
            which = f"--het-group={','.join(map(str, range(int(shell['SLURM_HET_SIZE']))))}"
        assert caught.value.remedy.startswith(
            f"srun {which} --kill-on-bad-exit=1 slurm-adapter exec "
        )

    @pytest.mark.parametrize(
        ("kind", "what"),
        [("batch_shell", "a batch script"), ("salloc_shell", "the shell of an allocation")],
    )
    def test_is_called_what_it_is(self, kind: str, what: str) -> None:
        with pytest.raises(NotAStepError, match=f"this is {what} "):
            read_step(KINDS[kind]["shells"][0])

    def test_submitted_from_a_step_is_known_by_the_left_over_variable(self) -> None:
        (shell,) = KINDS["batch_in_step"]["shells"]
        assert shell["SLURM_STEP_ID"] == "0"
        with pytest.raises(NotAStepError, match="SLURM_STEP_NUM_TASKS=3, but SLURM_NTASKS=2"):
            read_step(shell)

"""Cases from the field: what Slurm's variables looked like, and what is right to make of them."""

import pytest

from slurm_adapter import Argv, Cluster, Job, Node, make_plan, read_step
from slurm_adapter.cluster.counts import parse_tasks_per_node
from slurm_adapter.errors import NotAStepError, StepError
from slurm_adapter.plan import RankPlan
from slurm_adapter.record import replace

JOB = Job(program=Argv(("true",)), code="/c", folder="/f", contract="env")


def variables(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split())


def values(rank: RankPlan) -> dict[str, str]:
    return {setting.name: setting.value for setting in rank.settings}


class TestTasksPerNode:
    @pytest.mark.parametrize(
        ("text", "tasks"),
        [
            pytest.param("4(x2)", (4, 4), id="SL-05 1"),
            pytest.param("1(x2)", (1, 1), id="SL-05 2"),
            pytest.param("2(x3),1", (2, 2, 2, 1), id="SL-05 3"),
            pytest.param("4,1(x3)", (4, 1, 1, 1), id="SL-05 4"),
            pytest.param("2,1", (2, 1), id="SL-05 5"),
            pytest.param("40,8", (40, 8), id="SL-05 6"),
            pytest.param("1(x100000)", (1,) * 100_000, id="as many as ever"),
        ],
    )
    def test_are_run_lengths(self, text: str, tasks: tuple[int, ...]) -> None:
        assert parse_tasks_per_node(text) == tasks

    def test_sl_05_give_a_node_its_own_local_size(self) -> None:
        step = read_step(
            variables(
                "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-4] SLURM_NODEID=3"
                " SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_NTASKS=7 SLURM_PROCID=6 SLURM_LOCALID=0"
            )
        )
        assert (step.local_size, step.world_size) == (1, 7)

    def test_sl_05_add_up_to_the_first_rank_of_each_node(self) -> None:
        nodes = tuple(Node(f"n{i}", tasks=tasks) for i, tasks in enumerate((4, 1, 1, 1)))
        plan = make_plan(replace(JOB, nodes=4), Cluster(nodes, "step 12.0"))
        assert plan.first_ranks == (0, 4, 5, 6)
        shown = [values(rank) for rank in plan.ranks()]
        assert [rank["RANK"] for rank in shown] == list("0123456")
        assert [rank["LOCAL_RANK"] for rank in shown] == list("0123000")
        assert [rank["LOCAL_WORLD_SIZE"] for rank in shown] == list("4444111")
        assert [rank["NODE_RANK"] for rank in shown] == list("0000123")
        assert {rank["WORLD_SIZE"] for rank in shown} == {"7"}

    @pytest.mark.parametrize(
        "text",
        [
            *("", ",", "2,", "x", "-1", "0", "2(x0)", "2(x)", "2(3)", "2(x3", "2x3", "(x3)"),
            *("2(x3)1", "2(x3)(x2)", " 2", "2.0", "\u0662", "1(x100001)", "1(x999999999)"),
            "9" * 5000,
        ],
        ids=lambda text: ascii(text)[1:20],
    )
    def test_are_refused_when_broken(self, text: str) -> None:
        with pytest.raises(StepError, match="SLURM_STEP_TASKS_PER_NODE="):
            parse_tasks_per_node(text, "SLURM_STEP_TASKS_PER_NODE")

    @pytest.mark.parametrize("text", ["1(x3)", "1", "2(x2)", "x"])
    def test_are_refused_when_they_contradict_the_step(self, text: str) -> None:
        with pytest.raises(StepError):
            read_step(
                variables(
                    "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] SLURM_NTASKS=2"
                    f" SLURM_PROCID=0 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE={text}"
                )
            )


@pytest.mark.parametrize(
    ("text", "tasks_per_node", "rank", "node_index"),
    [
        pytest.param(
            "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] SLURM_NNODES=2"
            " SLURM_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 SLURM_NODEID=1 SLURM_LOCALID=0",
            (1, 1),
            1,
            1,
            id="SL-06 a",
        ),
        pytest.param(
            "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n1 SLURM_NTASKS=3"
            " SLURM_TASKS_PER_NODE=3 SLURM_PROCID=2 SLURM_NODEID=0 SLURM_LOCALID=2",
            (3,),
            2,
            0,
            id="SL-06 b",
        ),
        pytest.param(
            "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n1 SLURM_NTASKS_PER_NODE=4"
            " SLURM_STEP_TASKS_PER_NODE=1 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_NODEID=0"
            " SLURM_LOCALID=0",
            (1,),
            0,
            0,
            id="SL-06 c",
        ),
        pytest.param(
            "SLURM_JOB_ID=12 SLURM_JOB_NAME=interactive SLURM_STEP_ID=0 SLURM_PROCID=2"
            " SLURM_NTASKS=3 SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_STEP_NODELIST=n[1-2]"
            " SLURM_NODEID=1 SLURM_LOCALID=0",
            (2, 1),
            2,
            1,
            id="SL-08 b",
        ),
        pytest.param(
            "SLURM_JOB_ID=12 SLURM_JOB_NAME=bash SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1"
            " SLURM_STEP_TASKS_PER_NODE=1 SLURM_STEP_NODELIST=n1 SLURM_NODEID=0 SLURM_LOCALID=0",
            (1,),
            0,
            0,
            id="SL-08 c",
        ),
        pytest.param(
            "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_JOB_NODELIST=rk0n[01-02],rk1n01,solo"
            " SLURM_NODELIST=rk0n[01-02],rk1n01,solo SLURM_JOB_NUM_NODES=4 SLURM_NNODES=2"
            " SLURM_STEP_NODELIST=rk0n02,solo SLURM_TASKS_PER_NODE=1(x2) SLURM_NTASKS=2"
            " SLURM_PROCID=1 SLURM_NODEID=1 SLURM_LOCALID=0",
            (1, 1),
            1,
            1,
            id="SL-09",
        ),
    ],
)
def test_is_a_step_of(
    text: str, tasks_per_node: tuple[int, ...], rank: int, node_index: int
) -> None:
    step = read_step(variables(text))
    assert step.tasks_per_node == tasks_per_node
    assert step.world_size == sum(tasks_per_node)
    assert (step.rank, step.node_index) == (rank, node_index)


def test_sl_09_the_master_is_in_the_step_not_in_the_job() -> None:
    step = read_step(
        variables(
            "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_JOB_NODELIST=rk0n[01-02],rk1n01,solo"
            " SLURM_STEP_NODELIST=rk0n02,solo SLURM_NNODES=2 SLURM_TASKS_PER_NODE=1(x2)"
            " SLURM_NTASKS=2 SLURM_PROCID=1 SLURM_NODEID=1 SLURM_LOCALID=0"
        )
    )
    assert (step.nodes, step.master, step.world_size) == (("rk0n02", "solo"), "rk0n02", 2)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param(
            "SLURM_JOB_ID=12 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=4"
            " SLURM_NNODES=2 SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=2(x2)",
            r"a batch script \(job 12\), not a task of a step: it would be one process of 4",
            id="SL-07",
        ),
        pytest.param(
            "SLURM_JOB_ID=12 SLURM_JOB_NAME=interactive SLURM_JOB_NODELIST=n[1-2]",
            r"the shell of an allocation \(job 12\), not a task of a step",
            id="SL-08 a",
        ),
        pytest.param(
            f"SLURM_JOB_ID=12 SLURM_STEP_ID={0xFFFFFFFA} SLURM_STEP_NODELIST=n1 SLURM_NTASKS=1"
            " SLURM_STEP_TASKS_PER_NODE=1 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_LOCALID=0",
            "the interactive or batch shell",
            id="salloc's own shell step",
        ),
        pytest.param("RANK=0", "not started by Slurm", id="no Slurm at all"),
    ],
)
def test_is_not_a_step(text: str, what: str) -> None:
    with pytest.raises(NotAStepError, match=what) as caught:
        read_step(variables(text))
    assert caught.value.remedy.startswith("srun ")


class TestNodeListsWithoutScontrol:
    def test_sl_12_are_expanded(self) -> None:
        step = read_step(
            variables(
                "PATH=/nowhere SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[01-02]"
                " SLURM_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 SLURM_NODEID=1 SLURM_LOCALID=0"
            )
        )
        assert (step.nodes, step.master) == (("n01", "n02"), "n01")

    def test_sl_12_are_not_replaced_by_localhost(self) -> None:
        task = variables(
            "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_TASKS_PER_NODE=1(x2)"
            " SLURM_PROCID=1 SLURM_NODEID=1 SLURM_LOCALID=0"
        )
        with pytest.raises(StepError, match="none of SLURM_STEP_NODELIST, "):
            read_step(task)

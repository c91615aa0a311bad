"""How many GPUs a task may count on: cases SL-10 and SL-11."""

import pytest

from slurm_adapter import Argv, Job
from slurm_adapter.cluster.counts import count_gpus, gpus_on_node, visible_devices
from slurm_adapter.errors import StepError
from slurm_adapter.node.step.step import plan_rank

JOB = Job(program=Argv(("true",)), code="/c", folder="/f", contract="env")


def variables(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split())


class TestGpus:
    @pytest.mark.parametrize(
        ("text", "gpus"),
        [
            pytest.param("SLURM_GPUS_PER_NODE=a100:4 SLURM_GPUS_ON_NODE=4", 4, id="SL-10 a"),
            pytest.param("SLURM_GPUS_ON_NODE=2", 2, id="SL-10 b"),
            pytest.param("SLURM_GPUS_PER_NODE=a100:2,v100:2", 4, id="SL-10 c"),
            pytest.param("SLURM_GPUS_PER_NODE=8 SLURM_GPUS_ON_NODE=2", 2, id="the count first"),
            pytest.param("SLURM_STEP_GPUS=0-2,5 SLURM_JOB_GPUS=0-7", 4, id="the step's devices"),
            pytest.param("SLURM_JOB_ID=12", None, id="SL-10 never assumed"),
        ],
    )
    def test_are_counted(self, text: str, gpus: int | None) -> None:
        assert gpus_on_node(variables(text)) == gpus

    @pytest.mark.parametrize("text", ["a100", "a100:", "4,", "-1", "a100:4:x", "\u0664"])
    def test_are_not_guessed_from_a_broken_count(self, text: str) -> None:
        with pytest.raises(StepError, match="SLURM_GPUS_PER_NODE="):
            count_gpus(text, "SLURM_GPUS_PER_NODE")

    @pytest.mark.parametrize(
        ("devices", "count"),
        [
            pytest.param("0", 1, id="SL-11"),
            pytest.param("3", 1, id="SL-11 other"),
            ("0,1,2,3", 4),
            ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", 1),
            ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1", 2),
            ("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0,MIG-4f25-9", 2),
            ("", 0),
            ("NoDevFiles", 0),
            ("-1", 0),
        ],
    )
    def test_visible_to_a_task_are_counted(self, devices: str, count: int) -> None:
        found = visible_devices({"CUDA_VISIBLE_DEVICES": devices})
        assert found == ("CUDA_VISIBLE_DEVICES", count)

    def test_visible_through_another_vendors_variable_are_counted(self) -> None:
        assert visible_devices({"ASCEND_RT_VISIBLE_DEVICES": "4,5"}) == (
            "ASCEND_RT_VISIBLE_DEVICES",
            2,
        )
        assert visible_devices({}) is None

    @pytest.mark.parametrize(
        ("devices", "warned"),
        [
            pytest.param("0", True, id="SL-11"),
            pytest.param("3", True, id="SL-11 other"),
            pytest.param("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", True, id="SL-11 UUID"),
            pytest.param("MIG-4f25-9,MIG-4f25-10", True, id="SL-11 MIG"),
            pytest.param("0,1,2,3", False, id="all"),
        ],
    )
    def test_bound_to_single_tasks_are_warned_of(self, devices: str, *, warned: bool) -> None:
        task = variables(
            "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost SLURM_NODEID=0"
            " SLURM_STEP_TASKS_PER_NODE=4 SLURM_STEP_NUM_TASKS=4"
            f" SLURM_GPUS_ON_NODE=4 CUDA_VISIBLE_DEVICES={devices}"
        )
        for rank in ("0", "3"):
            ready = plan_rank(JOB, {**task, "SLURM_PROCID": rank, "SLURM_LOCALID": rank})
            given = {setting.name: setting.value for setting in ready.rank.settings}
            assert (given["LOCAL_RANK"], given["LOCAL_WORLD_SIZE"]) == (rank, "4")
            # Rank 0 warns for all.
            assert [f"CUDA_VISIBLE_DEVICES={devices}" in text for text in ready.warnings] == (
                [True] if warned and rank == "0" else []
            )

    def test_sl_11_bound_to_single_tasks_are_warned_of_with_the_ways_out(self) -> None:
        task = variables(
            "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost SLURM_NODEID=0"
            " SLURM_STEP_TASKS_PER_NODE=4 SLURM_STEP_NUM_TASKS=4 SLURM_GPUS_ON_NODE=4"
            " SLURM_PROCID=0 SLURM_LOCALID=0 CUDA_VISIBLE_DEVICES=0"
        )
        (warning,) = plan_rank(JOB, task).warnings
        for way in ("--gpus-per-node", "--gpu-bind=none", "--ranks-by node", "modulo"):
            assert way in warning

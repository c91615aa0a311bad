"""Cases from the field about where ranks meet: the port and the master, as MA-* in the field."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_adapter import Argv, Cluster, Job, Node, Plan, Run, make_plan, read_step
from slurm_adapter.cluster.slurm import derive_port
from slurm_adapter.errors import BadValueError
from slurm_adapter.node.step.step import plan_rank
from slurm_adapter.plan import RankPlan
from slurm_adapter.record import replace
from testbed import SlurmCluster

ADAPTER = Path(sys.executable).with_name("slurm-adapter")
JOB = Job(program=Argv(("true",)), code="/c", folder="/f", contract="env", view="off")
# One task of one on this machine; what a case is about is added to it.
ALONE = (
    "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost SLURM_NODEID=0"
    " SLURM_STEP_TASKS_PER_NODE=1 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0"
)


def variables(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split())


def values(rank: RankPlan) -> dict[str, str]:
    return {setting.name: setting.value for setting in rank.settings}


def plan_on(nodes: int, **changes: object) -> Plan:
    cluster = Cluster(tuple(Node(f"n{i:02}", tasks=1) for i in range(1, nodes + 1)), "step 12.0")
    return make_plan(replace(JOB, nodes=nodes, **changes), cluster, Run(port=23456))


def port_of(text: str, job: Job = JOB) -> int | None:
    return plan_rank(job, variables(f"{ALONE} {text}")).plan.run.port


class TestThePort:
    def test_ma_01_a_differs_between_jobs_with_the_same_last_digits(self) -> None:
        assert derive_port("4120001", "0") != derive_port("4130001", "0")

    def test_ma_01_b_differs_between_tasks_of_an_array(self) -> None:
        third = port_of("SLURM_JOB_ID=12 SLURM_ARRAY_JOB_ID=11 SLURM_ARRAY_TASK_ID=3")
        last = port_of("SLURM_JOB_ID=11 SLURM_ARRAY_JOB_ID=11 SLURM_ARRAY_TASK_ID=4")
        assert (third, last) == (10_012, 10_011)

    def test_ma_01_c_differs_between_steps_at_once(self) -> None:
        first = port_of("SLURM_JOB_ID=59 SLURM_STEP_ID=0")
        second = port_of("SLURM_JOB_ID=59 SLURM_STEP_ID=1")
        assert (first, second) == (10_059, 17_978)

    def test_ma_01_d_is_the_users_own(self) -> None:
        assert port_of("MASTER_PORT=23456") == 23_456
        assert port_of("MASTER_PORT=23456", replace(JOB, contract="modelarts")) == 23_456
        assert port_of("MASTER_PORT=23456", replace(JOB, port=29_400)) == 29_400

    def test_ma_01_d_is_the_one_that_all_variables_tell(self) -> None:
        own = replace(JOB, env={"MASTER_PORT": "23456"})
        told = values(plan_rank(own, variables(ALONE)).rank)
        assert told["MASTER_PORT"] == "23456"
        assert told["SLURM_ADAPTER_INIT_METHOD"] == "tcp://localhost:23456"

    @given(st.integers(1, 2**32), st.integers(0, 2**32 - 17))
    def test_ma_02_stays_below_the_ephemeral_range(self, job: int, step: int) -> None:
        assert 10_000 <= derive_port(str(job), str(step)) <= 32_767

    @given(st.integers(1, 2**32), st.integers(0, 2**32 - 17))
    def test_ma_02_differs_between_neighbours(self, job: int, step: int) -> None:
        port = derive_port(str(job), str(step))
        assert port != derive_port(str(job + 1), str(step))
        assert port != derive_port(str(job), str(step + 1))

    def test_ma_02_of_job_7913(self) -> None:
        assert derive_port("7913", "0") == 17_913


class TestTheMaster:
    def test_ma_06_is_the_node_of_rank_0_not_where_srun_runs(self) -> None:
        step = read_step(
            variables(
                "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[01-02] SLURM_NODEID=1"
                " SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 SLURM_LOCALID=0"
                " SLURM_LAUNCH_NODE_IPADDR=10.9.0.1"
            )
        )
        assert step.master == "n01"

    def test_ma_08_a_is_kept_where_the_user_names_it_rightly(self) -> None:
        plan = plan_on(2, env={"MASTER_ADDR": "n01", "MASTER_PORT": "23456"})
        for rank in plan.ranks():
            assert values(rank)["MASTER_ADDR"] == "n01"
            assert values(rank)["MASTER_PORT"] == "23456"

    def test_ma_08_b_is_not_another_node_of_the_step(self) -> None:
        with pytest.raises(BadValueError, match="MASTER_ADDR=n02, but rank 0 runs on n01"):
            plan_on(2, env={"MASTER_ADDR": "n02"})


class TestOnSlurm:
    """The same on a real cluster, whose names resolve: gpu-n00 is 10.77.0.10."""

    def ranks(self, slurm: SlurmCluster, env: dict[str, str]) -> list[dict[str, str]]:
        names = ("RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_LAUNCH_NODE_IPADDR")
        code = f"import os, json; print(json.dumps({{name: os.environ[name] for name in {names}}}))"
        show = [str(ADAPTER), "exec", "--contract", "env", "--", sys.executable, "-c", code]
        done = slurm.run(["srun", "--quiet", "-N2", *show], env=env)
        assert done.stderr == ""
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return sorted(found, key=lambda rank: str(rank["RANK"]))

    def test_ma_06_no_rank_is_sent_to_the_login_node(self, slurm: SlurmCluster) -> None:
        ranks = self.ranks(slurm, {})
        assert [rank["SLURM_LAUNCH_NODE_IPADDR"] for rank in ranks] == ["10.77.0.1"] * 2
        assert [rank["MASTER_ADDR"] for rank in ranks] == ["gpu-n00"] * 2

    @pytest.mark.parametrize("address", ["gpu-n00", "10.77.0.10"])
    def test_ma_08_a_the_users_values_are_kept(self, slurm: SlurmCluster, address: str) -> None:
        ranks = self.ranks(slurm, {"MASTER_ADDR": address, "MASTER_PORT": "23456"})
        assert [rank["MASTER_ADDR"] for rank in ranks] == [address] * 2
        assert [rank["MASTER_PORT"] for rank in ranks] == ["23456"] * 2

    @pytest.mark.parametrize("address", ["gpu-n01", "gpu-n02", "10.9.0.5"])
    def test_ma_08_b_a_wrong_master_stops_rank_0(self, slurm: SlurmCluster, address: str) -> None:
        step = ["srun", "-N2", str(ADAPTER), "exec", "--contract", "env", "--", "true"]
        done = slurm.run(step, env={"MASTER_ADDR": address})
        assert done.returncode == 2
        assert f"MASTER_ADDR={address}" in done.stderr
        assert "set it to gpu-n00." in done.stderr

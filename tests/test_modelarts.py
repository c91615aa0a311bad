"""What a script is told under the modelarts contract: variables and appended options."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm_adapter import Boot, Cluster, Command, Job, Node, Plan, Run, make_plan
from slurm_adapter.errors import StepError
from slurm_adapter.job.job import Channel
from slurm_adapter.plan import RankPlan
from slurm_adapter.record import replace

UUID = "a6b44790-ca10-4228-bc2d-0a05ccdd5420"
RUN = Run(uuid=UUID, port=29400, port_reason="given by you")
JOB = Job(
    program=Boot("/home/ada/gpu-train/train.py"),
    code="/home/ada/gpu-train",
    folder="/home/ada/slurm-adapter/train",
    args=("--epochs", "5"),
)


def plan(nodes: int, gpus: int | None, **changes: Any) -> Plan:
    members = tuple(
        Node(f"gpu{i:02}", address=f"10.77.0.{i}", gpus=gpus, tasks=1) for i in range(1, nodes + 1)
    )
    return make_plan(replace(JOB, nodes=nodes, **changes), Cluster(members, "step 12.0"), RUN)


def rank(plan: Plan, index: int) -> RankPlan:
    return plan.rank(index, index, 0)


def values(rank: RankPlan) -> dict[str, str]:
    return {setting.name: setting.value for setting in rank.settings}


class TestVariables:
    def test_of_node_1_of_3_with_4_gpus_each(self) -> None:
        assert values(rank(plan(3, 4), 1)) == {
            "MA_VJ_NAME": f"ma-job-{UUID}",
            "MA_TASK_NAME": "worker",
            "MA_CURRENT_INSTANCE_NAME": f"ma-job-{UUID}-worker-1",
            "HOSTNAME": f"ma-job-{UUID}-worker-1",
            "MA_NUM_HOSTS": "3",
            "MA_NUM_GPUS": "4",
            "VC_TASK_INDEX": "1",
            "VK_TASK_INDEX": "1",
            "VC_WORKER_NUM": "3",
            # The nodes' own names, where ranks have no view.
            "VC_WORKER_HOSTS": "gpu01,gpu02,gpu03",
            "MA_CURRENT_IP": "10.77.0.2",
            "MA_CURRENT_HOST_IP": "10.77.0.2",
            "MA_HOME": "/home/ada/slurm-adapter/train",
            "MA_MOUNT_PATH": "/home/ada/slurm-adapter/train/modelarts",
            "MA_JOB_DIR": "/home/ada",
            "WORKSPACE": "/home/ada/gpu-train",
            "MA_LOG_DIR": "/home/ada/slurm-adapter/train/log",
            "MA_SCRIPT_INTERPRETER": "",
            "SLURM_ADAPTER_INIT_METHOD": "tcp://gpu01:29400",
        }

    def test_md_01_tell_node_2_of_4_that_it_is_not_alone(self) -> None:
        told = values(rank(plan(4, 8), 2))
        assert told["MA_VJ_NAME"].startswith("ma-job-")
        assert told["MA_NUM_HOSTS"] == told["VC_WORKER_NUM"] == "4"
        assert told["VC_TASK_INDEX"] == "2"
        assert told["MA_NUM_GPUS"] == "8"
        assert told["MA_TASK_NAME"] == "worker"
        assert told["VC_WORKER_HOSTS"] == "gpu01,gpu02,gpu03,gpu04"

    def test_md_02_name_each_of_16_nodes_by_one_whole_name(self) -> None:
        told = [values(one) for one in plan(16, 8).ranks()]
        names = [one["MA_CURRENT_INSTANCE_NAME"] for one in told]
        assert told[10]["HOSTNAME"] == f"ma-job-{UUID}-worker-10"
        assert [i for i, name in enumerate(names) if name == told[10]["HOSTNAME"]] == [10]
        assert [one["HOSTNAME"].rpartition("-")[2] for one in told] == [*map(str, range(16))]

    def test_md_03_a_are_all_there_on_a_single_node(self) -> None:
        cluster = Cluster((Node("n1", gpus=8, tasks=1),), "step 12.0")
        told = values(rank(make_plan(JOB, cluster, RUN), 0))
        names = ("MA_NUM_HOSTS", "VC_TASK_INDEX", "MA_NUM_GPUS", "VC_WORKER_HOSTS")
        assert [told[name] for name in names] == ["1", "0", "8", "n1"]

    def test_md_03_give_0_gpus_on_a_cpu_node(self) -> None:
        assert values(rank(plan(1, 0), 0))["MA_NUM_GPUS"] == "0"

    def test_are_placeholders_before_the_run_is_known(self) -> None:
        cluster = Cluster((Node("<node 0>", tasks=1),), "the allocation", known=False)
        shown = {one.name: one for one in rank(make_plan(JOB, cluster), 0).settings}
        assert shown["MA_VJ_NAME"].value == "ma-job-<uuid>"
        unknown = {name for name, one in shown.items() if not one.known}
        assert unknown == {
            *("MA_VJ_NAME", "MA_CURRENT_INSTANCE_NAME", "HOSTNAME", "VC_WORKER_HOSTS"),
            *("MA_NUM_GPUS", "MA_CURRENT_IP", "MA_CURRENT_HOST_IP", "SLURM_ADAPTER_INIT_METHOD"),
        }


class TestArguments:
    @pytest.mark.parametrize(
        ("nodes", "gpus", "appended"),
        [
            (1, 0, ""),
            (1, 1, ""),
            (1, 8, "--init_method tcp://gpu01:29400"),
            (2, 0, "--init_method tcp://gpu01:29400 --rank 1 --world_size 2"),
            (2, 1, "--init_method tcp://gpu01:29400 --rank 1 --world_size 2"),
            (2, 8, "--init_method tcp://gpu01:29400 --rank 1 --world_size 2"),
            (3, 8, "--init_method tcp://gpu01:29400 --rank 2 --world_size 3"),
        ],
    )
    def test_follow_the_mode(self, nodes: int, gpus: int, appended: str) -> None:
        words = rank(plan(nodes, gpus), nodes - 1).words
        boot = ["python", "/home/ada/gpu-train/train.py"]
        assert words == [*boot, *appended.split(), "--epochs", "5"]

    def test_come_first_then_channels_then_the_users_own(self) -> None:
        channels = {
            "inputs": (Channel("data_url", "/datasets/cifar 10"),),
            "outputs": (Channel("train_url", "/results"),),
        }
        told = rank(plan(1, 2, **channels), 0)
        assert told.words[2:] == [
            *("--init_method", "tcp://gpu01:29400"),
            *("--data_url=/datasets/cifar 10", "--train_url=/results"),
            *("--epochs", "5"),
        ]
        assert "data_url" not in values(told)

    def test_hold_no_channels_where_those_are_variables(self) -> None:
        told = rank(plan(1, 1, inputs=(Channel("data_url", "/d"),), channels_as="variable"), 0)
        assert told.words[2:] == ["--epochs", "5"]
        assert values(told)["data_url"] == "/d"

    def test_are_not_appended_to_a_boot_command(self) -> None:
        told = rank(plan(2, 8, program=Command('run.sh "$1"'), inputs=(Channel("d", "/d"),)), 1)
        assert told.words == ["/bin/sh", "-c", 'run.sh "$1"', "sh", "--epochs", "5"]
        assert told.cwd.value == "/home/ada/slurm-adapter/train"
        assert values(told)["d"] == "/d"

    def test_run_in_the_code_directory_with_the_jobs_interpreter(self) -> None:
        told = rank(plan(1, 1, python="/opt/conda/bin/python"), 0)
        assert (told.words[0], told.cwd.value) == ("/opt/conda/bin/python", "/home/ada/gpu-train")


REMOVED = (
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("NNODES", "NODE_RANK", "RANK_ID", "RANK_TABLE_FILE", "TORCHELASTIC_RUN_ID"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
    *("SLURM_NPROCS", "SLURM_NNODES", "SLURM_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_GTIDS"),
    *("SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_STEP_ID", "SLURM_STEPID"),
    *("SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
)
KEPT = (
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_JOB_NAME"),
    *("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_SUBMIT_DIR", "SLURM_ARRAY_TASK_ID"),
    *("SLURM_GPUS_ON_NODE", "SLURM_RESTART_COUNT", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES"),
    *("PATH", "LD_LIBRARY_PATH", "RANKS", "MY_RANK", "OMP_NUM_THREADS", "NCCL_DEBUG", "data_url"),
)
LAYOUT = ("PROCID", "LOCALID", "NODEID", "NTASKS", "NPROCS", "NNODES", "NODELIST", "TASKS_PER_NODE")


class TestTheEnvironment:
    @pytest.mark.parametrize("name", REMOVED)
    def test_loses(self, name: str) -> None:
        assert name not in rank(plan(2, 8), 1).environment({name: "7", "PATH": "/bin"})

    @pytest.mark.parametrize("name", KEPT)
    def test_keeps(self, name: str) -> None:
        assert rank(plan(2, 8), 1).environment({name: "7"})[name] == "7"

    def test_holds_the_variables_whatever_was_inherited(self) -> None:
        told = rank(plan(2, 8), 1)
        inherited = {"HOSTNAME": "gpu02", "MA_NUM_GPUS": "1", "RANK": "0"}
        assert told.environment(inherited) == values(told)

    def test_has_nothing_left_of_any_recorded_steps_layout(self) -> None:
        recordings = Path(__file__).with_name("recordings") / "slurm-22.05.json"
        told = rank(plan(2, 8), 1)
        left = {
            name
            for kind in json.loads(recordings.read_text()).values()
            for task in kind["tasks"]
            for name in told.environment(task)
            if name.startswith("SLURM_") and any(word in name for word in LAYOUT)
        }
        assert sorted(left) == []

    @pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID", "SLURM_STEP_ID", "HOSTNAME"])
    def test_has_what_the_user_wants_kept(self, name: str) -> None:
        assert rank(plan(2, 8, keep=(name,)), 1).environment({name: "7"})[name] == "7"

    @pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID", "MA_NUM_GPUS", "data_url"])
    def test_has_what_the_user_sets(self, name: str) -> None:
        told = rank(plan(2, 8, env={name: "7"}), 1)
        assert told.environment({name: "0"})[name] == "7"
        assert told.environment({})[name] == "7"


class TestThePlan:
    def test_is_refused_where_a_node_has_several_tasks(self) -> None:
        nodes = (Node("gpu01", tasks=1), Node("gpu02", tasks=4))
        with pytest.raises(StepError, match="gpu02 has 4 tasks in step 12") as caught:
            make_plan(replace(JOB, nodes=2), Cluster(nodes, "step 12.0"), RUN)
        assert caught.value.remedy.startswith("srun --nodes=2 --ntasks=2 slurm-adapter exec ")

    def test_masks_secrets(self) -> None:
        secrets = {"WANDB_API_KEY": "s3cret-1", "hf_token": "s3cret-2", "DB_PASSWORD": "s3cret-3"}
        document = plan(2, 8, env={**secrets, "WANDB_MODE": "offline"}).to_json()
        assert "s3cret" not in json.dumps(document)
        shown = {
            one["name"]: one["value"]
            for one in document["environment"]
            if one["reason"] == "set by you"
        }
        assert shown == {**dict.fromkeys(secrets, "********"), "WANDB_MODE": "offline"}

    def test_of_10_000_nodes_leaves_a_too_long_host_list_out(self) -> None:
        nodes = tuple(Node(f"gpu-node-{i:05}", gpus=8, tasks=1) for i in range(10_000))
        big = make_plan(replace(JOB, nodes=10_000), Cluster(nodes, "step 12.0"), RUN)
        last = rank(big, 9_999)
        assert last.words[2:8] == [
            *("--init_method", "tcp://gpu-node-00000:29400"),
            *("--rank", "9999", "--world_size", "10000"),
        ]
        assert values(last)["VC_TASK_INDEX"] == "9999"
        assert "VC_WORKER_HOSTS" not in values(last)
        assert [warning.partition(":")[0] for warning in big.warnings] == [
            "VC_WORKER_HOSTS is left out"
        ]

    def test_gives_a_host_list_exactly_as_long_as_linux_takes(self) -> None:
        longest = "n" * (128 * 1024 - len("VC_WORKER_HOSTS=") - 1)
        for name, fits in ((longest, True), (longest + "n", False)):
            made = make_plan(JOB, Cluster((Node(name, gpus=4, tasks=1),), "step 12.0"), RUN)
            assert ("VC_WORKER_HOSTS" in values(rank(made, 0))) is fits
            assert (made.warnings == ()) is fits
        subprocess.run(["/bin/true"], env={"VC_WORKER_HOSTS": longest}, check=True)
        with pytest.raises(OSError, match="Argument list too long"):
            subprocess.run(["/bin/true"], env={"VC_WORKER_HOSTS": longest + "n"}, check=True)

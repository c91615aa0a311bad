"""The torchrun contract: one torchrun on each node, told everything, starting the node's ranks."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from commandline import OWN_PORT, adapter, environment
from conftest import ADAPTER, User
from one_task import ALONE, FIRST_OF_TWO, refusal, run_in
from slurm_adapter import Argv, Boot, Cluster, Command, Job, Node, Plan, Run, make_plan
from slurm_adapter.errors import BadValueError, StepError
from slurm_adapter.job.job import Channel, Program
from slurm_adapter.node.step.step import plan_rank
from slurm_adapter.plan import RankPlan
from slurm_adapter.record import replace
from testbed.child import Child

SCRIPTS = Path(__file__).parent / "scripts"
UUID = "a6b44790-ca10-4228-bc2d-0a05ccdd5420"
RUN = Run(uuid=UUID, port=29400, port_reason="given by you")
JOB = Job(
    program=Boot("/code/train.py"),
    code="/code",
    folder="/job",
    contract="torchrun",
    args=("--epochs", "5"),
)
SHOW = """\
import json, os, sys
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID"
shown = {name: os.environ[name] for name in names.split()}
sys.stdout.write(json.dumps([sys.argv[1:], shown, sys.executable]) + "\\n")
"""
HOSTILE = ["--n", "3", "-h", "--help", "--", "", "a b", "two\nlines", "$$", "$local_rank"]
HOSTILE += ["it's ${local_rank} $HOME $", "--nnodes=9", "é\udcff", "*"]
OUTER = {
    "RANK": "7",
    "WORLD_SIZE": "9",
    "LOCAL_RANK": "3",
    "GROUP_RANK": "5",
    "MASTER_ADDR": "127.0.0.1",
    "TORCHELASTIC_RUN_ID": "outer",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "PET_NPROC_PER_NODE": "5",
    "PET_STANDALONE": "1",
    "PET_MODULE": "1",
    "PYTHON_EXEC": "/bin/false",
}


def plan(*gpus: int | None, **changes: Any) -> Plan:
    """Return a plan for nodes n1, n2, ... with so many GPUs each."""
    nodes = tuple(
        Node(f"n{i}", f"10.1.0.{i}", gpus=count, tasks=1) for i, count in enumerate(gpus, 1)
    )
    return make_plan(replace(JOB, nodes=len(nodes), **changes), Cluster(nodes, "step 12.0"), RUN)


def words(plan: Plan, node: int = 0) -> list[str]:
    return plan.rank(node, node, 0).words


def options(words: list[str]) -> dict[str, str]:
    """Return torchrun's options by name."""
    own = words[3 : words.index("--")]
    return {name: value for name, _, value in (word.partition("=") for word in own)}


def program(words: list[str]) -> list[str]:
    return words[words.index("--") + 1 :]


class TestTheCommandLine:
    def test_of_node_1_of_2_with_4_gpus_each(self) -> None:
        assert words(plan(4, 4), 1) == [
            *("python", "-m", "torch.distributed.run"),
            *("--nnodes=2", "--node-rank=1", "--nproc-per-node=4"),
            *("--rdzv-backend=static", f"--rdzv-id={UUID}"),
            *("--master-addr=n1", "--master-port=29400", "--local-addr=10.1.0.2"),
            *("--", "/code/train.py", "--epochs", "5"),
        ]

    @pytest.mark.parametrize(("gpus", "processes"), [(0, "1"), (1, "1"), (8, "8")])
    def test_has_a_process_for_each_gpu_or_one(self, gpus: int, processes: str) -> None:
        assert options(words(plan(gpus)))["--nproc-per-node"] == processes

    def test_is_for_each_node_by_its_own_gpus(self) -> None:
        uneven = plan(1, 4, 0)
        told = [options(words(uneven, node))["--nproc-per-node"] for node in range(3)]
        assert told == ["1", "4", "1"]
        assert uneven.script_ranks == (range(1), range(1, 5), range(5, 6))

    def test_is_run_by_the_jobs_own_interpreter(self) -> None:
        assert words(plan(2, python="/opt/conda/bin/python"))[0] == "/opt/conda/bin/python"

    def test_has_channels_before_the_users_own_arguments(self) -> None:
        told = words(plan(2, inputs=(Channel("data_url", "/d"),)))
        assert program(told) == ["/code/train.py", "--data_url=/d", "--epochs", "5"]

    def test_holds_placeholders_for_what_is_not_known_yet(self) -> None:
        nodes = (Node("<node 0>", tasks=1), Node("<node 1>", tasks=1))
        made = make_plan(
            replace(JOB, nodes=2), Cluster(nodes, "the job", known=False), Run(uuid=None)
        )
        first = made.first_rank
        assert {word.value for word in first.argv if not word.known} == {
            *("--nproc-per-node=<GPUs>", "--rdzv-id=<uuid>", "--local-addr=<address>"),
            *("--master-addr=<node 0>", "--master-port=<port>"),
        }
        assert (made.script_ranks, made.script_world_size) == ((None, None), None)
        assert ["how many GPUs" in warning for warning in made.warnings] == [True]

    def test_gives_a_reason_for_every_word_of_ours(self) -> None:
        told = plan(2).first_rank.argv
        assert [word.value for word in told if not word.reason] == ["--epochs", "5"]


class TestTheRendezvous:
    def test_ma_03_is_at_an_address_where_that_is_known(self) -> None:
        cluster = replace(plan(1, 1).cluster, addressed=True)
        made = make_plan(replace(JOB, nodes=2), cluster, RUN)
        told = [options(words(made, node)) for node in range(2)]
        assert [one["--master-addr"] for one in told] == ["10.1.0.1", "10.1.0.1"]
        assert [one["--local-addr"] for one in told] == ["10.1.0.1", "10.1.0.2"]

    def test_ma_03_makes_up_no_address(self) -> None:
        cluster = Cluster((Node("n1", gpus=1), Node("n2", gpus=1)), "the host list")
        made = make_plan(replace(JOB, nodes=2), cluster, RUN)
        assert "--local-addr" not in options(words(made, 1))

    def test_ma_05_and_ma_07_follow_the_order_of_the_nodes(self) -> None:
        for node in range(3):
            told = options(words(plan(2, 2, 2), node))
            assert (told["--rdzv-backend"], told["--node-rank"]) == ("static", str(node))
            assert told["--master-addr"] == "n1"
            assert "--rdzv-endpoint" not in told

    def test_ma_08_is_where_the_user_says(self) -> None:
        env = {"MASTER_ADDR": "n1.ib", "MASTER_PORT": "23456"}
        assert options(words(plan(1, 1, env=env), 1))["--master-addr"] == "n1.ib"
        with pytest.raises(BadValueError, match="MASTER_ADDR=n2, but rank 0 runs on n1"):
            plan(1, 1, env={"MASTER_ADDR": "n2"})

    def test_ma_09_has_one_id_for_a_step_and_another_for_the_next(self) -> None:
        def told(**more: str) -> str:
            ready = plan_rank(replace(JOB, view="off"), {**ALONE, **more})
            return options(ready.rank.words)["--rdzv-id"]

        assert {options(words(plan(1, 1), node))["--rdzv-id"] for node in range(2)} == {UUID}
        assert told() == told(SLURMD_NODENAME="localhost", SLURM_GPUS_ON_NODE="4")
        assert len({told(), told(SLURM_STEP_ID="1"), told(SLURM_RESTART_COUNT="1")}) == 3

    def test_has_ipv6_addresses_in_the_form_that_torchrun_takes(self) -> None:
        nodes = (Node("n1", "fd00::1", gpus=1), Node("n2", "fd00::2", gpus=1))
        made = make_plan(replace(JOB, nodes=2), Cluster(nodes, "hosts", addressed=True), RUN)
        told = options(words(made, 1))
        assert (told["--master-addr"], told["--local-addr"]) == ("[fd00::1]", "fd00::2")


class TestACommand:
    def test_is_run_by_every_rank(self) -> None:
        told = words(plan(2, program=Command('run.sh "$1"'), args=("a",)))
        assert options(told)["--no-python"] == ""
        assert program(told) == ["/bin/sh", "-c", 'run.sh "$1"', "sh", "a"]
        told = words(plan(2, program=Argv(("python", "-m", "my.train")), args=()))
        assert program(told) == ["python", "-m", "my.train"]

    @pytest.mark.parametrize(
        "program",
        [
            Command("torchrun --nproc-per-node=8 train.py"),
            Command("cd src && exec /opt/conda/bin/torchrun train.py"),
            Command("python -m torch.distributed.run train.py"),
            Argv(("torchrun", "train.py")),
            Argv(("env", "A=1", "python", "-m", "torch.distributed.launch", "train.py")),
        ],
    )
    def test_sb_07_that_starts_torchrun_itself_is_refused(self, program: Program) -> None:
        with pytest.raises(BadValueError, match="torchrun once more") as caught:
            plan(8, program=program)
        assert "--contract modelarts" in caught.value.remedy

    @pytest.mark.parametrize(
        "program", [Argv(("python", "t.py", "--launcher", "torchrun")), Command("cat torchrun.log")]
    )
    def test_may_speak_of_torchrun(self, program: Program) -> None:
        assert plan(8, program=program)


class TestASlurmStep:
    def test_sb_07_with_several_tasks_on_a_node_is_refused(self) -> None:
        nodes = (Node("n1", gpus=8, tasks=1), Node("n2", gpus=8, tasks=8))
        with pytest.raises(StepError, match=r"n2 has 8 tasks .*; the torchrun contract starts one"):
            make_plan(replace(JOB, nodes=2), Cluster(nodes, "step 12.0"), RUN)

    def test_sb_07_is_told_the_srun_line(self, tmp_path: Path) -> None:
        command = [str(ADAPTER), "exec", "--contract", "torchrun", "--", "true"]
        said = refusal(run_in(tmp_path, command, FIRST_OF_TWO), 2)
        assert "srun --nodes=1 --ntasks=1 slurm-adapter exec" in said

    def test_ma_02_with_its_port_taken_is_refused_even_for_one_rank(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        with socket.create_server(("0.0.0.0", 0)) as taken:
            port = str(taken.getsockname()[1])
            command = [str(ADAPTER), "exec", "--contract", "torchrun", "--view", "off"]
            command += ["--port", port, "--boot", "train.py"]
            assert f"port {port} on " in refusal(run_in(tmp_path, command, ALONE), 3)


class TestTheEnvironment:
    @pytest.mark.parametrize(
        "name",
        [
            *OUTER,
            *("MASTER_PORT", "PET_TEE", "NODE_RANK", "NNODES"),
            *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
            *("SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "PMI_RANK", "PMIX_RANK"),
        ],
    )
    def test_loses(self, name: str) -> None:
        assert name not in plan(2).first_rank.environment({name: "1"})

    @pytest.mark.parametrize(
        "name",
        [
            *("SLURM_JOB_ID", "SLURM_NODEID", "SLURM_NNODES", "SLURM_JOB_NODELIST", "PATH"),
            *("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
            *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
        ],
    )
    def test_keeps(self, name: str) -> None:
        assert plan(2).first_rank.environment({name: "1"})[name] == "1"

    def test_has_options_of_torchrun_that_the_user_names(self) -> None:
        told = plan(2, env={"PET_MAX_RESTARTS": "3"}, keep=("PET_LOG_DIR",)).first_rank
        inherited = {"PET_MAX_RESTARTS": "9", "PET_LOG_DIR": "/l", "PET_TEE": "3"}
        found = told.environment(inherited)
        assert {name: found[name] for name in found if name.startswith("PET_")} == {
            "PET_MAX_RESTARTS": "3",
            "PET_LOG_DIR": "/l",
        }


class TestADryRun:
    def shown(self, folder: Path, form: str, *words: str) -> str:
        (folder / "train.py").touch()
        ours = ["--contract", "torchrun", "--view", "off", "--format", form, "--dry-run"]
        words = (*words, *ours, "train.py")
        done = adapter(*words, cwd=folder, env={"COLUMNS": "200", "PATH": str(ADAPTER.parent)})
        assert (done.status, done.err) == (0, "")
        return done.out

    @pytest.mark.parametrize("form", ["plain", "rich"])
    def test_tells_which_ranks_each_node_starts(self, tmp_path: Path, form: str) -> None:
        out = self.shown(tmp_path, form, "local", "-N", "2", "--gpus-per-node", "4")
        assert "train: 2 nodes, 8 ranks, contract torchrun" in out
        assert "torchrun 1  starts 4 ranks, 4 to 7" in out

    def test_tells_what_it_does_not_know(self, tmp_path: Path) -> None:
        out = self.shown(tmp_path, "plain", "sbatch", "-N", "2")
        assert "train: 2 nodes, a rank for each GPU, contract torchrun" in out
        assert "torchrun 1  starts a rank for each GPU" in out

    def test_as_a_document_has_the_world_size_of_the_ranks(self, tmp_path: Path) -> None:
        words = ["local", "-N", "2", "--gpus-per-node", "2"]
        told = json.loads(self.shown(tmp_path, "json", *words))["plan"]
        assert told["world_size"] == 4
        assert [one["starts"] for node in told["nodes"] for one in node["ranks"]] == [
            *([0, 1], [2, 3])
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a boot file that shows what it is told."""
    (tmp_path / "show.py").write_text(SHOW)
    return tmp_path


def local(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Run a job here on two nodes with two GPUs each and return its lines, sorted."""
    two = ["--contract", "torchrun", "--view", "off", "-N", "2", "--gpus-per-node", "2"]
    done = adapter("local", *two, *words, cwd=folder, env=env)
    assert done.status == 0, done.err
    # A torchrun may say that the store is gone where the one that has it ends a moment before.
    assert "slurm-adapter: " not in done.err
    return sorted(done.out.splitlines())


class TestForReal:
    def test_the_script_gets_its_arguments_byte_for_byte_whatever_was_set_outside(
        self, folder: Path
    ) -> None:
        lines = local(folder, "--port", str(OWN_PORT), "show.py", *HOSTILE, env=OUTER)
        shown = [json.loads(line.partition("] ")[2]) for line in lines]
        ranks = sorted((told["RANK"], told["LOCAL_RANK"]) for _, told, _ in shown)
        assert ranks == [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")]
        (run,) = {told["TORCHELASTIC_RUN_ID"] for _, told, _ in shown}
        assert len(run) == len(UUID)
        for args, told, python in shown:
            assert args == HOSTILE
            assert Path(python).parent == Path(sys.executable).parent
            assert (told["WORLD_SIZE"], told["LOCAL_WORLD_SIZE"]) == ("4", "2")
            assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("127.0.0.10", str(OWN_PORT))

    def test_every_rank_runs_a_command(self, folder: Path) -> None:
        command = 'test $$ -gt 1 && printf "%s of %s: %s %s\n" "$RANK" "$WORLD_SIZE" "$@"'
        assert local(folder, "--command", command, "$$", "${local_rank}") == [
            f"[{rank // 2}] {rank} of 4: $$ ${{local_rank}}" for rank in range(4)
        ]

    def test_a_failing_rank_ends_the_job_with_torchruns_own_status(self, folder: Path) -> None:
        (folder / "fail.py").write_text(
            "import os, sys, time\n"
            "if os.environ['RANK'] == '3':\n    sys.exit(7)\n"
            "time.sleep(1000)\n"
        )
        words = ["--contract", "torchrun", "--view", "off", "-N", "2", "--gpus-per-node", "2"]
        done = adapter("local", *words, "fail.py", cwd=folder)
        assert done.status == 1
        failed = "slurm-adapter: torchrun 1 failed first: exit status 1; ending torchrun 0\n"
        assert failed in done.err
        assert "exitcode  : 7 " in done.err

    @pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
    def test_nodes_may_have_different_numbers_of_gpus(self, folder: Path, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            socket.create_server((address, 0), family=family).close()
        except OSError as error:
            pytest.skip(f"no {address} here: {error.strerror}")
        nodes = tuple(Node(f"n{gpus}", address, gpus=gpus) for gpus in (1, 3))
        job = replace(JOB, program=Boot(str(folder / "show.py")), code=str(folder), nodes=2)
        cluster = Cluster(nodes, "this test", addressed=True)
        made = make_plan(replace(job, python=sys.executable), cluster, Run(UUID, OWN_PORT))
        inherited = environment(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
        with ExitStack() as stack:
            running = [stack.enter_context(start(rank, inherited)) for rank in made.ranks()]
            lines = [line for one in running for line in one.communicate()[0].splitlines()]
        shown = [json.loads(line) for line in lines]
        assert [one.returncode for one in running] == [0, 0]
        told = [one[1] for one in shown]
        assert sorted((one["RANK"], one["LOCAL_RANK"]) for one in told) == [
            *(("0", "0"), ("1", "0"), ("2", "1"), ("3", "2"))
        ]
        assert {one["WORLD_SIZE"] for one in told} == {"4"}
        assert {one["MASTER_ADDR"] for one in told} == {address}


def start(rank: RankPlan, inherited: Mapping[str, str]) -> Child[bytes]:
    return Child(
        rank.words,
        env=rank.environment(inherited),
        cwd=rank.cwd.value,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


class TestOnSlurm:
    def submit(self, user: User, *words: str) -> str:
        ours = ["slurm-adapter", "sbatch", "--parsable", "--contract", "torchrun"]
        return user.run(*ours, *words).strip()

    def test_four_ranks_on_two_nodes_find_each_other(self, user: User) -> None:
        user.write("group.py", (SCRIPTS / "group.py").read_text())
        job = self.submit(user, "-N", "2", "--gpus-per-node", "2", "group.py")
        end = user.finish(job)
        log = user.log("slurm-adapter/group/log/group-*.out")
        assert (end.state, end.exit_status) == ("COMPLETED", 0), log
        lines = sorted(line for line in log.splitlines() if ": rank " in line)
        assert lines == [
            f"{rank // 2}: rank {rank} of 4, local {rank % 2} of 2, gloo on cpu: 10.0"
            for rank in range(4)
        ]

    def test_a_failing_rank_ends_the_job_and_is_named(self, user: User) -> None:
        command = 'test "$RANK" = 3 && exit 7; sleep 1000'
        job = self.submit(user, "-N", "2", "--gpus-per-node", "2", "--command", command)
        end = user.finish(job)
        log = user.log("slurm-adapter/job/log/job-*.out")
        assert (end.state, end.exit_status) == ("FAILED", 1), log
        node = user.cluster.nodes[1]
        said = f"\nslurm-adapter: torchrun 1 on {node} failed first: Exited with exit code 1\n"
        assert log.endswith(said)
        assert "rank      : 3 (local_rank: 1)" in log
        assert "exitcode  : 7 " in log

    def test_each_node_counts_its_own_gpus(self, user: User) -> None:
        """Four GPUs of a node to one task; the ranks of one torchrun share its hosts file."""
        user.write("show.py", SHOW)
        step = ["srun", "-N1", "--ntasks=1", "--gres=gpu:4", "slurm-adapter", "exec"]
        out = user.run(*step, "--contract", "torchrun", "--boot", "show.py")
        told = [json.loads(line)[1] for line in out.splitlines()]
        assert sorted(one["LOCAL_RANK"] for one in told) == ["0", "1", "2", "3"]
        assert {one["WORLD_SIZE"] for one in told} == {"4"}

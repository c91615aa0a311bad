"""Torchrun with its own rendezvous (`--elastic`), and ranks that are started again."""

from pathlib import Path
from typing import Any

import pytest

from commandline import adapter
from conftest import User
from one_task import ADAPTER, ALONE, refusal, run_in
from slurm_adapter import Boot, Cluster, Job, Node, Plan, Run, make_plan
from slurm_adapter.contracts.elastic import read_elastic
from slurm_adapter.errors import BadValueError
from slurm_adapter.record import replace

SCRIPTS = Path(__file__).parent / "scripts"
UUID = "a6b44790-ca10-4228-bc2d-0a05ccdd5420"
RUN = Run(uuid=UUID, port=29400, port_reason="given by you")
JOB = Job(
    program=Boot("/code/train.py"),
    code="/code",
    folder="/job",
    contract="torchrun",
    nodes=3,
    elastic=(1, 3),
)


def plan(**changes: Any) -> Plan:
    """Return a plan for nodes n1, n2 and n3 with two GPUs each."""
    nodes = tuple(Node(f"n{i}", f"10.1.0.{i}", gpus=2, tasks=1) for i in range(1, 4))
    return make_plan(replace(JOB, **changes), Cluster(nodes, "step 12.0"), RUN)


def words(plan: Plan, node: int) -> list[str]:
    return plan.rank(node, node, 0).words


class TestTheCommandLine:
    def test_of_node_1_of_3(self) -> None:
        assert words(plan(max_restarts=2), 1) == [
            *("python", "-m", "torch.distributed.run"),
            *("--nnodes=1:3", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-id={UUID}"),
            *("--rdzv-endpoint=n1:29400", "--rdzv-conf=is_host=false"),
            *("--max-restarts=2", "--local-addr=10.1.0.2", "--", "/code/train.py"),
        ]

    def test_ma_05_tells_each_node_whether_it_opens_the_store(self) -> None:
        told = [
            [word for word in words(plan(), node) if word.startswith("--rdzv-conf")]
            for node in range(3)
        ]
        assert told == [["--rdzv-conf=is_host=true"], *[["--rdzv-conf=is_host=false"]] * 2]

    def test_ma_07_promises_no_order(self) -> None:
        made = plan()
        for node in range(3):
            assert not [word for word in words(made, node) if "node-rank" in word]
        assert (made.script_ranks, made.script_world_size) == ((None,) * 3, None)

    def test_ma_09_has_one_id_on_all_nodes(self) -> None:
        assert all(f"--rdzv-id={UUID}" in words(plan(), node) for node in range(3))

    def test_has_ipv6_addresses_in_the_form_that_torchrun_takes(self) -> None:
        nodes = tuple(Node(f"n{i}", f"fd00::{i}", gpus=1) for i in range(1, 4))
        made = make_plan(JOB, Cluster(nodes, "hosts", addressed=True), RUN)
        assert "--rdzv-endpoint=[fd00::1]:29400" in words(made, 1)
        assert "--local-addr=fd00::2" in words(made, 1)

    def test_ma_08_meets_where_the_user_says(self) -> None:
        made = plan(env={"MASTER_ADDR": "n1.ib"})
        assert "--rdzv-endpoint=n1.ib:29400" in words(made, 2)

    def test_gives_a_reason_for_every_word(self) -> None:
        assert all(word.reason for word in plan(max_restarts=0).first_rank.argv)

    def test_has_a_store_for_each_round(self) -> None:
        name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
        assert plan().first_rank.environment({})[name] == "1"
        assert plan(env={name: "0"}).first_rank.environment({})[name] == "0"
        assert name not in plan(elastic=None).first_rank.environment({})

    def test_in_order_has_restarts_too(self) -> None:
        told = words(plan(elastic=None, max_restarts=3), 1)
        assert {"--max-restarts=3", "--rdzv-backend=static", "--node-rank=1"} <= set(told)

    def test_in_order_restarts_are_warned_of(self) -> None:
        """Torch 2.13's static rendezvous keeps one store, with no round in its keys."""
        (warning,) = plan(elastic=None, max_restarts=3).warnings
        assert "--elastic 3:3 gives each round a store of its own" in warning
        for changes in ({"max_restarts": 3}, {"elastic": None}):
            assert plan(**changes).warnings == ()
        one = Cluster((Node("n1", "10.1.0.1", gpus=1, tasks=1),), "step 12.0")
        job = replace(JOB, nodes=1, elastic=None, max_restarts=3)
        assert make_plan(job, one, RUN).warnings == ()


class TestARange:
    @pytest.mark.parametrize("text", ["", "3", ":", "1:", ":3", "a:b", "-1:3", "1:3:5", "1:\u0663"])
    def test_of_another_form_is_refused(self, text: str) -> None:
        with pytest.raises(BadValueError, match="no range of nodes") as caught:
            read_elastic(text)
        assert "--elastic 1:3" in caught.value.remedy

    @pytest.mark.parametrize("elastic", [(0, 3), (3, 1)])
    def test_that_is_empty_is_refused(self, elastic: tuple[int, int]) -> None:
        with pytest.raises(BadValueError, match="no range of nodes"):
            replace(JOB, elastic=elastic)

    @pytest.mark.parametrize(("elastic", "meant"), [((1, 2), "1:3"), ((4, 8), "3:3")])
    def test_that_does_not_end_with_the_jobs_nodes_is_refused(
        self, elastic: tuple[int, int], meant: str
    ) -> None:
        with pytest.raises(BadValueError, match=r"step 12\.0 has 3") as caught:
            plan(elastic=elastic)
        assert f"--elastic {meant}," in caught.value.remedy


class TestOtherContracts:
    @pytest.mark.parametrize("contract", ["modelarts", "env"])
    @pytest.mark.parametrize("option", ["--elastic=1:1", "--max-restarts=1"])
    def test_refuse_it(self, tmp_path: Path, contract: str, option: str) -> None:
        command = [ADAPTER, "exec", "--contract", contract, option, "--", "true"]
        said = refusal(run_in(tmp_path, command, ALONE), 2)
        assert f"{option.partition('=')[0]} means something to the torchrun contract" in said
        assert "Give --contract torchrun" in said


class TestItsWay:
    def test_into_a_script_is_whole(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        text = 'boot = "train.py"\ncontract = "torchrun"\nnodes = 3\n'
        (tmp_path / "job.toml").write_text(f'{text}elastic = "1:3"\nmax_restarts = 4\n')
        done = adapter("sbatch", "--script", "-", "--job", "job.toml", cwd=tmp_path)
        assert done.status == 0, done.err
        assert "    --elastic=1:3 \\\n    --max-restarts=4 \\\n" in done.out

    def test_is_checked_before_anything_is_written(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        options = ["--contract", "torchrun", "--elastic", "1:4", "-N", "3"]
        done = adapter("sbatch", *options, "train.py", cwd=tmp_path)
        assert (done.status, done.out) == (2, "")
        assert "Give --elastic 1:3," in done.err
        assert [path.name for path in tmp_path.iterdir()] == ["train.py"]

    def test_shows_in_a_dry_run_what_is_not_promised(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        options = ["--contract", "torchrun", "--elastic", "1:2", "-N", "2", "--gpus-per-node", "2"]
        done = adapter("local", "--dry-run", "--format", "json", *options, "train.py", cwd=tmp_path)
        made = done.json["plan"]
        assert made["world_size"] is None
        assert [one["starts"] for node in made["nodes"] for one in node["ranks"]] == [None, None]


def test_ma_05_three_nodes_of_slurm_meet(user: User) -> None:
    user.write("group.py", (SCRIPTS / "group.py").read_text())
    options = ["--contract", "torchrun", "--elastic", "1:3", "-N", "3", "--gpus-per-node", "1"]
    end = user.finish(user.run("slurm-adapter", "sbatch", "--parsable", *options, "group.py"))
    log = user.log("slurm-adapter/group/log/group-*.out")
    assert (end.state, end.exit_status) == ("COMPLETED", 0), log
    lines = [line.partition(": ")[2] for line in log.splitlines() if ": rank " in line]
    assert sorted(line.partition(",")[0] for line in lines) == [f"rank {i} of 3" for i in range(3)]
    assert all(line.endswith(": 6.0") for line in lines)

"""A node's part of a plan: whole but for named holes, the same on the other side, and small."""

import marshal
from collections.abc import Mapping

import pytest

from slurm_adapter import Boot, Cluster, Job, Node, Plan, Run, make_plan
from slurm_adapter.job.job import Channel, Command
from slurm_adapter.node.protocol.records import pack, pack_plans, unpack_plan
from slurm_adapter.record import replace
from slurm_adapter.setting import Setting, extended

JOB = Job(Boot("/code/train.py"), code="/code", folder="/jobs/train", args=("--a", "b c"))
RUN = Run("511cdec0-1708-4c48-b305-c741f35c9a75", 6666, "given by you")
BIN = extended("PATH", "the job's interpreter first", before=("/py/bin",))
PACKAGES = extended("PATH", "packages", after=("/packages/bin",))


def planned(
    count: int, views: Mapping[int, str] | None = None, gpus: int = 2, **changes: object
) -> Plan:
    """Return a plan for nodes with a variable of their own each, some with less of a view."""
    nodes = tuple(
        Node(
            f"lab{index:04}.cluster.example",
            address=f"10.77.{index // 250}.{index % 250}",
            gpus=gpus,
            settings=(Setting("NCCL_SOCKET_IFNAME", f"=eth{index % 2}", "measured"),),
            view=(views or {}).get(index, "full"),
        )
        for index in range(count)
    )
    job = replace(JOB, nodes=count, **changes)
    plan = make_plan(job, Cluster(nodes, "the host list", addressed=True), RUN)
    return plan.with_settings(dict.fromkeys(range(count), (BIN,)))


def path_of(plan: Plan, index: int = 0) -> Setting:
    (found,) = [one for one in next(plan.node_ranks(index)).settings if one.name == "PATH"]
    return found


class TestAHole:
    def test_is_named_and_filled_where_the_value_is_known(self) -> None:
        path = path_of(planned(1))
        assert (path.value, path.known) == ("/py/bin:<PATH>", False)
        assert path.hole is not None
        assert path.hole.why == "PATH as the node has it"
        whole = path.filled({"PATH": "/usr/bin:/bin"})
        assert (whole.value, whole.known, whole.hole) == ("/py/bin:/usr/bin:/bin", True, None)

    @pytest.mark.parametrize(
        ("own", "value"), [("", "/py/bin"), ("/py/bin:/bin", "/py/bin:/bin"), ("/b", "/py/bin:/b")]
    )
    def test_says_nothing_twice(self, own: str, value: str) -> None:
        plan = planned(1)
        assert plan.first_rank.environment({"PATH": own})["PATH"] == value
        assert path_of(plan.filled(0, {"PATH": own})).value == value

    def test_is_none_where_the_user_set_the_variable(self) -> None:
        assert path_of(planned(1, env={"PATH": "/mine"})).value == "/py/bin:/mine"
        assert path_of(planned(1, env={"PATH": ""})).value == "/py/bin:<PATH>"

    def test_has_all_around_it(self) -> None:
        path = path_of(planned(2).with_settings({0: (PACKAGES,)}))
        assert path.value == "/py/bin:<PATH>:/packages/bin"
        assert path.reason == "the job's interpreter first; packages"
        mine = planned(2, env={"PATH": "/mine"}).with_settings({1: (PACKAGES,)})
        assert [path_of(mine, index).value for index in (0, 1)] == [
            "/py/bin:/mine",
            "/py/bin:/mine:/packages/bin",
        ]

    def test_stands_in_the_document_until_it_is_filled(self) -> None:
        plan = planned(2)
        (shown,) = [one for one in plan.to_json()["environment"] if one["name"] == "PATH"]
        assert (shown["hole"], shown["why"]) == ("PATH", "PATH as the node has it")
        (shown,) = [
            one for one in plan.filled(0, {}).to_json()["environment"] if one["name"] == "PATH"
        ]
        assert shown == {
            "name": "PATH",
            "value": "/py/bin",
            "reason": "the job's interpreter first",
            "known": True,
        }


class TestANodesPart:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"contract": "env", "pre_start": "/code/ma-pre-start.sh", "keep": ("HOME",)},
            {"contract": "torchrun", "env": {"A": "\udcff", "B": ""}},
            {"program": Command("true"), "inputs": (Channel("data", "/data"),)},
        ],
    )
    @pytest.mark.parametrize("views", [{}, {0: "off", 2: "hosts"}])
    def test_is_the_same_on_the_other_side(
        self, changes: dict[str, object], views: dict[int, str]
    ) -> None:
        plan = planned(4, views, **changes)
        plan = plan.with_node_view(2, "hosts", "libnss_wrapper.so")
        parts = [plan.node(index) for index in range(4)]
        assert list(map(unpack_plan, pack_plans(parts))) == parts
        assert parts[2].holes == ["PATH", "LD_PRELOAD"]

    def test_has_what_all_have_alike_once(self) -> None:
        plan = planned(250, contract="env", gpus=8, env={"LONG": "x" * 10_000})
        messages = list(pack_plans(map(plan.node, range(250))))
        assert max(map(len, messages)) < 40_000
        own = [marshal.loads(one)[1] for one in messages]  # noqa: S302 - of this test
        assert max(map(len, own)) < 8_000

    @pytest.mark.parametrize("view", ["full", "off"])
    def test_of_many_nodes_is_small(self, view: str) -> None:
        plan = planned(1_000, dict.fromkeys(range(1_000), view), gpus=8)
        (message,) = pack_plans([plan.node(999)])
        assert len(message) < 256 << 10
        assert len(message) > len(pack(plan.job))


class TestWhatANodeGives:
    def test_changes_nothing_but_its_own_part(self) -> None:
        plan = planned(3)
        settled = plan.with_node_view(1, "off")
        assert [node.view for node in settled.cluster.nodes] == ["full", "off", "full"]
        for index in (0, 2):
            assert settled.node(index) == plan.node(index)
        had = settled.node(1).ranks[0].environment({})
        assert had["VC_WORKER_HOSTS"] == "10.77.0.0,10.77.0.1,10.77.0.2"
        assert settled.node(1).ranks[0].cwd.value == "/code"
        shown = settled.to_json()["nodes"]
        assert shown[1]["ranks"][0]["cwd"]["value"] == "/code"
        assert all("cwd" not in shown[index]["ranks"][0] for index in (0, 2))

    def test_keeps_what_else_was_warned_of(self) -> None:
        plan = planned(2, cache="/fast")
        plan = replace(plan, warnings=(*plan.warnings, "slow network"))
        lesser = "/fast is not shown as /cache: only a full view has it"
        assert plan.with_node_view(0, "hosts").warnings == (lesser, "slow network")
        assert plan.with_node_view(1, "hosts").warnings == ("slow network",)

    def test_puts_a_library_before_the_users_own(self) -> None:
        plan = planned(2, env={"LD_PRELOAD": "libmine.so"})
        had = plan.with_node_view(1, "hosts", "libnss_wrapper.so").node(1)
        environment = had.ranks[0].environment({"LD_PRELOAD": "libother.so"})
        assert environment["LD_PRELOAD"] == "libnss_wrapper.so:libmine.so"
        assert environment["NSS_WRAPPER_HOSTS"] == f"{had.folder}/hosts"

    def test_a_rank_lacks_what_the_first_has(self) -> None:
        (rank,) = (
            planned(2)
            .with_node_view(0, "hosts", "libnss_wrapper.so")
            .to_json()["nodes"][1]["ranks"]
        )
        assert rank["lacks"] == ["LD_PRELOAD", "NSS_WRAPPER_HOSTS"]

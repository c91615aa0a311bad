"""ModelArts' names for the nodes of a job, shortened only where Linux could not take their list.

One variable may have 128 KiB with its name: more nodes get a shorter job name, then no variable.
"""

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_adapter import Boot, Cluster, Job, Node, Plan, Run, make_plan
from slurm_adapter.contracts.place import name_workers

UUID = "a6b44790-ca10-4228-bc2d-0a05ccdd5420"
WHOLE = f"ma-job-{UUID}"
LONGEST = 131_072  # with the NUL at its end
MOST = 2_978
"""The most nodes whose list fits, with 8 digits of the UUID."""


def size(host_list: str) -> int:
    return len(f"VC_WORKER_HOSTS={host_list}\0")


def plan(nodes: int, view: str) -> Plan:
    job = Job(program=Boot("/c/train.py"), code="/c", folder="/f", nodes=nodes)
    members = tuple(Node(f"gpu{i:05}", gpus=8, tasks=1, view=view) for i in range(nodes))
    return make_plan(job, Cluster(members, "step 12.0"), Run(UUID, 29400))


def told(plan: Plan, index: int) -> dict[str, Any]:
    return {one.name: one for one in plan.rank(index, index, 0).settings}


class TestNames:
    def test_are_those_of_volcanos_pods(self) -> None:
        workers = name_workers(UUID, 3)
        assert workers.job_name == WHOLE
        assert workers.instance(2) == f"{WHOLE}-worker-2"
        assert workers.dotted(2) == f"{WHOLE}-worker-2.{WHOLE}"
        assert workers.host_list == ",".join(f"{WHOLE}-worker-{i}.{WHOLE}" for i in range(3))

    def test_are_placeholders_before_the_run_is_known(self) -> None:
        assert name_workers(None, 2).dotted(1) == "ma-job-<uuid>-worker-1.ma-job-<uuid>"
        assert not name_workers(None, 100_000).shortened

    @pytest.mark.parametrize(
        ("count", "name"),
        [
            (1, WHOLE),
            (1_310, WHOLE),
            (1_311, WHOLE[:-1]),
            (2_000, "ma-job-a6b44790-ca10-4228"),
            (2_300, "ma-job-a6b44790-ca10"),  # not with a hyphen at the end
            (MOST, "ma-job-a6b44790"),
            (MOST + 1, WHOLE),
            (10_000, WHOLE),
            (100_000, WHOLE),
        ],
    )
    def test_lose_as_many_digits_as_needed(self, count: int, name: str) -> None:
        workers = name_workers(UUID, count)
        assert workers.job_name == name
        assert workers.shortened is (name != WHOLE)

    @given(st.integers(1, MOST), st.uuids())
    def test_fit_as_a_list_up_to_2_978_nodes(self, count: int, uuid: Any) -> None:
        workers = name_workers(str(uuid), count)
        assert size(workers.host_list) <= LONGEST
        assert str(uuid).startswith(workers.job_name.removeprefix("ma-job-"))

    @pytest.mark.parametrize("count", [1, 1_310, 1_311, 2_000, MOST])
    def test_are_taken_by_linux_as_a_list(self, count: int) -> None:
        value = name_workers(UUID, count).host_list
        subprocess.run(["/bin/true"], env={"VC_WORKER_HOSTS": value}, check=True)

    def test_are_not_longer_than_a_host_name_may_be(self) -> None:
        """63 characters for a label (RFC 1035), 64 for a Linux host name."""
        assert len(name_workers(UUID, 100_000).instance(99_999)) == 56


class TestAPlan:
    @pytest.mark.parametrize("view", ["full", "hosts"])
    def test_of_2_000_nodes_says_that_the_name_is_shortened(self, view: str) -> None:
        made = plan(2_000, view)
        names = told(made, 1_999)
        job = "ma-job-a6b44790-ca10-4228"
        assert names["MA_VJ_NAME"].value == job
        assert names["MA_VJ_NAME"].reason.endswith("; shortened so that VC_WORKER_HOSTS fits")
        assert names["HOSTNAME"].value == f"{job}-worker-1999"
        hosts = names["VC_WORKER_HOSTS"].value.split(",")
        assert (len(hosts), hosts[-1]) == (2_000, f"{job}-worker-1999.{job}")
        assert made.warnings == ()

    @pytest.mark.parametrize(
        ("view", "instead"),
        [
            ("full", "/etc/volcano/worker.host has them"),
            ("hosts", "scripts that read it will fail"),
        ],
    )
    def test_of_10_000_nodes_leaves_the_list_out_and_says_so(self, view: str, instead: str) -> None:
        made = plan(10_000, view)
        names = told(made, 9_999)
        assert names["MA_VJ_NAME"].value == WHOLE
        assert names["HOSTNAME"].value == f"{WHOLE}-worker-9999"
        assert "VC_WORKER_HOSTS" not in names
        assert made.warnings == (
            "VC_WORKER_HOSTS is left out: the names of 10000 nodes are longer than the 128 KiB"
            f" that Linux allows one variable; {instead}",
        )
        method = names["SLURM_ADAPTER_INIT_METHOD"].value
        assert method == f"tcp://{WHOLE}-worker-0.{WHOLE}:29400"

    def test_without_a_view_has_the_nodes_own_names_as_long_as_they_fit(self) -> None:
        names = told(plan(10_000, "off"), 0)
        assert names["VC_WORKER_HOSTS"].value.split(",")[-1] == "gpu09999"
        assert names["MA_VJ_NAME"].value == WHOLE

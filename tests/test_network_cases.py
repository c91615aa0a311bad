"""The interface that is chosen, on a real kernel, and whether the NCCL library agrees.

Interfaces are named, addressed and ordered as in the reports. Without our variables NCCL takes the
wrong one where the report says so: else a case would show nothing.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from netspace import NetSpace, net_space, unavailable

needs_nccl = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None,
    reason="the NCCL library is not installed: pip install nvidia-nccl-cu12",
)
PEERS = "{} n0\n{} n1"
LOCAL = (
    ("docker0", "172.17.0.1/16"),
    ("br-1a2b", "172.18.0.1/16"),
    ("virbr0", "192.168.122.1/24"),
)


@dataclass(frozen=True)
class Case:
    """A node as a report has it."""

    interfaces: tuple[tuple[str, ...], ...]
    own: str
    peer: str
    right: str
    wrong: str
    """What NCCL takes by itself."""
    routes: tuple[str, ...] = ()


CASES = {
    "NET-01": Case(
        (("bond0.301.1",), ("bond0.301", "10.0.8.189/16"), ("bond0", "192.168.9.7/27")),
        "192.168.9.7",
        "192.168.9.8",
        "bond0",
        "bond0.301",
    ),
    "NET-04": Case(
        (("veth75",), *LOCAL, ("ens5", "172.31.0.10/24")),
        "172.31.0.10",
        "172.31.0.11",
        "ens5",
        "br-1a2b",
    ),
    "ib0 without an address": Case(
        (("eno1", "10.2.0.1/24"), ("ib0",)), "10.2.0.1", "10.2.0.2", "eno1", "ib0"
    ),
    "two routed networks": Case(
        (("eth0", "10.1.0.5/24"), ("eth1", "10.20.1.5/24")),
        "10.20.1.5",
        "10.20.2.5",
        "eth1",
        "eth0",
        ("10.20.0.0/16 via 10.20.1.1",),
    ),
    "IPv6 only": Case(
        (*LOCAL, ("eth0", "fd00:77::5/64")), "fd00:77::5", "fd00:77::6", "eth0", "br-1a2b"
    ),
    "a management network first": Case(
        (("eno1", "172.16.0.3/16"), ("ens1f0", "10.20.0.3/24")),
        "10.20.0.3",
        "10.20.0.4",
        "ens1f0",
        "eno1",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _spaces() -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def node(case: Case) -> Iterator[NetSpace]:
    with net_space(case.interfaces, PEERS.format(case.own, case.peer), case.routes) as space:
        yield space


def test_the_interface_is_the_one_that_leads_to_the_peer(case: Case, node: NetSpace) -> None:
    expected = {
        "NCCL_SOCKET_IFNAME": f"={case.right}",
        "GLOO_SOCKET_IFNAME": case.right,
        "TP_SOCKET_IFNAME": case.right,
    }
    if ":" in case.own:
        expected["NCCL_SOCKET_FAMILY"] = "AF_INET6"
    assert node.chosen() == expected


@needs_nccl
def test_the_nccl_library_agrees(case: Case, node: NetSpace) -> None:
    assert node.nccl_takes(node.chosen()) == case.right
    assert node.nccl_takes().startswith((case.wrong, "none: "))


@needs_nccl
def test_net_01_a_bare_name_takes_what_it_begins() -> None:
    """NET-01: why the form with `=` is written."""
    with net_space(CASES["NET-01"].interfaces, "") as space:
        assert space.nccl_takes({"NCCL_SOCKET_IFNAME": "bond0"}) != "bond0"
        assert space.nccl_takes({"NCCL_SOCKET_IFNAME": "=bond0"}) == "bond0"


def test_net_05_each_node_has_its_own_name_for_it() -> None:
    """NET-05."""
    hosts = PEERS.format("10.2.0.1", "10.2.0.2")
    for index, name in enumerate(("eno1", "eth0")):
        with net_space([(name, f"10.2.0.{index + 1}/24")], hosts) as space:
            assert space.chosen(index=index)["NCCL_SOCKET_IFNAME"] == f"={name}"


class TestWhatTheUserHasSet:
    @pytest.fixture
    def space(self) -> Iterator[NetSpace]:
        hosts = PEERS.format("10.0.0.1", "10.0.0.2")
        with net_space([("ens3", "10.0.0.1/24"), ("ens4", "10.9.0.1/24")], hosts) as space:
            yield space

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("NCCL_SOCKET_IFNAME", "eth2"),
            ("NCCL_SOCKET_IFNAME", "=ens"),
            ("NCCL_SOCKET_IFNAME", "^lo,ens"),
            ("GLOO_SOCKET_IFNAME", "ens3,eth2"),
            ("TP_SOCKET_IFNAME", "ens"),
        ],
    )
    def test_net_08_must_be_there(self, space: NetSpace, variable: str, value: str) -> None:
        """NET-08: before anything starts, with the names that there are; nothing is replaced."""
        done = space.env(env={variable: value})
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.splitlines() == [
            f"slurm-adapter: n0: {variable}={value} names no interface that is up and has an"
            " address there",
            f"  n0 has: ens3 (10.0.0.1), ens4 (10.9.0.1). Leave {variable} out, or name one of"
            " them.",
        ]

    def test_net_03_gloo_is_not_nccl(self, space: NetSpace) -> None:
        """NET-03: Gloo would look for an interface of the name `^lo`."""
        done = space.env(env={"GLOO_SOCKET_IFNAME": "^lo,docker,veth"})
        assert done.returncode == 2
        assert "whole names are read there, none of NCCL's signs" in done.stderr
        assert "GLOO_SOCKET_IFNAME=eth0" in done.stderr

    def test_wins_and_gloo_follows_it(self, space: NetSpace) -> None:
        done = space.env(env={"NCCL_SOCKET_IFNAME": "ens4"}, form="shell")
        assert "NCCL_SOCKET_IFNAME" not in done.stdout
        assert "export GLOO_SOCKET_IFNAME=ens4\n" in done.stdout
        assert "export TP_SOCKET_IFNAME=ens4\n" in done.stdout

    def test_lo_left_in_gets_a_warning(self, space: NetSpace) -> None:
        done = space.env(env={"NCCL_SOCKET_IFNAME": "^ens4"})
        assert done.returncode == 0
        assert done.stderr == (
            "slurm-adapter: warning: n0: NCCL_SOCKET_IFNAME=^ens4 leaves lo in: NCCL may take"
            " loopback. Write ^lo,ens4.\n"
        )


class TestTheMaster:
    def test_ma_04_is_on_the_network_that_was_chosen(self) -> None:
        """MA-04: the short name leads to the management network, a longer one to the fast one."""
        hosts = "172.16.0.3 n0\n172.16.0.4 n1\n10.20.0.3 n0.hpc.example\n10.20.0.4 n1.hpc.example"
        nets = [("eno1", "172.16.0.4/16"), ("ens1f0", "10.20.0.4/24")]
        with net_space(nets, hosts) as space:
            assert space.chosen(index=1)["NCCL_SOCKET_IFNAME"] == "=eno1"
            suffix = space.env("--master-suffix", ".hpc.example", index=1, form="shell").stdout
            assert "export MASTER_ADDR=n0.hpc.example\n" in suffix
            assert "export NCCL_SOCKET_IFNAME='=ens1f0'\n" in suffix
            wrong = space.env("--network", "10.20.0.0/24", index=1)
            assert wrong.returncode == 3
            assert "no address of n0 is in 10.20.0.0/24, only 172.16.0.3" in wrong.stderr
            assert "--master-suffix SUFFIX" in wrong.stderr

    def test_ma_04_may_have_several_addresses_of_one_name(self) -> None:
        """MA-04, where name services give both."""
        hosts = "172.16.0.3 n0\n10.20.0.3 n0\n172.16.0.4 n1\n10.20.0.4 n1"
        nets = [("eno1", "172.16.0.4/16"), ("ens1f0", "10.20.0.4/24")]
        with net_space(nets, hosts) as space:
            told = space.env("--network", "10.20.0.0/24", index=1, form="shell").stdout
            assert "export MASTER_ADDR=10.20.0.3\n" in told
            assert "export NCCL_SOCKET_IFNAME='=ens1f0'\n" in told

    def test_an_interface_that_names_do_not_lead_by_gets_a_warning(self) -> None:
        hosts = "172.16.0.3 n0\n172.16.0.4 n1"
        nets = [("eno1", "172.16.0.4/16"), ("ib0", "10.20.0.4/24")]
        with net_space(nets, hosts) as space:
            done = space.env("--network", "ib0", index=1, form="shell")
            assert "export NCCL_SOCKET_IFNAME='=ib0'\n" in done.stdout
            assert "the name n0 leads to 172.16.0.3, by eno1 and not by ib0" in done.stderr

    def test_ma_03_own_name_may_be_loopback(self) -> None:
        """MA-03, Debian's 127.0.1.1: of no use to the others, and not needed here."""
        with net_space([("eth0", "10.1.0.11/24")], PEERS.format("127.0.1.1", "10.1.0.12")) as space:
            assert space.chosen()["GLOO_SOCKET_IFNAME"] == "eth0"

    def test_ma_03_anothers_name_must_not_be_loopback(self) -> None:
        """MA-03."""
        with net_space([("eth0", "10.1.0.12/24")], PEERS.format("127.0.1.1", "10.1.0.12")) as space:
            done = space.env(index=1)
            assert done.returncode == 3
            assert "n1 cannot reach n0: its name leads to 127.0.1.1" in done.stderr

    def test_no_address_is_shared_by_two_nodes(self) -> None:
        with net_space([("eth0", "10.1.0.11/24")], PEERS.format("10.1.0.11", "10.1.0.11")) as space:
            done = space.env()
            assert done.returncode == 3
            assert "n1 has the address 10.1.0.11 for n0, which is n0's own (eth0)" in done.stderr

    def test_no_route_is_told_at_once(self) -> None:
        with net_space([("eth0", "10.1.0.11/24")], PEERS.format("10.1.0.11", "10.7.0.1")) as space:
            done = space.env()
            assert done.returncode == 3
            assert "n0 cannot reach n1: Network is unreachable (10.7.0.1)" in done.stderr

    def test_a_route_into_docker_is_none(self) -> None:
        with net_space(
            [("docker0", "172.17.0.1/16"), ("eth0", "10.1.0.1/24")],
            PEERS.format("10.1.0.1", "172.17.0.9"),
        ) as space:
            done = space.env()
            assert done.returncode == 3
            assert "the route to n1 (172.17.0.9) leads into docker0" in done.stderr


def test_env_shows_the_choice_and_why_not_the_others() -> None:
    with net_space(CASES["NET-04"].interfaces, PEERS.format("172.31.0.10", "172.31.0.11")) as space:
        table = space.env(form="table").stdout.partition("\n\n")[2].splitlines()
    assert table == [
        "node       n0",
        "interface  ens5",
        "address    172.31.0.10",
        "speed      -",
        "HCAs       none",
        "GID        -",
        "evidence   measured: the way to n1 (172.31.0.11) leaves by it; read: no RDMA device",
        "not used   lo: loopback",
        "           far0: no address",
        "           veth75: of containers or virtual machines",
        "           far1: no address",
        "           docker0: of containers or virtual machines",
        "           far2: no address",
        "           br-1a2b: of containers or virtual machines",
        "           far3: no address",
        "           virbr0: of containers or virtual machines",
        "           far4: no address",
    ]

"""A machine's interfaces as the kernel tells them, for real; and the network that hosts share."""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netspace import NetSpace, net_space, unavailable
from slurm_adapter.cluster import Node
from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.job.job import Command, Job
from slurm_adapter.launch.ssh.network import candidates
from slurm_adapter.network.addresses import network_of
from slurm_adapter.network.interfaces import Address, Interface, read_interfaces
from slurm_adapter.network.rdma import Port
from slurm_adapter.network.report import Report
from slurm_adapter.network.routes import route_toward, why_never

TELL = """
import json, sys
from slurm_adapter.network.interfaces import read_interfaces
from slurm_adapter.network.routes import why_never
print(json.dumps([[one.name, one.kind, one.up, one.mtu, one.lower, one.members,
                   [str(address) for address in one.usable], why_never(one)]
                  for one in read_interfaces(None)]))
"""


@pytest.fixture
def space() -> Iterator[NetSpace]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with net_space([("eth0", "10.0.0.1/24", "fd00::1/64"), ("eth1",)], "") as space:
        yield space


def told(space: NetSpace) -> dict[str, list[object]]:
    done = space.run(sys.executable, "-c", TELL)
    assert done.returncode == 0, done.stderr
    return {name: rest for name, *rest in json.loads(done.stdout)}


def test_each_is_told_with_what_it_is_made_of(space: NetSpace) -> None:
    script = (
        "ip link add br0 type bridge && ip link set far0 master br0 && ip link set br0 up;"
        " ip addr add 10.5.0.1/16 dev br0;"
        " ip link add link eth0 name mac0 mtu 1400 type macvlan; ip link set mac0 up;"
        " ip addr add 169.254.3.4/16 dev mac0; ip link set eth1 down"
    )
    assert space.run("sh", "-c", script).returncode == 0
    found = told(space)
    here = "of containers or virtual machines"
    assert found["lo"] == ["loopback", True, 65536, None, [], [], "loopback"]
    assert found["eth0"] == ["veth", True, 1500, "far0", [], ["10.0.0.1/24", "fd00::1/64"], None]
    assert found["eth1"][:2] + found["eth1"][-1:] == ["veth", False, "down"]
    assert found["br0"][0] == "bridge"
    assert found["br0"][4:] == [["far0"], ["10.5.0.1/16"], None]
    assert found["mac0"] == ["macvlan", True, 1400, "eth0", [], [], "link-local address only"]
    assert here not in [one[-1] for one in found.values()]


def test_all_that_the_standard_library_sees_is_there() -> None:
    names = [interface.name for interface in read_interfaces(None)]
    assert names == [name for _, name in socket.if_nameindex()]


def test_speed_and_numa_node_are_read_where_the_driver_tells_them(tmp_path: Path) -> None:
    for name, speed, numa in (("lo", "100000", "1"), ("none", "-1", "-1")):
        (tmp_path / f"class/net/{name}/device").mkdir(parents=True)
        (tmp_path / f"class/net/{name}/speed").write_text(f"{speed}\n")
        (tmp_path / f"class/net/{name}/device/numa_node").write_text(f"{numa}\n")
    (lo,) = (one for one in read_interfaces(str(tmp_path)) if one.name == "lo")
    assert (lo.speed_mbps, lo.numa) == (100_000, 1)
    (lo,) = (one for one in read_interfaces(str(tmp_path / "nothing")) if one.name == "lo")
    assert (lo.speed_mbps, lo.numa) == (None, None)


@pytest.mark.parametrize(
    ("name", "never"),
    [
        ("docker0", True),
        ("docker_gwbridge", True),
        ("br-1a2b3c4d5e6f", True),
        ("virbr0", True),
        ("vnet3", True),
        ("cni0", True),
        ("flannel.1", True),
        ("cali12ab", True),
        ("br-ex", False),
        ("br0", False),
        ("vmbr0", False),
        ("bond0.301", False),
        ("ib0", False),
        ("net1", False),
    ],
)
def test_net_04_names_of_what_stays_on_a_machine(name: str, *, never: bool) -> None:
    """NET-04."""
    interface = Interface(name, (Address("10.0.0.1", 24),))
    assert (why_never(interface) is not None) == never


@pytest.mark.parametrize(
    ("address", "network"),
    [
        (Address("10.20.3.4", 16), "10.20.0.0/16"),
        (Address("192.168.9.40", 27), "192.168.9.32/27"),
        (Address("fd00:77::5:6", 64), "fd00:77::/64"),
        (Address("10.0.0.1", 32), "10.0.0.1/32"),
    ],
)
def test_the_network_of_an_address(address: Address, network: str) -> None:
    assert network_of(address.ip, address.prefix) == network


def test_ten_thousand_peers_are_few_questions(space: NetSpace) -> None:
    """The kernel is asked for one of each 256; the figure is in the benchmarks."""
    script = (
        "from slurm_adapter.network.interfaces import read_interfaces\n"
        "from slurm_adapter.network import routes\n"
        "peers = {f'n{i}': f'10.0.{i >> 8}.{i & 255}' for i in range(2, 10_000)}\n"
        "asked, real = [], routes._source\n"
        "routes._source = lambda *one: asked.append(one) or real(*one)\n"
        "route, said = routes.route_toward('n1', peers, 'n2', read_interfaces(None))\n"
        "print(route.interface, route.address, len(asked), said)\n"
    )
    assert space.run("ip", "route", "add", "10.0.0.0/8", "via", "10.0.0.254").returncode == 0
    done = space.run(sys.executable, "-c", script)
    assert done.stdout == "eth0 10.0.0.1 40 []\n", done.stderr


def interfaces(*nets: tuple[str, str, int | None]) -> tuple[Interface, ...]:
    """Return interfaces: name, address/bits, Mb/s."""
    return tuple(
        Interface(
            name, (Address(ip.partition("/")[0], int(ip.partition("/")[2])),), speed_mbps=speed
        )
        for name, ip, speed in nets
    )


def report(*nets: tuple[str, str, int | None], rdma: bool = False) -> Report:
    ports = (Port("mlx5_0", 1, "InfiniBand", active=True, gbps=200.0),) if rdma else ()
    return Report(interfaces(*nets), ports, None, {}, {}, 4000)


class TestTheNetworkOfHosts:
    NODES = (Node("a"), Node("b"))

    def names(
        self, *reports: Report, nodes: tuple[Node, ...] = NODES, **overrides: str
    ) -> list[str]:
        job = Job(Command("true"), code="/c", folder="/f", network=overrides)
        reached = [one.interfaces[0].addresses[0].ip for one in reports]
        return [one.name for one in candidates(job, nodes, reports, reached)]

    def test_is_that_by_which_they_were_reached(self) -> None:
        nets = [
            [("eno1", f"172.16.0.{n}/16", None), ("ib0", f"10.0.0.{n}/24", None)] for n in (1, 2)
        ]
        assert self.names(*(report(*one) for one in nets)) == ["172.16.0.0/16", "10.0.0.0/24"]

    def test_is_the_fastest_where_there_is_no_rdma(self) -> None:
        nets = [
            [("eno1", f"172.16.0.{n}/16", 1000), ("ens1", f"10.0.0.{n}/24", 100_000)]
            for n in (1, 2)
        ]
        assert self.names(*(report(*one) for one in nets))[0] == "10.0.0.0/24"
        assert self.names(*(report(*one, rdma=True) for one in nets))[0] == "172.16.0.0/16"

    def test_may_be_routed(self) -> None:
        a, b = report(("eth0", "10.1.1.5/24", None)), report(("eth0", "10.1.2.5/24", None))
        assert self.names(a, b) == ["the addresses of the host list"]

    def test_is_none_where_two_have_one_address(self) -> None:
        a, b = report(("eth0", "10.1.1.5/24", None)), report(("eth0", "10.1.1.5/24", None))
        with pytest.raises(ClusterUnfitError) as error:
            self.names(a, b)
        assert error.value.found.splitlines() == [
            "a,b have no network in common",
            "a: eth0 (10.1.1.5)",
            "b: eth0 (10.1.1.5)",
        ]

    def test_is_what_the_host_list_says(self) -> None:
        nodes = (Node("a", interface="ib0"), Node("b", address="10.0.0.2"))
        nets = [
            [("eno1", f"172.16.0.{n}/16", None), ("ib0", f"10.0.0.{n}/24", None)] for n in (1, 2)
        ]
        assert self.names(*(report(*one) for one in nets), nodes=nodes) == [
            "the network that you chose"
        ]

    def test_an_address_that_nobody_has_is_told(self) -> None:
        nodes = (Node("a"), Node("b", address="10.0.0.9"))
        a, b = report(("eth0", "10.0.0.1/24", None)), report(("eth0", "10.0.0.2/24", None))
        with pytest.raises(ClusterUnfitError) as error:
            self.names(a, b, nodes=nodes)
        assert error.value.found == (
            "b has no interface with 10.0.0.9, the address in the host list"
        )


class TestWhatANodeTells:
    def test_comes_back_as_it_was(self) -> None:
        told = report(("eth0", "10.0.0.1/24", 1000), rdma=True)
        assert Report.from_json(told.to_json()) == told

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{}", '{"interfaces": 3}', '{"interfaces": [{"name": 3, "addresses": []}]}'],
    )
    def test_makes_sense_or_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it is
            Report.from_json(text)

    def test_no_number_is_taken_for_a_name(self) -> None:
        told = json.loads(report(("eth0", "10.0.0.1/24", 1000)).to_json())
        told["interfaces"][0]["addresses"][0]["ip"] = 7
        with pytest.raises(ValueError, match="7 is no str"):
            Report.from_json(json.dumps(told))


def test_nobody_else_has_a_way(space: NetSpace) -> None:
    del space
    with pytest.raises(ClusterUnfitError):
        route_toward("a", {"b": "127.0.0.9"}, "b", ())

"""By which interface a node reaches the others: as its kernel would, or as was chosen (NET-04)."""

from __future__ import annotations

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.addresses import is_within, source_toward
from slurm_adapter.network.choose import Route
from slurm_adapter.network.interfaces import listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_adapter.network.interfaces import Interface

# Made by container engines, network plug-ins and hypervisors for what runs on one machine.
_LOCAL_NAMES = (
    *("docker", "veth", "virbr", "vnet", "cni", "flannel", "cali", "cilium", "lxc", "lxdbr"),
    *("podman", "kube", "nodelocaldns", "weave", "tunl", "dummy", "ifb", "vmnet", "vboxnet"),
)
_NETWORK_OF_DOCKER = "br-"
_DIGITS = frozenset("0123456789abcdef")
_SIGNS = frozenset("^=,:")
"""What has a meaning of its own in NCCL's lists."""
_MOST_ASKED = 64
"""Peers of one network are reached alike: one of each is asked for, and no more than so many."""


def route_toward(
    node: str, peers: Mapping[str, str], master: str, interfaces: Sequence[Interface]
) -> tuple[Route, list[str]]:
    """Return the route to the other nodes that the kernel would take, and warnings.

    Args:
        node: this node's name, for messages.
        peers: addresses of other nodes by their names.
        master: the one of them that decides where routes differ.
        interfaces: all of this node's.

    Raises:
        ClusterUnfitError: where no route leads to a peer, where it leads back to this node, or
            into a network of containers.
    """
    found: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    for name in _some_of(peers, master):
        source = _source(node, name, peers[name])
        interface = holder_of(source, interfaces)
        if interface is None:  # an address that nobody has: local routes can say so
            raise _leads_nowhere(
                node, name, peers[name], f"by {source}, an address of no interface"
            )
        if source == peers[name]:
            raise ClusterUnfitError(
                f"{name} has the address {source} for {node}, which is {node}'s own"
                f" ({interface.name})",
                f"Give {name} its own address in the name service or in /etc/hosts on {node}.",
            )
        if is_local_name(interface.name):
            raise _leads_nowhere(
                node,
                name,
                peers[name],
                f"into {interface.name}, a network of"
                " containers or virtual machines on this machine",
            )
        found.setdefault(interface.name, []).append(name)
        sources.setdefault(interface.name, source)
    best = max(found, key=lambda name: (len(found[name]), master in found[name]))
    others = [
        f"{node} reaches {_some(names)} by {name}, not by {best} as the others: NCCL uses {best}"
        " alone. --network IFNAME chooses another"
        for name, names in found.items()
        if name != best
    ]
    first = found[best][0]
    reason = f"measured: the way to {first} ({peers[first]}) leaves by it"
    return Route(best, sources[best], reason), others


def route_named(node: str, name: str, interfaces: Sequence[Interface], family: int = 0) -> Route:
    """Return the route by an interface of the user's choice; `family` is 4, 6, or 0 for either.

    Raises:
        ClusterUnfitError: where it is not there, down, or without an address.
    """
    for interface in interfaces:
        if interface.name == name:
            wanted = [one for one in interface.usable if not family or one.is_ipv6 == (family == 6)]  # noqa: PLR2004
            if interface.up and wanted:
                return Route(name, wanted[0].ip, "configured: the interface that you chose")
            break
    raise ClusterUnfitError(
        f"{node} has no interface {name} that is up and has an address",
        f"{node} has: {listed(interfaces)}.",
    )


def route_within(node: str, subnet: str, interfaces: Sequence[Interface]) -> Route:
    """Return the route by the interface that has an address in a network.

    Raises:
        ClusterUnfitError: where none has.
    """
    for interface in interfaces:
        for address in interface.usable:
            if interface.up and is_within(address.ip, subnet):
                return Route(interface.name, address.ip, f"configured: its address is in {subnet}")
    raise ClusterUnfitError(
        f"{node} has no address in {subnet}", f"{node} has: {listed(interfaces)}."
    )


def _some_of(peers: Mapping[str, str], master: str) -> list[str]:
    """Return one peer of each network of 256 addresses (IPv6: /64), the master first."""
    found: dict[str, str] = {}
    for name, ip in ((master, peers[master]), *peers.items()):
        cut = ip.rfind(".") if "." in ip else ip.find("::")
        found.setdefault(ip[:cut], name)
    names = list(found.values())
    step = -(-len(names) // _MOST_ASKED)
    return names[::step]


def _source(node: str, name: str, ip: str) -> str:
    try:
        return source_toward(ip)
    except OSError as error:
        raise ClusterUnfitError(
            f"{node} cannot reach {name}: {error.strerror} ({ip})",
            f"Make the name {name} resolve to a reachable address on every node; try"
            f" `getent hosts {name}` there. Where nodes have several networks,"
            " --network SUBNET or --master-suffix SUFFIX chooses.",
        ) from error


def _leads_nowhere(node: str, name: str, ip: str, where: str) -> ClusterUnfitError:
    return ClusterUnfitError(
        f"{node}: the route to {name} ({ip}) leads {where}",
        "Choose the network with --network SUBNET or --network IFNAME.",
    )


def _some(names: Iterable[str]) -> str:
    first, *rest = names
    return first if not rest else f"{first} and {len(rest)} more"


def why_never(interface: Interface) -> str | None:
    """Return why an interface cannot be what connects nodes, None where it may be."""
    reasons = (
        (interface.kind == "loopback" or interface.name == "lo", "loopback"),
        (is_local_name(interface.name), "of containers or virtual machines"),
        (not interface.up, "down"),
        (not interface.addresses, "no address"),
        (not interface.usable, "link-local address only"),
        (bool(set(interface.name) & _SIGNS), "a name that NCCL and Gloo cannot be told"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def is_local_name(name: str) -> bool:
    """Say whether a name is one that software gives to a network inside one machine."""
    if name.startswith(_NETWORK_OF_DOCKER):  # br-1a2b3c4d5e6f is Docker's, br-ex is not
        return _DIGITS.issuperset(name.removeprefix(_NETWORK_OF_DOCKER))
    return name.startswith(_LOCAL_NAMES)


def holder_of(address: str, interfaces: Iterable[Interface]) -> Interface | None:
    """Return the interface that has an address, None where none has."""
    for interface in interfaces:
        if any(one.ip == address for one in interface.addresses):
            return interface
    return None

"""The network of a Slurm step: each node decides by itself, with the addresses of the others."""

from __future__ import annotations

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network import routes
from slurm_adapter.network.addresses import (
    HOSTS,
    is_loopback,
    is_within,
    look_up_all,
    read_hosts_file,
)
from slurm_adapter.network.choose import choose, given_variables, rdma_chooser
from slurm_adapter.network.interfaces import has_rdma, interfaces_of, sysfs_root
from slurm_adapter.paths import read_text
from slurm_adapter.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_adapter.job.job import Job
    from slurm_adapter.network.choose import Choice, Route
    from slurm_adapter.network.gids import NcclVersion
    from slurm_adapter.network.interfaces import Interface
    from slurm_adapter.network.rdma import Port
    from slurm_adapter.network.table import Row


@record
class NodeNetwork:
    """What a node of a step found out about its network."""

    choice: Choice
    addresses: Mapping[str, str]
    """Of the nodes that were looked up, by their names."""
    interfaces: tuple[Interface, ...]
    sysfs: str

    def row(self, node: str) -> Row:
        """Return it as a row of a table."""
        from slurm_adapter.network.table import row_of  # only where it is shown
        from slurm_adapter.network.topology import gpus_near

        ports = () if self.choice.hcas is None else self.choice.hcas.ports
        near = gpus_near(self.sysfs, list(dict.fromkeys(port.device for port in ports)))
        return row_of(node, self.choice, self.interfaces, near)


def choose_in_step(
    names: Sequence[str], index: int, job: Job, environment: Mapping[str, str], *, show: bool
) -> NodeNetwork:
    """Return what this node's ranks should use to reach the others.

    Args:
        names: all nodes' host names, in rank order; two at least.
        index: which of them this is.
        job: what to run; its `network` holds what the user and the site say.
        environment: what the rank inherits.
        show: whether what was found is shown: interfaces' speeds are read then.

    Raises:
        AdapterError: where the nodes cannot meet, or a variable of the user's names nothing here.
    """
    own, sysfs = names[index], sysfs_root(environment)
    interfaces = interfaces_of(own, sysfs if show else None)
    # Rank 0's node looks toward its first neighbour, all others toward rank 0's node.
    master = names[0] if index else names[1]
    peers = _peers(names, index, master, job.network.get("subnet"))
    route, warnings = _route(own, peers, master, job, interfaces)
    given = given_variables(job.env, environment)
    ports = _rdma_ports(sysfs)

    def find() -> NcclVersion:
        from slurm_adapter.node.facts.nccl import find_nccl  # few nodes need it

        return find_nccl(job, job.python, environment)

    choice = choose(
        own, route, interfaces, given, rdma_chooser(own, ports, given, job.network, find)
    )
    choice = replace(choice, warnings=(*warnings, *choice.warnings))
    return NodeNetwork(choice, {**peers, own: route.address}, interfaces, sysfs)


def _rdma_ports(sysfs: str) -> tuple[Port, ...]:
    if not has_rdma(sysfs):
        return ()
    from slurm_adapter.network.rdma import read_ports  # few nodes need it

    return read_ports(sysfs)


def _peers(names: Sequence[str], index: int, master: str, subnet: str | None) -> dict[str, str]:
    """Return the addresses of other nodes: of all that the hosts file knows, of two by DNS.

    Ten thousand nodes that look each other up would be a hundred million questions. Where a
    subnet was chosen all are needed: their names lead elsewhere, too.
    """
    own, after = names[index], names[(index + 1) % len(names)]  # in a ring
    if subnet is not None:
        return {name: _looked_up(own, name, subnet) for name in names if name != own}
    known = read_hosts_file(read_text(HOSTS))
    peers = {name: known[name] for name in names if name in known and name != own}
    for name in (master, after, *peers):
        if is_loopback(peers.get(name, "127.")):
            peers[name] = _looked_up(own, name, None)
    return peers


def _looked_up(own: str, name: str, subnet: str | None) -> str:
    found = look_up_all(name)
    if subnet is not None:
        within = [address for address in found if is_within(address, subnet)]
        if found and not within:
            raise ClusterUnfitError(
                f"{own}: no address of {name} is in {subnet}, only {', '.join(found)}",
                "Where nodes have names of their own on that network, --master-suffix SUFFIX adds"
                " what those end in.",
            )
        found = within
    why = ""
    if not found:
        why = "the name does not resolve"
    elif is_loopback(found[0]):
        why = f"its name leads to {found[0]}, which never leads to another node"
    if why:
        raise ClusterUnfitError(
            f"{own} cannot reach {name}: {why}",
            f"Make the name {name} resolve to a reachable address on every node; try"
            f" `getent hosts {name}` there.",
        )
    return found[0]


def _route(
    own: str, peers: Mapping[str, str], master: str, job: Job, interfaces: Sequence[Interface]
) -> tuple[Route, list[str]]:
    """Return the route that the user or the site chose, else the kernel's; and warnings."""
    overrides = job.network
    if "subnet" in overrides:
        return routes.route_within(own, overrides["subnet"], interfaces), []
    if "socket_ifname" not in overrides:
        return routes.route_toward(own, peers, master, interfaces)
    family = 6 if ":" in peers[master] else 4
    route = routes.route_named(own, overrides["socket_ifname"], interfaces, family)
    kernels, _ = routes.route_toward(own, {master: peers[master]}, master, interfaces)
    if kernels.interface == route.interface:
        return route, []
    return route, [
        f"{own}: the name {master} leads to {peers[master]}, by {kernels.interface} and not by"
        f" {route.interface}: ranks meet there. --network SUBNET or --master-suffix SUFFIX has them"
        " meet on the network that you chose"
    ]

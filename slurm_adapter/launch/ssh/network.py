"""The network of a job over SSH: the head sees all nodes, decides once, and has it tried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.cluster.hostlist import fold_hostlist
from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.launch.ssh.fleet import of_each
from slurm_adapter.network.addresses import network_of
from slurm_adapter.network.choose import Route, choose, given_variables, rdma_chooser
from slurm_adapter.network.gids import NcclVersion
from slurm_adapter.network.interfaces import listed
from slurm_adapter.network.routes import holder_of, route_named, route_within, why_never
from slurm_adapter.node.protocol.messages import Tried, TryConnections
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurm_adapter.cluster import Node
    from slurm_adapter.job.job import Job
    from slurm_adapter.launch.ssh.fleet import AgentFleet
    from slurm_adapter.network.choose import Choice
    from slurm_adapter.network.report import Report

_MOST_NETWORKS = 4
"""How many networks are tried; more than these do not lead from node to node anywhere."""
_MOST_SHOWN = 4


@dataclass(frozen=True)
class Network:
    """One network by which all nodes may be able to meet."""

    name: str
    routes: tuple[Route, ...]
    """For each node, in rank order."""
    speed_mbps: int
    """The least of the interfaces', 0 where one does not say."""
    reached: bool
    """Whether these are the addresses at which the head reached the nodes."""


def choose_network(
    job: Job,
    nodes: Sequence[Node],
    reports: Sequence[Report],
    reached: Sequence[str],
    fleet: AgentFleet,
) -> list[Choice]:
    """Return for each node what its ranks should use, after nodes have connected to each other.

    Args:
        job: what to run.
        nodes: in rank order; `interface` and `address` where the host list gives them.
        reports: what each of them told.
        reached: the address at which each was reached.
        fleet: their agents.

    Raises:
        AdapterError: where no network connects them all, or a variable names nothing on a node.
    """
    networks = candidates(job, nodes, reports, reached)
    failures = _tried(networks, nodes, reports, fleet)
    good = [one for one, failed in zip(networks, failures, strict=True) if not failed]
    if not good:
        raise ClusterUnfitError(
            f"the nodes cannot reach each other in {networks[0].name}\n"
            + "\n".join(_shown(failures[0])),
            "A firewall between the nodes, or a network that ends at each of them?"
            " --network SUBNET chooses another.",
        )
    network = good[0]
    without = [
        f"not {one.name}: {failed[0]}"
        for one, failed in zip(networks, failures, strict=True)
        if failed and networks.index(one) < networks.index(network)
    ]
    reasoned = [
        _reasoned(network, route, index, nodes, without)
        for index, route in enumerate(network.routes)
    ]
    return of_each(
        lambda node, report, route: _choose(job, node, report, route),
        zip(nodes, reports, reasoned, strict=True),
    )


def candidates(
    job: Job, nodes: Sequence[Node], reports: Sequence[Report], reached: Sequence[str]
) -> list[Network]:
    """Return the networks in which all nodes have an address, the best first.

    The best is that at whose addresses the nodes were reached; or, where no RDMA carries the data,
    the fastest, as far as all drivers tell their speed.

    Raises:
        ClusterUnfitError: there is none.
    """
    fixed = of_each(
        lambda node, report: _fixed(job, node, report), zip(nodes, reports, strict=True)
    )
    if None not in fixed:
        return [_network("the network that you chose", fixed, reports, reached)]
    # A node whose route is fixed has that one into each network.
    open_routes = [
        _by_network(report) if route is None else None
        for route, report in zip(fixed, reports, strict=True)
    ]
    first = next(one for one in open_routes if one is not None)
    names = [name for name in first if all(one is None or name in one for one in open_routes)]
    found = []
    for name in names:
        into = [
            route if one is None else one[name]
            for route, one in zip(fixed, open_routes, strict=True)
        ]
        found.append(_network(name, into, reports, reached))
    if not any(one.reached for one in found):
        into = [
            route or _at(report, at)
            for route, report, at in zip(fixed, reports, reached, strict=True)
        ]
        if None not in into:
            found.append(_network("the addresses of the host list", into, reports, reached))
    found = [one for one in found if len({route.address for route in one.routes}) == len(nodes)]
    if not found:
        raise _no_common(nodes, reports)
    rdma = all(any(port.active for port in report.ports) for report in reports)
    found.sort(key=lambda one: (0 if rdma else -one.speed_mbps, not one.reached, ":" in one.name))
    return found[:_MOST_NETWORKS]


def _fixed(job: Job, node: Node, report: Report) -> Route | None:
    """Return the route that the user or the site chose for a node, None where nobody did."""
    overrides = job.network
    if node.interface is not None:
        route = route_named(node.name, node.interface, report.interfaces)
        return replace(route, reason="configured: the interface that the host list names")
    if node.address is not None:
        holder = holder_of(node.address, report.interfaces)
        if holder is None:
            raise ClusterUnfitError(
                f"{node.name} has no interface with {node.address}, the address in the host list",
                f"{node.name} has: {listed(report.interfaces)}.",
            )
        why = "configured: it has the address that the host list gives"
        return Route(holder.name, node.address, why)
    if "subnet" in overrides:
        return route_within(node.name, overrides["subnet"], report.interfaces)
    if "socket_ifname" in overrides:
        return route_named(node.name, overrides["socket_ifname"], report.interfaces)
    return None


def _by_network(report: Report) -> dict[str, Route]:
    """Return a node's route into each network that it has an address in."""
    found: dict[str, Route] = {}
    for interface in report.interfaces:
        if why_never(interface) is None:
            for address in interface.usable:
                name = network_of(address.ip, address.prefix)
                found.setdefault(name, Route(interface.name, address.ip, ""))
    return found


def _at(report: Report, address: str) -> Route | None:
    holder = holder_of(address, report.interfaces)
    return None if holder is None else Route(holder.name, address, "")


def _network(
    name: str, found: Sequence[Route | None], reports: Sequence[Report], reached: Sequence[str]
) -> Network:
    """Return a network; none of the routes may be None."""
    into = tuple(route for route in found if route is not None)
    speeds = [
        next((one.speed_mbps or 0 for one in report.interfaces if one.name == route.interface), 0)
        for route, report in zip(into, reports, strict=True)
    ]
    same = all(route.address == at for route, at in zip(into, reached, strict=True))
    return Network(name, into, min(speeds), same)


def _tried(
    networks: Sequence[Network],
    nodes: Sequence[Node],
    reports: Sequence[Report],
    fleet: AgentFleet,
) -> list[list[str]]:
    """Have each node connect to the next one and to rank 0's; return the failures of each network.

    In a ring every node is reached by one and reaches one; node 0 is where all ranks meet.
    """
    ring = [sorted({0, (index + 1) % len(nodes)} - {index}) for index in range(len(nodes))]
    requests = [
        TryConnections(
            tuple(
                (network.routes[index].address, network.routes[peer].address, reports[peer].listens)
                for network in networks
                for peer in peers
            )
        )
        for index, peers in enumerate(ring)
    ]
    answers = fleet.ask(requests, Tried)
    failures: list[list[str]] = [[] for _ in networks]
    for index, (peers, answer) in enumerate(zip(ring, answers, strict=True)):
        results = iter(answer.reasons)
        for network, failed in zip(networks, failures, strict=True):
            for peer in peers:
                why = next(results, "it did not say")
                if why:
                    route, other = network.routes[index], network.routes[peer]
                    failed.append(
                        f"{nodes[index].name} ({route.interface}, {route.address}) cannot reach"
                        f" {nodes[peer].name} ({other.address}): {why[:80]}"
                    )
    return failures


def _reasoned(
    network: Network, route: Route, index: int, nodes: Sequence[Node], without: Sequence[str]
) -> Route:
    """Return a route with the evidence that it leads to the others."""
    peer = nodes[0 if index else 1].name
    reason = f"measured: connected to {peer} from {route.address}"
    if route.reason:
        reason = f"{route.reason}; {reason}"
    elif network.speed_mbps and not network.reached:
        reason += f", the fastest network that all nodes share ({network.speed_mbps / 1000:g} Gb/s)"
    return replace(route, reason="; ".join((reason, *without)))


def _choose(job: Job, node: Node, report: Report, route: Route) -> Choice:
    given = given_variables({**job.env, **node.env}, report.given)
    nccl = report.nccl or NcclVersion(None, "not looked for")
    rdma = rdma_chooser(node.name, report.ports, given, job.network, lambda: nccl)
    return choose(node.name, route, report.interfaces, given, rdma)


def _no_common(nodes: Sequence[Node], reports: Sequence[Report]) -> ClusterUnfitError:
    shown = [
        f"{node.name}: {listed(one for one in report.interfaces if why_never(one) is None)}"
        for node, report in zip(nodes[:_MOST_SHOWN], reports, strict=False)
    ]
    return ClusterUnfitError(
        f"{fold_hostlist([node.name for node in nodes])} have no network in common\n"
        + "\n".join(shown),
        "Give each its address on the network that connects them: address=IP in the host file.",
    )


def _shown(failures: Sequence[str]) -> Iterator[str]:
    yield from failures[:_MOST_SHOWN]
    if len(failures) > _MOST_SHOWN:
        yield f"and {len(failures) - _MOST_SHOWN} connections more"

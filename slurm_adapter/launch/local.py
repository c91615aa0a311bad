"""A job on this machine: N nodes simulated, node i at 127.0.0.(10+i); its plan and views."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from slurm_adapter.cluster import Cluster, Node, Run
from slurm_adapter.cluster.counts import VISIBLE_DEVICES, device_list
from slurm_adapter.contracts import contract_of, wanted_view
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.job.options import VIEWS
from slurm_adapter.network.addresses import check_port_free, is_own_address
from slurm_adapter.node.facts import ports
from slurm_adapter.node.facts.accelerators import count_accelerators
from slurm_adapter.node.ranks.machine import MachineFleet
from slurm_adapter.node.ranks.packages import install, package_settings
from slurm_adapter.node.ranks.spawn import make_start
from slurm_adapter.node.view.selection import SelectedView, select_view
from slurm_adapter.plan import Plan, make_plan
from slurm_adapter.record import replace
from slurm_adapter.setting import Setting, unbuffered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurm_adapter.job.job import Job

_FIRST_ADDRESS, _MOST_NODES = 10, 244
_STDERR = 2
_LOOPBACK = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


@dataclass(frozen=True)
class LocalRun:
    """A job that only has to be started here."""

    plan: Plan
    views: tuple[SelectedView, ...]
    """Of each node; empty where ranks get none of their own."""
    warnings: tuple[str, ...]

    def close(self) -> None:
        """Let go of what was prepared: ranks that run have it for themselves."""
        for one in self.views:
            one.close()


def prepare_local(job: Job, environment: Mapping[str, str], *, only_try: bool = False) -> LocalRun:
    """Return the plan of a job whose nodes are all this machine, with what its ranks start in.

    Args:
        job: what to run.
        environment: what ranks inherit.
        only_try: make no folder; only show what ranks would get, from the first node's.

    Raises:
        AdapterError: where this machine has too few GPUs, or no port is free.
    """
    plan = _plan(job, environment)
    if job.install_requirements:
        every = range(job.nodes)
        plan = plan.with_settings({index: package_settings(plan, index) for index in every})
    if plan.cluster.nodes[0].view == "off":
        plan = _filled(plan, environment)
        return LocalRun(plan, (), plan.warnings)
    found = _select_views(plan, environment, only_try=only_try)
    plan = plan.with_view(found[0].level)
    for index, one in enumerate(found):
        plan = plan.with_node_view(index, one.level, one.wrapper)
    plan = _filled(plan, environment)
    warnings = [one.warning for one in found if one.warning]
    return LocalRun(plan, tuple(found), (*plan.warnings, *warnings[:1]))


def _select_views(
    plan: Plan, environment: Mapping[str, str], *, only_try: bool
) -> list[SelectedView]:
    """Give all nodes the same: what the least of them got, where namespaces run out midway."""
    count = 1 if only_try else len(plan.cluster.nodes)
    found: list[SelectedView] = []
    for index in range(count):
        found.append(select_view(plan.node(index, ()), environment, only_try=only_try))
        least = max(found, key=lambda one: VIEWS.index(one.level))
        if least.level != found[0].level:
            for one in found:
                one.close()
            again = _select_views(plan.with_view(least.level), environment, only_try=only_try)
            return [replace(one, warning=least.warning or one.warning) for one in again]
    return found


def _filled(plan: Plan, environment: Mapping[str, str]) -> Plan:
    for index in range(len(plan.cluster.nodes)):
        plan = plan.filled(index, environment)
    return plan


def install_packages(plan: Plan, environment: Mapping[str, str]) -> None:
    """Install what `pip-requirements.txt` lists, where the user asked for it."""
    if not plan.job.install_requirements:
        return
    for index in range(len(plan.cluster.nodes)):
        node = plan.node(index)
        rank = node.ranks[0]
        install(node, rank, rank.environment(environment), output=_STDERR)


def start_here(run: LocalRun, environment: Mapping[str, str]) -> MachineFleet:
    """Start all ranks of a prepared job as children of this process.

    Raises:
        ClusterUnfitError: where one cannot be started; then none is.
    """
    fleet = MachineFleet()
    namespaces = [one.namespaces for one in run.views] or [None] * len(run.plan.cluster.nodes)
    starts = [make_start(one, environment, namespaces[one.node_index]) for one in run.plan.ranks()]
    try:
        fleet.start(starts)
    finally:
        run.close()
    return fleet


def _plan(job: Job, environment: Mapping[str, str]) -> Plan:
    if job.nodes > _MOST_NODES:
        raise BadValueError(
            f"{job.nodes} nodes cannot be simulated on one machine",
            f"Give --nodes {_MOST_NODES} or fewer (127.0.0.10 to 127.0.0.253).",
        )
    job.check_kept(environment)
    nodes = tuple(_nodes(job, environment))
    cluster = Cluster(nodes, "the local run", addressed=True)
    _check_master(job)
    wanted = job.wanted_port(environment)
    if wanted is not None:
        port, reason = wanted
        check_port_free(port, reason)
        ports.take(port)  # others are not to find it free
    else:
        address = str(nodes[0].address)
        port = ports.take_free_port(address)
        reason = f"the first free one on {address} from {ports.FIRST_PORT} up"
    contract = contract_of(job)
    ranks = sum(contract.ranks_on(node) * (contract.fan_out(node) or 1) for node in nodes)
    own = (item for item in _settings(ranks) if item.name not in environment)
    settings = (*own, *unbuffered(environment))
    return make_plan(
        job,
        cluster,
        Run(str(uuid4()), port, reason, "ma-job- and a UUID drawn for this run", settings),
    )


def _check_master(job: Job) -> None:
    wanted = job.env.get("MASTER_ADDR")
    if wanted is not None and not is_own_address(wanted):
        raise BadValueError(
            f"MASTER_ADDR={wanted} is no address of this machine, where all ranks run",
            "Leave MASTER_ADDR out.",
        )


def _settings(ranks: int) -> Iterator[Setting]:
    for name in _LOOPBACK:
        yield Setting(name, "lo", "all nodes are on this machine")
    threads = max(1, (os.cpu_count() or 1) // ranks)
    yield Setting("OMP_NUM_THREADS", str(threads), "this machine's cores, shared out")


def _nodes(job: Job, environment: Mapping[str, str]) -> Iterator[Node]:
    variable, devices = _devices(environment)
    share = len(devices) // job.nodes if job.gpus_per_node is None else job.gpus_per_node
    if devices and not share and job.gpus_per_node is None:
        raise ClusterUnfitError(
            f"{job.nodes} nodes cannot share the {len(devices)} GPU(s) of this machine",
            f"Give --nodes {len(devices)} or fewer, or --gpus-per-node 0 to run on the CPU.",
        )
    if devices and share * job.nodes > len(devices):
        raise ClusterUnfitError(
            f"{job.nodes} nodes with {share} GPUs each need {share * job.nodes}, this machine has"
            f" {len(devices)}",
            f"Give --gpus-per-node {len(devices) // job.nodes}, or fewer nodes.",
        )
    view = wanted_view(job, 1)  # the ranks of a node share what it gives
    for index in range(job.nodes):
        mine = ",".join(devices[index * share : (index + 1) * share])
        why = "this machine's GPUs, shared out" if devices else "simulated: this machine has none"
        settings = (Setting(variable, mine, why),) if devices else ()
        yield Node(
            f"node{index}",
            address=f"127.0.0.{_FIRST_ADDRESS + index}",
            gpus=share,
            gpus_reason=why if share or devices else "this machine has no GPU",
            settings=settings,
            view=view,
        )


def _devices(environment: Mapping[str, str]) -> tuple[str, list[str]]:
    for name in VISIBLE_DEVICES:
        if name in environment:
            return name, device_list(environment[name])
    return VISIBLE_DEVICES[0], [str(number) for number in range(count_accelerators())]

"""A job over SSH: all hosts looked at, one plan for them, and then all ranks started, or none."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from uuid import uuid4

from slurm_adapter.cluster import Cluster, Node, Run
from slurm_adapter.cluster.counts import VISIBLE_DEVICES
from slurm_adapter.contracts import wanted_view
from slurm_adapter.errors import ClusterUnfitError, printable
from slurm_adapter.job.options import VIEWS
from slurm_adapter.launch.snapshot import rebase
from slurm_adapter.launch.ssh.network import choose_network
from slurm_adapter.network.addresses import is_loopback
from slurm_adapter.network.choose import not_known_yet
from slurm_adapter.network.report import Report
from slurm_adapter.network.table import row_of
from slurm_adapter.node.agent.leftovers import RUN_VARIABLE
from slurm_adapter.node.facts.ports import FIRST_PORT
from slurm_adapter.node.protocol.messages import Facts, Look, Ready, TakePlan
from slurm_adapter.node.protocol.records import pack_plans
from slurm_adapter.node.ranks.packages import package_settings
from slurm_adapter.plan import Plan, make_plan
from slurm_adapter.record import replace
from slurm_adapter.setting import Setting, extended, is_secret, unbuffered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurm_adapter.job.job import Job
    from slurm_adapter.launch.ssh.fleet import AgentFleet
    from slurm_adapter.network.choose import Choice
    from slurm_adapter.network.table import Row

# What crosses to other machines unasked: how libraries run, not where this machine's network is.
CROSSING = (
    *("NCCL_*", "GLOO_*", "TORCH_*", "PYTORCH_*", "TORCHINDUCTOR_*", "TRITON_*", "HF_*"),
    *("OMP_*", "MKL_*", "KMP_*", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "CUBLAS_*"),
    *("PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONFAULTHANDLER", "PYTHONWARNINGS"),
    *("TOKENIZERS_PARALLELISM", "WANDB_MODE", "LANG", "LC_*", "TZ"),
)
OF_THIS_MACHINE = (
    *("*_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_TOPO_*", "NCCL_HOSTID"),
    *("*_HOME", "*_CACHE", "*_CACHE_DIR", "*_DIR", "*_FILE", "*_PATH"),
)


def crossing(environment: Mapping[str, str]) -> Iterator[Setting]:
    """Yield what is taken along from the head's environment without being asked for.

    Secrets never are, nor what describes this very machine.
    """
    for name in sorted(environment):
        if (
            any(fnmatchcase(name, pattern) for pattern in CROSSING)
            and not any(fnmatchcase(name, pattern) for pattern in OF_THIS_MACHINE)
            and not is_secret(name)
        ):
            yield Setting(name, environment[name], "taken along from your environment")


def look_around(
    job: Job,
    nodes: Sequence[Node],
    fleet: AgentFleet,
    run: str,
    environment: Mapping[str, str],
    *,
    code_is_there: bool = True,
    copies: Sequence[str] | None = None,
) -> tuple[Plan, list[Row]]:
    """Have all agents look at their nodes; return the plan for what they found, and their network.

    Args:
        job: what to run; its `env` is complete.
        nodes: the hosts, in rank order.
        fleet: their agents.
        run: this run's UUID.
        environment: the head's own.
        code_is_there: whether hosts are to have the code by now.
        copies: which version of its copy of the code is meant on each host; None where the code
            is no copy.

    Raises:
        AdapterError: where the job cannot run there.
    """
    wanted = job.wanted_port(environment)
    requests = [
        Look(
            job=job,
            name=node.name,
            address=node.address,
            python=node.python,
            several=len(nodes) > 1,
            code=code_is_there,
            copy=None if copies is None else copies[index],
            first=index == 0,
            port=wanted,
            run=run,
            detached=fleet.timing.detached,
            grace_s=fleet.timing.grace_s,
            link_s=fleet.timing.link_s,
        )
        for index, node in enumerate(nodes)
    ]
    found = fleet.ask(requests, Facts, fleet.timing.first_s)
    for agent, facts in zip(fleet.agents, found, strict=True):
        agent.clock_s = agent.answered_s - facts.clock_s
    known = tuple(_known(job, node, facts) for node, facts in zip(nodes, found, strict=True))
    _check_addresses(known)
    rows: list[Row] = []
    warnings: list[str] = []
    if all(facts.network is not None for facts in found):
        reports = [_report(node, facts) for node, facts in zip(nodes, found, strict=True)]
        reached = [facts.address for facts in found]
        choices = choose_network(job, nodes, reports, reached, fleet)
        known = tuple(_on_network(*one) for one in zip(known, choices, strict=True))
        for node, choice, report in zip(nodes, choices, reports, strict=True):
            rows.append(row_of(node.name, choice, report.interfaces, report.gpus_near))
            warnings += choice.warnings
    if wanted is None:
        port = found[0].port or FIRST_PORT
        reason = f"the first free one on {known[0].address} from {FIRST_PORT} up"
    else:
        port, reason = wanted
    cluster = Cluster(known, "the host list", addressed=True)
    plan = make_plan(job, cluster, _run(run, port, reason, environment))
    plan = _with_search_paths(plan)
    return replace(plan, warnings=(*plan.warnings, *warnings)), rows


def dry_plan(job: Job, nodes: Sequence[Node], environment: Mapping[str, str]) -> Plan:
    """Return the plan as far as it is known without asking any host."""
    known = tuple(_known(job, node, None) for node in nodes)
    if len(known) > 1:
        more = not_known_yet({})
        known = tuple(replace(one, settings=(*one.settings, *more)) for one in known)
    wanted = job.wanted_port(environment)
    port, reason = wanted or (FIRST_PORT, "or the next one that is free on the first host")
    plan = make_plan(
        job,
        Cluster(known, "the host list", addressed=True),
        _run(new_run(), port, reason, environment),
    )
    return _with_search_paths(plan)


def _with_search_paths(plan: Plan) -> Plan:
    """Let ranks find the job's own interpreter as `python`, and what is installed for them."""
    nodes = plan.cluster.nodes
    plan = plan.with_settings({at: _interpreter(plan, node) for at, node in enumerate(nodes)})
    if not plan.job.install_requirements:
        return plan
    return plan.with_settings({index: package_settings(plan, index) for index in range(len(nodes))})


def _interpreter(plan: Plan, node: Node) -> tuple[Setting, ...]:
    """Let `python` in a boot command, or in what a script starts, be the job's own (SSH-04)."""
    folder = os.path.dirname(node.python or plan.job.python)
    if not folder:
        return ()
    return (extended("PATH", "the job's interpreter first", before=(folder,)),)


def _run(uuid: str, port: int, reason: str, environment: Mapping[str, str]) -> Run:
    settings = (
        *crossing(environment),
        *unbuffered(environment),
        Setting(RUN_VARIABLE, uuid, "by which leftovers would be found"),
    )
    return Run(uuid, port, reason, "ma-job- and a UUID drawn for this run", settings)


def settle(plan: Plan, fleet: AgentFleet, *, only_try: bool = False) -> Plan:
    """Give every node its part of the plan; return the plan that all nodes can keep to.

    Where nodes give their ranks less than was planned, all are given their parts of another plan,
    made for just that.

    Args:
        plan: as `look_around` returned it.
        fleet: the agents.
        only_try: make nothing on the nodes, and return the plan without holes: as they fill them.

    Raises:
        AdapterError: naming every node that cannot; the fleet has to be ended then.
    """
    final = plan
    answers = _give(plan, fleet, only_try=only_try)
    for index, one in enumerate(answers):
        final = final.with_node_view(index, one.view, one.wrapper)
    if final is not plan:
        answers = _give(final, fleet, only_try=only_try)
        for one, node in zip(answers, final.cluster.nodes, strict=True):
            if one.view != node.view:
                raise ClusterUnfitError(f"{node.name} says now this, now that of its view")
    if only_try:
        for index, one in enumerate(answers):
            final = final.filled(index, dict(one.own_values))
    return final


def start(plan: Plan, fleet: AgentFleet) -> Plan:
    """Settle a plan, and when all nodes are ready start all ranks; return what they start by.

    Raises:
        AdapterError: naming every node that cannot; the fleet has to be ended then.
    """
    final = settle(plan, fleet)
    fleet.run(
        [
            range(first, first + count)
            for first, count in zip(plan.first_ranks, plan.ranks_per_node, strict=True)
        ]
    )
    return final


def _give(plan: Plan, fleet: AgentFleet, *, only_try: bool) -> list[Ready]:
    """Give every node its part of a plan; return what they say to it."""
    parts = map(plan.node, range(len(plan.cluster.nodes)))
    answers = fleet.ask([TakePlan(part, only_try) for part in pack_plans(parts)], Ready)
    for one in answers:
        if one.view not in VIEWS:
            raise ClusterUnfitError(f"a node gives a view that there is not: {printable(one.view)}")
    return answers


def _known(job: Job, node: Node, facts: Facts | None) -> Node:
    """Return a node with what is known of it now."""
    gpus, reason, settings = _gpus(job, node, None if facts is None else facts.gpus)
    return replace(
        node,
        address=node.address if facts is None else facts.address,
        address_reason=node.address_reason if node.address else "where this machine reached it",
        gpus=gpus,
        gpus_reason=reason,
        settings=settings,
        view=wanted_view(job, 1),  # the ranks of a node share what it gives
    )


def _report(node: Node, facts: Facts) -> Report:
    try:
        return Report.from_json(facts.network or "")
    except ValueError as error:
        raise ClusterUnfitError(
            f"{node.name}: what it tells of its network makes no sense"
        ) from error


def _on_network(node: Node, choice: Choice) -> Node:
    """Return a node as it is reached on the network that was chosen."""
    return replace(
        node,
        address=choice.route.address,
        address_reason=f"its address on {choice.route.interface}",
        settings=(*node.settings, *choice.settings),
    )


def _gpus(job: Job, node: Node, found: int | None) -> tuple[int | None, str, tuple[Setting, ...]]:
    """Return (GPUs to use, who says so, variables that leave the others alone)."""
    wanted, reason = job.gpus_per_node, "given by --gpus-per-node"
    if wanted is None:
        wanted, reason = node.slots, "slots in the host list"
    if wanted is None:
        if found is None:
            return None, "counted on the host before the job starts", ()
        return found, "counted there" if found else "no GPU there", ()
    if not found:
        return wanted, reason + ("" if found is None else "; it has no GPU"), ()
    if wanted > found:
        raise ClusterUnfitError(
            f"{node.name} has {found} GPUs, {wanted} are wanted ({reason})",
            f"Give {node.name}:{found}, or --gpus-per-node {found}.",
        )
    if wanted == found or VISIBLE_DEVICES[0] in node.env:
        return wanted, reason, ()
    devices = ",".join(map(str, range(wanted)))
    return wanted, reason, (Setting(VISIBLE_DEVICES[0], devices, f"{reason}: {wanted} of {found}"),)


def _check_addresses(nodes: Sequence[Node]) -> None:
    """Refuse addresses at which the nodes could not meet."""
    seen: dict[str, str] = {}
    for node in nodes:
        address = str(node.address)
        if address in seen:
            raise ClusterUnfitError(
                f"{seen[address]} and {node.name} have the same address, {address}",
                "Name each machine once; where both are reached through one address, give each"
                " its own: address=IP in the host file.",
            )
        seen[address] = node.name
    loopback = [node for node in nodes if is_loopback(str(node.address))]
    if loopback and len(loopback) < len(nodes):
        raise ClusterUnfitError(
            f"{loopback[0].name} was reached at {loopback[0].address}, which never leads there from"
            " another machine",
            "Give the address by which the others reach it: address=IP in the host file.",
        )


def rebase_to_hosts(job: Job) -> Job:
    """Return a job that is run from the copy of its code directory in its folder on each host."""
    return rebase(job, f"{job.folder}/code/{os.path.basename(job.code)}")


def new_run() -> str:
    """Return a UUID for a run."""
    return str(uuid4())

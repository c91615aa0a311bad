"""Inside a Slurm step: step and job become this rank's plan, and its view."""

from __future__ import annotations

import os

from slurm_adapter.cluster import Cluster, Node, Run
from slurm_adapter.cluster.counts import gpu_count, visible_devices
from slurm_adapter.cluster.slurm import Step, read_step
from slurm_adapter.contracts import wanted_view, with_exported_master
from slurm_adapter.errors import NotAStepError, StepError
from slurm_adapter.network.addresses import own_address
from slurm_adapter.paths import read_text
from slurm_adapter.plan import NodePlan, Plan, RankPlan, make_plan
from slurm_adapter.record import record, replace
from slurm_adapter.setting import unbuffered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.job.job import Job
    from slurm_adapter.node.step.network import NodeNetwork
    from slurm_adapter.node.view.selection import SelectedView

_STEP_TITLE = "slurmstepd: ["
_MOST_ANCESTORS = 16
# The namespace for object identifiers of RFC 9562.
_UUID_SPACE = bytes.fromhex("6ba7b8129dad11d180b400c04fd430c8")


@record
class Ready:
    """A rank that only has to be started."""

    plan: Plan
    node: NodePlan
    """This node's part of it, with the ranks that this task starts or becomes."""
    view: SelectedView | None
    """None where it gets none of its own."""
    warnings: tuple[str, ...]
    """What this process is to warn of: the node's own, and for all ranks those of the plan."""
    network: NodeNetwork | None = None
    """What was found out about the node's network; None where the job has no other node."""

    @property
    def rank(self) -> RankPlan:
        """The rank that this task becomes, or the first of those that it starts."""
        return self.node.ranks[0]


def plan_rank(job: Job, environment: Mapping[str, str], *, only_try: bool = False) -> Ready:
    """Return the plan of the step this process runs in, and that of its own rank.

    Args:
        job: what to run.
        environment: the task's variables.
        only_try: make no folder and keep no namespace; only show what the rank would get.

    Raises:
        AdapterError: where this is no step, or where the job cannot run in it.
    """
    step = read_step(environment, read_text)
    _check_daemon(step, environment)
    job.check_kept(environment)
    order = step.node_order
    index = order.index(step.node_index)
    cluster, found = _cluster(step, index, job, environment, only_try=only_try)
    run = _run(step, job, environment)
    sized = job.with_nodes(len(step.nodes), cluster.nodes[index].gpus)
    plan = make_plan(with_exported_master(sized, environment), cluster, run)
    if job.install_requirements:
        from slurm_adapter.node.ranks.packages import package_settings

        plan = plan.with_settings({index: package_settings(plan, index, step.local_rank)})
    view = None
    if cluster.nodes[index].view != "off":
        from slurm_adapter.node.view import selection  # 5 ms, not needed without a view

        view = selection.select_view(plan.node(index, ()), environment, only_try=only_try)
        plan = plan.with_node_view(index, view.level, view.wrapper)
    plan = plan.filled(index, environment)
    own = None if job.node_starts_ranks else [plan.rank(step.rank, index, step.local_rank)]
    node = plan.node(index, own)
    first = node.ranks[0].rank == 0
    warnings = (*plan.warnings, *_device_warnings(step, environment)) if first else ()
    if found is not None and step.local_rank == 0:
        warnings = (*warnings, *found.choice.warnings)
    if view is not None and view.warning:
        warnings = (*warnings, view.warning)
    return Ready(plan, node, view, warnings, found)


def derive_uuid(environment: Mapping[str, str], step_id: str) -> str:
    """Return a UUID (version 5) of this run of the step, the same for all ranks without talking.

    Made by hand as RFC 9562 has it: importing `uuid` and `hashlib` would cost a rank 9 ms
    (`_sha1` is what `hashlib.sha1` is without OpenSSL).
    """
    run = "/".join(
        (
            environment.get("SLURM_CLUSTER_NAME", ""),
            environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID", ""),
            step_id,
            environment.get("SLURM_RESTART_COUNT") or "0",
        )
    )
    try:
        from _sha1 import sha1  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha1
    digest = bytearray(sha1(_UUID_SPACE + f"slurm-adapter/{run}".encode()).digest()[:16])  # noqa: S324
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _check_daemon(step: Step, environment: Mapping[str, str]) -> None:
    """Refuse a batch or allocation shell whose left-over variables fit a step by chance (SL-07).

    The daemon that Slurm runs for each step stands above this process and names the step.
    """
    found = _step_daemon()
    if found is None or "SLURM_HET_SIZE" in environment or not found[0].isdigit():
        return
    if found != (step.job_id, step.step_id):
        from slurm_adapter.cluster.step_check import srun_line  # only for words

        raise NotAStepError(
            f"this runs under {'.'.join(found)} of Slurm, not under {step.label}, whose variables"
            " are left over",
            srun_line(len(step.nodes)),
        )


def _step_daemon() -> tuple[str, str] | None:
    """Return (job, step) as the Slurm daemon above this process names them in its title.

    `slurmstepd: [12.0]` for a step, `[12.batch]` for a batch script; None where no such daemon
    can be seen (in a container, say).
    """
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        title = read_text(f"/proc/{pid}/cmdline")
        if title.startswith(_STEP_TITLE):  # of most ranks the parent: one file is opened
            label, bracket, _ = title.removeprefix(_STEP_TITLE).partition("]")
            job_id, _, step_id = label.partition(".")
            return (job_id, step_id) if bracket and job_id and step_id else None
        name, _, rest = read_text(f"/proc/{pid}/stat").rpartition(")")
        fields = rest.split()
        if "(slurmstepd" in name or len(fields) < 2 or fields[1] in "01":  # noqa: PLR2004
            return None
        pid = int(fields[1])
    return None


def _cluster(
    step: Step, index: int, job: Job, environment: Mapping[str, str], *, only_try: bool
) -> tuple[Cluster, NodeNetwork | None]:
    """Return the step's nodes in the order of their first ranks; this one's facts are known."""
    view = wanted_view(job, step.local_size)
    suffix = job.network.get("master_suffix", "")
    order = step.node_order
    nodes = [
        Node(step.nodes[at] + suffix, tasks=step.tasks_per_node[at], view=view) for at in order
    ]
    if step.components:
        nodes = [
            replace(node, part=step.components[at]) for node, at in zip(nodes, order, strict=True)
        ]
    gpus, reason = _gpus(step, job, environment)
    nodes[index] = replace(nodes[index], gpus=gpus, gpus_reason=reason)
    if job.node_starts_ranks:
        from slurm_adapter.node.step.per_node import with_own_ranks  # seldom

        nodes = with_own_ranks(nodes, index, step.label, job, environment)
    own = nodes[index]
    if len(nodes) == 1:
        why = "what this node's own name resolves to"
        nodes = [replace(own, address=own_address(own.name), address_reason=why)]
        return Cluster(tuple(nodes), step.label), None
    from slurm_adapter.node.step.network import choose_in_step  # others have no network

    found = choose_in_step([node.name for node in nodes], index, job, environment, show=only_try)
    settings = (*own.settings, *found.choice.settings)
    nodes[index] = replace(own, address=found.choice.route.address, settings=settings)
    if "subnet" in job.network:
        nodes = [replace(node, address=found.addresses[node.name]) for node in nodes]
    return Cluster(tuple(nodes), step.label, addressed="subnet" in job.network), found


def _gpus(step: Step, job: Job, environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the GPUs this node's ranks may use, and what said so."""
    if job.gpus_by_component:
        return _gpus_of_component(
            step, job.gpus_by_component, environment
        ), "given by --gpus-per-node"
    if job.gpus_per_node is not None:
        return job.gpus_per_node, "given by --gpus-per-node"
    visible, counted = visible_devices(environment), gpu_count(environment)
    if visible is not None and (counted is None or step.local_size == 1):
        return visible[1], f"counted in {visible[0]}"
    if counted is not None:
        return counted[0], f"from {counted[1]}"
    from slurm_adapter.node.facts.accelerators import count_accelerators  # seldom

    found = count_accelerators()
    if found:
        return found, "device files on this node: Slurm does not say"
    return 0, "no GPUs in the step, none on this node"


def _gpus_of_component(step: Step, by_part: tuple[int, ...], environment: Mapping[str, str]) -> int:
    """Return what `--gpus-per-node N,N` says of this node's component."""
    size = int(environment["SLURM_HET_SIZE"]) if step.components else 1
    if len(by_part) != size:
        raise StepError(
            f"--gpus-per-node {','.join(map(str, by_part))} is for the {len(by_part)} components of"
            f" a heterogeneous job, and the job of {step.label} has {size}",
            "Give a number for each component, or one for all.",
        )
    return by_part[step.components[step.node_index]]


def _run(step: Step, job: Job, environment: Mapping[str, str]) -> Run:
    reason = f"10000 to 32767, from job {step.job_id} and step {step.step_id}"
    derived = step.port, reason
    port, reason = job.wanted_port(environment) or derived
    settings = unbuffered(environment)
    return Run(derive_uuid(environment, step.step_id), port, reason, settings=settings)


def _device_warnings(step: Step, environment: Mapping[str, str]) -> list[str]:
    """Notice tasks that were bound to fewer GPUs than there are tasks on the node (SL-11)."""
    visible = visible_devices(environment)
    if visible is None or not 0 < visible[1] < step.local_size:
        return []
    return [
        f"each of the {step.local_size} tasks on this node sees {visible[1]} GPU"
        f" ({visible[0]}={environment[visible[0]]}): scripts that select device number LOCAL_RANK"
        " fail. Let every task see all GPUs (srun --gpus-per-node instead of --gpus-per-task, or"
        " --gpu-bind=none), start one task on each node (--ntasks-per-node=1, and exec"
        " --ranks-by node), or select LOCAL_RANK modulo the visible devices, as"
        " slurm_adapter.torch.init_process_group() does"
    ]

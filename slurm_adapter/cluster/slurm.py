"""Reading Slurm: the SLURM_* variables of one task become a `Step`.

The step's variables come before the job's (SL-06, SL-09), and nothing outside the mapping is
asked, except the host file of an arbitrary distribution, which is read through a parameter.
Checked against Slurm 22.05; the variables are those of srun(1), section OUTPUT ENVIRONMENT
VARIABLES.
"""

from __future__ import annotations

from slurm_adapter.cluster.counts import gpus_on_node, is_number, parse_tasks_per_node
from slurm_adapter.cluster.hostlist import expand_hostlist
from slurm_adapter.errors import NodeListError, StepError
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FIRST_PORT, _PORTS = 10_000, 22_768
# Steps of a job stand this far apart, so that neighbours among jobs and among steps never meet.
_STEP_STRIDE = 7_919
_TASKS_PER_NODE = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")


@record
class Step:
    """One task's view of the Slurm step it runs in."""

    rank: int
    """SLURM_PROCID: the global rank, from 0."""
    world_size: int
    """Tasks in the step."""
    local_rank: int
    local_size: int
    """Tasks on this task's node."""
    node_index: int
    """SLURM_NODEID: index of this task's node in `nodes`."""
    nodes: tuple[str, ...]
    """Names of the step's nodes, in node order (the order that SLURM_NODEID counts)."""
    tasks_per_node: tuple[int, ...]
    """Tasks on each node of `nodes`."""
    master: str
    """Name of the node of rank 0; under an arbitrary distribution any of `nodes`."""
    gpus_on_node: int | None
    """GPUs of the step on this node; None where Slurm does not say (SL-10: never assumed)."""
    job_id: str
    step_id: str
    restart_count: int = 0
    """How often the job was requeued before."""
    cluster_name: str = ""
    node_order: tuple[int, ...] = ()
    """Indices into `nodes` in the order of each node's first rank, where Slurm says it."""
    components: tuple[int, ...] = ()
    """The component of a heterogeneous job that each node is in; empty in any other job."""

    @property
    def port(self) -> int:
        """The rendezvous port that all ranks of the step derive alike."""
        return derive_port(self.job_id, self.step_id)

    @property
    def label(self) -> str:
        """`step JOB.STEP`, for messages and reasons."""
        return f"step {self.job_id}.{self.step_id}"


def read_step(
    environment: Mapping[str, str], read_text: Callable[[str], str] | None = None
) -> Step:
    """Return the step that a task's environment describes.

    Args:
        environment: the SLURM_* variables of one task (others are ignored).
        read_text: reads the host file named by SLURM_HOSTFILE; needed only where the
            distribution is arbitrary and this task is not rank 0.

    Raises:
        NotAStepError: outside Slurm, in a batch script and in an salloc shell, with the srun
            line to use (SL-07, SL-08).
        StepError: where the variables are broken or contradict each other.
        NodeListError: where the node list cannot be read.
    """
    in_step = _is_in_step(environment)
    stale = _stale_variable(environment) if in_step else ""
    if not in_step or stale or "SLURM_PROCID" not in environment:
        from slurm_adapter.cluster.step_check import refusal  # only for words

        raise refusal(environment, stale)
    nodes, tasks, parts = _layout(environment)
    rank = _number(environment, "SLURM_PROCID")
    node_index = _node_id(environment, nodes)
    alone = 0 if node_index < len(tasks) and tasks[node_index] == 1 else None
    local_rank = _number(environment, "SLURM_LOCALID", default=alone)
    world_size = _number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", default=sum(tasks))
    if sum(tasks) != world_size:
        raise StepError(
            f"the step has {world_size} tasks, but its tasks per node add up to {sum(tasks)}",
            "Start it again with srun; do not set SLURM_* variables by hand.",
        )
    if node_index >= len(nodes) or rank >= world_size or local_rank >= tasks[node_index]:
        raise StepError(
            f"task {rank} (number {local_rank} on node {node_index}) does not fit a step of"
            f" {world_size} tasks on {len(nodes)} nodes",
            "Start it again with srun; do not set SLURM_* variables by hand.",
        )
    order = _node_order(environment, nodes, rank, node_index, read_text)
    return Step(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_size=tasks[node_index],
        node_index=node_index,
        nodes=nodes,
        tasks_per_node=tasks,
        master=nodes[order[0]],
        gpus_on_node=gpus_on_node(environment),
        job_id=environment.get("SLURM_JOB_ID") or environment["SLURM_JOBID"],
        step_id=environment.get("SLURM_STEP_ID") or environment["SLURM_STEPID"],
        restart_count=_number(environment, "SLURM_RESTART_COUNT", default=0),
        cluster_name=environment.get("SLURM_CLUSTER_NAME", ""),
        node_order=order,
        components=parts,
    )


def _is_in_step(environment: Mapping[str, str]) -> bool:
    job_id = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID", "")
    # Slurm's own steps (batch script, extern, interactive shell of salloc) have ten digits.
    step_id = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID", "")
    return job_id.isdecimal() and is_number(step_id)


def _stale_variable(environment: Mapping[str, str]) -> str:
    """Return a step variable that a newer job contradicts, or nothing.

    srun writes each of these pairs alike; sbatch and salloc rewrite only the first of a pair,
    so a difference means that the step belongs to the job this one was submitted from.
    """
    for job_name, step_name in (
        ("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"),
        ("SLURM_NNODES", "SLURM_STEP_NUM_NODES"),
        ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"),
    ):
        job_value, step_value = environment.get(job_name), environment.get(step_name)
        if job_value and step_value and job_value != step_value:
            return f"{step_name}={step_value}, but {job_name}={job_value}"
    step_nodes = environment.get("SLURM_STEP_NODELIST")
    job_nodes = environment.get("SLURM_JOB_NODELIST")
    if step_nodes and job_nodes and step_nodes != job_nodes:
        outside = set(expand_hostlist(step_nodes)) - set(expand_hostlist(job_nodes))
        if outside:
            return f"SLURM_STEP_NODELIST={step_nodes} is not part of {job_nodes}"
    return ""


def derive_port(job_id: str, step_id: str) -> int:
    """Return a port from 10000 to 32767, below every usual ephemeral range (MA-02).

    The same for all ranks without talking; it depends on job and step, not on the array (MA-01).
    """
    return _FIRST_PORT + (int(job_id) + int(step_id) * _STEP_STRIDE) % _PORTS


def _layout(
    environment: Mapping[str, str],
) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
    """Return node names, tasks per node and components, in the order that SLURM_NODEID counts."""
    nodes = _nodes(environment)
    if len(nodes) == 1 and not _any_set(environment, *_TASKS_PER_NODE):
        return nodes, (_number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),), ()
    variable = _first_set(environment, *_TASKS_PER_NODE)
    tasks = parse_tasks_per_node(environment[variable], variable)
    if len(tasks) != len(nodes):
        raise StepError(
            f"{variable}={environment[variable]} describes {len(tasks)} nodes, the node list"
            f" has {len(nodes)}: {', '.join(nodes[:4])}{', ...' if len(nodes) > 4 else ''}",  # noqa: PLR2004
            "Start it again with srun; do not set SLURM_* variables by hand.",
        )
    parts: tuple[int, ...] = ()
    if "SLURM_HET_SIZE" in environment:
        from slurm_adapter.cluster.step_components import component_order, components

        if found := components(environment):
            nodes, tasks, parts = zip(*component_order(nodes, tasks, found), strict=True)
            _check_own_tasks(environment, nodes, tasks, variable)
    _check_own_node(environment, nodes)
    return nodes, tasks, parts


def _nodes(environment: Mapping[str, str]) -> tuple[str, ...]:
    variable = _first_set(
        environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"
    )
    try:
        return tuple(expand_hostlist(environment[variable]))
    except NodeListError as error:
        raise NodeListError(f"{variable}: {error.found}", error.remedy) from error


def _check_own_node(environment: Mapping[str, str], nodes: tuple[str, ...]) -> None:
    name = environment.get("SLURMD_NODENAME")
    index = _node_id(environment, nodes)
    if name and name in nodes and index < len(nodes) and nodes[index] != name:
        raise StepError(
            f"this is {name}, but node {index} of the step's list is {nodes[index]}",
            "The order of this node list is not known to slurm-adapter; report it with"
            " `env | grep ^SLURM` of two tasks.",
        )


def _check_own_tasks(
    environment: Mapping[str, str], nodes: tuple[str, ...], tasks: tuple[int, ...], variable: str
) -> None:
    """Refuse tasks per node in another order than expected: this task knows its own node's."""
    own = environment.get("SLURM_GTIDS")
    index = _node_id(environment, nodes)
    if own and index < len(tasks) and len(own.split(",")) != tasks[index]:
        raise StepError(
            f"{nodes[index]} has the tasks {own}, but {variable}={environment[variable]} gives it"
            f" {tasks[index]}: how many the other nodes have is not known",
            "Start it again with srun --het-group; if it stays so, report it with"
            " `env | grep ^SLURM` of two tasks.",
        )


def _node_order(
    environment: Mapping[str, str],
    nodes: tuple[str, ...],
    rank: int,
    node_index: int,
    read_text: Callable[[str], str] | None,
) -> tuple[int, ...]:
    """Return node indices in the order of their first ranks.

    Block, cyclic and plane distributions all give the first ranks in node order. An arbitrary
    one follows the lines of SLURM_HOSTFILE, and only rank 0 knows by itself where rank 0 is.
    """
    straight = tuple(range(len(nodes)))
    if environment.get("SLURM_DISTRIBUTION", "").partition(",")[0] != "arbitrary":
        if rank == 0 and node_index != 0:
            return (node_index, *(index for index in straight if index != node_index))
        return straight
    path = environment.get("SLURM_HOSTFILE")
    position = {name: index for index, name in enumerate(nodes)}
    if path and read_text is not None:
        order = dict.fromkeys(
            position[name] for name in read_text(path).split() if name in position
        )
        if set(order) == set(straight):
            return tuple(order)
    if rank == 0:
        return (node_index, *(index for index in straight if index != node_index))
    raise StepError(
        "the distribution is arbitrary, and nothing here says on which node rank 0 runs",
        f"Make the file {path or 'named by SLURM_HOSTFILE'} readable on every node, or use"
        " --distribution=block.",
    )


def _node_id(environment: Mapping[str, str], nodes: tuple[str, ...]) -> int:
    own = environment.get("SLURMD_NODENAME", "")
    known = nodes.index(own) if own in nodes else 0 if len(nodes) == 1 else None
    return _number(environment, "SLURM_NODEID", default=known)


def _any_set(environment: Mapping[str, str], *names: str) -> str | None:
    return next((name for name in names if environment.get(name)), None)


def _first_set(environment: Mapping[str, str], *names: str) -> str:
    name = _any_set(environment, *names)
    if name is not None:
        return name
    raise _missing(names)


def _number(environment: Mapping[str, str], *names: str, default: int | None = None) -> int:
    for name in names:
        text = environment.get(name)
        if text:
            if not is_number(text):
                raise StepError(
                    f"{name}={text!r} is not a number",
                    "Start it again with srun; do not set SLURM_* variables by hand.",
                )
            return int(text)
    if default is not None:
        return default
    raise _missing(names)


def _missing(names: tuple[str, ...]) -> StepError:
    return StepError(
        f"none of {', '.join(names)} is set" if len(names) > 1 else f"{names[0]} is not set",
        "Start it with srun, which sets it in every task.",
    )

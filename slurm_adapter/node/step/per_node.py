"""The nodes of a step in which one task on each starts the ranks: how many each of them has."""

from __future__ import annotations

import os

from slurm_adapter.cluster.counts import count_gpus
from slurm_adapter.contracts.place import refuse_more_tasks
from slurm_adapter.errors import StepError
from slurm_adapter.record import replace
from slurm_adapter.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_adapter.cluster import Node
    from slurm_adapter.job.job import Job

_REQUEST = "SLURM_GPUS_PER_NODE"
_THREADS = "OMP_NUM_THREADS"


def with_own_ranks(
    nodes: Sequence[Node], index: int, step: str, job: Job, environment: Mapping[str, str]
) -> list[Node]:
    """Return the nodes without Slurm's tasks: a rank for each GPU takes their place.

    Args:
        nodes: all nodes in rank order, with Slurm's tasks; the GPUs of this one are counted.
        index: which node this is.
        step: what the step is called.
        job: what to run.
        environment: the task's variables.

    Raises:
        StepError: where a node has several tasks, or where nothing says how many GPUs the others
            have: ranks are counted through all nodes.
    """
    refuse_more_tasks(
        nodes,
        step,
        "with --ranks-by node one task on each node starts all ranks there",
        "--ranks-by slurm for a task for each rank",
    )
    own = nodes[index]
    gpus = own.gpus or 0
    if own.part is not None:
        counts = [_gpus_of_component(node.part or 0, job, environment) for node in nodes]
        if counts[index] != gpus:
            raise _unknown(own, f"{_REQUEST}_HET_GROUP_{own.part}={counts[index]}")
    else:
        counts = [gpus] * len(nodes)
        if len(nodes) > 1 and job.gpus_per_node is None:
            _check_alike(own, environment)
    ranks = gpus or 1
    settings = own.settings
    if _THREADS not in environment and ranks > 1:
        threads = max(1, len(os.sched_getaffinity(0)) // ranks)
        shared = Setting(_THREADS, str(threads), "this task's cores, shared out among its ranks")
        settings = (*settings, shared)
    found = [
        replace(node, tasks=None, gpus=count) for node, count in zip(nodes, counts, strict=True)
    ]
    found[index] = replace(own, tasks=None, settings=settings)
    return found


def _gpus_of_component(part: int, job: Job, environment: Mapping[str, str]) -> int:
    """Return the GPUs of each node of a component, as given or as they were asked for."""
    if job.gpus_by_component:
        return job.gpus_by_component[part]
    if job.gpus_per_node is not None:
        return job.gpus_per_node
    name = f"{_REQUEST}_HET_GROUP_{part}"
    text = environment.get(name)
    if text:
        return count_gpus(text, name)
    raise StepError(
        "--ranks-by node counts ranks through all nodes, and nothing says how many GPUs those of"
        f" component {part} have ({name} is not set)",
        "Give exec the number in each component, as in --gpus-per-node 4,2 (0: no GPU).",
    )


def _check_alike(own: Node, environment: Mapping[str, str]) -> None:
    """Refuse nodes whose GPUs nobody here can know: only a request for each node tells of all."""
    text = environment.get(_REQUEST)
    if not text:
        raise StepError(
            "--ranks-by node counts ranks through all nodes, and nothing says how many GPUs the"
            f" others have ({_REQUEST} is not set)",
            "Give exec --gpus-per-node N too (0: no GPU), or ask for them by #SBATCH"
            " --gpus-per-node=N: Slurm does not tell tasks of srun's own option.",
        )
    if count_gpus(text, _REQUEST) != own.gpus:
        raise _unknown(own, f"{_REQUEST}={text}")


def _unknown(own: Node, request: str) -> StepError:
    return StepError(
        f"{own.name} has {own.gpus} GPUs in this step ({own.gpus_reason}), and {request}: how many"
        " the other nodes have is not known",
        "Give exec --gpus-per-node N, the number that each node has in the step (N,N,...: a number"
        " for each component of a heterogeneous job).",
    )

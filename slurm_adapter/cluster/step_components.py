"""The components of a heterogeneous job of Slurm: `#SBATCH hetjob` stands between them.

All processes of such a job are told of each component by variables that end in `_HET_GROUP_N`. A
job that is submitted from within one inherits them: they are another job's then, and do not count.
"""

from __future__ import annotations

from slurm_adapter.cluster.counts import is_number
from slurm_adapter.cluster.hostlist import expand_hostlist
from slurm_adapter.errors import StepError
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST = 1_000


@record
class Component:
    """One component: nodes that were asked for alike."""

    number: int
    nodes: tuple[str, ...]
    tasks: int | None
    """Tasks that were asked for in all, None where Slurm does not say."""


def components(environment: Mapping[str, str]) -> tuple[Component, ...]:
    """Return the components that this process's job has; none where it has no more than one.

    Raises:
        StepError: where Slurm tells of fewer components than there are.
    """
    size = environment.get("SLURM_HET_SIZE", "")
    own = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    if not is_number(size) or int(size) > _MOST:
        return ()
    ids = [environment.get(f"SLURM_JOB_ID_HET_GROUP_{number}") for number in range(int(size))]
    if own not in ids:
        return ()
    found = []
    for number in range(int(size)):
        nodes = environment.get(f"SLURM_JOB_NODELIST_HET_GROUP_{number}")
        tasks = environment.get(f"SLURM_NTASKS_HET_GROUP_{number}", "")
        if not nodes:
            raise StepError(
                f"this heterogeneous job has {size} components, and nothing says which nodes"
                f" component {number} has (SLURM_JOB_NODELIST_HET_GROUP_{number} is not set)",
                "Start it again with srun --het-group; do not set SLURM_* variables by hand.",
            )
        count = int(tasks) if is_number(tasks) else None
        found.append(Component(number, tuple(expand_hostlist(nodes)), count))
    return tuple(found)


def component_order(
    nodes: Sequence[str], tasks: Sequence[int], found: Sequence[Component]
) -> list[tuple[str, int, int]]:
    """Return (node, its tasks, its component's number), component after component.

    A step over several components has its node list and tasks per node sorted by name, while
    SLURM_NODEID and the ranks count through the components (seen on 22.05: component 0 on the
    last node of the list has node id 0).

    Raises:
        StepError: where a node of the step is in no component, or in two.
    """
    tasks_of = dict(zip(nodes, tasks, strict=True))
    order = [
        (name, tasks_of[name], one.number)
        for one in found
        for name in one.nodes
        if name in tasks_of
    ]
    if sorted(name for name, _, _ in order) != sorted(nodes):
        known = {name for name, _, _ in order}
        strays = [name for name in nodes if name not in known]
        what = f"{strays[0]} is in none of them" if strays else "a node is in two of them"
        raise StepError(
            f"the step's nodes are not those of this heterogeneous job's components: {what}",
            "Start it again with srun --het-group; do not set SLURM_* variables by hand.",
        )
    return order


def first_tasks(found: Sequence[Component]) -> dict[str, int]:
    """Return for each node the first rank of its component, where a step takes all tasks.

    srun's messages count the tasks of each component from 0.
    """
    first: dict[str, int] = {}
    rank = 0
    for one in found:
        first.update(dict.fromkeys(one.nodes, rank))
        if one.tasks is None:
            return {}
        rank += one.tasks
    return first

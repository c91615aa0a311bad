"""Further nodes of another kind in the same job: the components of a heterogeneous job of Slurm."""

from __future__ import annotations

from types import MappingProxyType

from slurm_adapter.errors import BadValueError
from slurm_adapter.record import checked_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_MOST_NODES = 100_000
_EMPTY: Mapping[str, Any] = MappingProxyType({})


@checked_record
class HetComponent:
    """Nodes that are alike, beside the first ones of a job: a component of a heterogeneous job."""

    nodes: int = 1
    gpus_per_node: int | None = None
    """None: whatever the node turns out to have."""
    accelerator: str = "gpu"
    cpus_per_task: int | None = None
    """CPUs of each node."""
    memory_mib: int | None = None
    """Memory for each node, in MiB."""
    slurm: Mapping[str, str | None] = _EMPTY
    """Long sbatch options that are these nodes' own, by name; None for a flag."""


def check_components(
    components: Sequence[HetComponent], first: int, contract: str, elastic: tuple[int, int] | None
) -> None:
    """Refuse components that no job can have.

    Args:
        components: those beside the first nodes.
        first: how many nodes the first component has.
        contract: how scripts learn their place.
        elastic: as the job has it.
    """
    if contract == "modelarts":
        raise BadValueError(
            "all nodes of a ModelArts job have one flavor, and this job has nodes of"
            f" {len(components) + 1} kinds",
            "Give --contract env or --contract torchrun with it, or leave the further parts out.",
        )
    if elastic is not None:
        raise BadValueError(
            "--elastic goes on with fewer nodes that are alike, and this job has nodes of"
            f" {len(components) + 1} kinds",
            "Leave --elastic out, or the further parts.",
        )
    for number, component in enumerate(components, 1):
        if component.nodes < 1 or first + sum(one.nodes for one in components) > _MOST_NODES:
            raise BadValueError(
                f"part {number}: {component.nodes} nodes cannot be asked for",
                f"Give a number from 1 up, as in nodes=1; a job has at most {_MOST_NODES:,}.",
            )
        if component.gpus_per_node is not None and component.gpus_per_node < 0:
            raise BadValueError(
                f"part {number}: {component.gpus_per_node} GPUs per node cannot be asked for",
                "Give 0 or more, as in gpus-per-node=2.",
            )

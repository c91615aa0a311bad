"""Further nodes of another kind: `--part WORDS` and `[[parts]]` become parts of a job."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.component import HetComponent
from slurm_adapter.job.flavor import read_flavor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.config.jobfile import ComponentTable
    from slurm_adapter.job.job import Job

_EXAMPLE = "--part 'nodes=1 gpus-per-node=2 partition=other'"
_NUMBERS = ("nodes", "gpus-per-node")


def read_components(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return what `--part` says, each as a table of a job file's `[[parts]]`.

    Raises:
        BadValueError: for words that are not understood.
    """
    return [_read_part(text) for text in texts]


def _read_part(text: str) -> dict[str, Any]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadValueError(f"--part {text!r} cannot be read: {error}", _EXAMPLE) from error
    if not words:
        raise BadValueError("--part is empty", f"Say which nodes are meant, as in {_EXAMPLE}.")
    table: dict[str, Any] = {}
    slurm: dict[str, str | bool] = {}
    for word in words:
        written, equals, value = word.partition("=")
        name = written.removeprefix("--").replace("_", "-")
        if name in table or name.replace("-", "_") in table or name in slurm:
            raise BadValueError(f"--part {text!r} says {name} twice", "Say it once.")
        if name in _NUMBERS:
            table[name.replace("-", "_")] = _number(name, value)
        elif name == "flavor":
            table[name] = value
        else:
            slurm[name] = value if equals else True
    return {**table, **({"slurm": slurm} if slurm else {})}


def _number(name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 6:  # noqa: PLR2004
        return int(text)
    raise BadValueError(
        f"--part: {name}={text} is not a number of {'nodes' if name == 'nodes' else 'GPUs'}",
        f"Write {name}=NUMBER, as in {_EXAMPLE}.",
    )


def make_component(table: ComponentTable) -> HetComponent:
    """Return the part that a table describes.

    Raises:
        BadValueError: for a flavor that is not known, or not for so many nodes.
    """
    slurm = {name: value or None for name, value in table.slurm.items()}
    if table.flavor is None:
        return HetComponent(table.nodes, table.gpus_per_node, slurm=slurm)
    flavor = read_flavor(table.flavor)
    if flavor.most_nodes is not None and table.nodes > flavor.most_nodes:
        raise BadValueError(
            f"the flavor {table.flavor} is for at most {flavor.most_nodes} nodes, not"
            f" {table.nodes}",
            "Ask for fewer nodes, or give another flavor.",
        )
    return HetComponent(
        nodes=table.nodes,
        gpus_per_node=flavor.cards if table.gpus_per_node is None else table.gpus_per_node,
        accelerator=flavor.accelerator or "gpu",
        cpus_per_task=flavor.cpus,
        memory_mib=flavor.memory_mib,
        slurm=slurm,
    )


def refuse_components(job: Job, command: str) -> None:
    """Refuse parts where nothing but Slurm makes of them what they say."""
    if job.components:
        raise BadValueError(
            f"[[parts]] are nodes that Slurm is asked for, and {command} asks for none",
            "Use slurm-adapter sbatch, or a job file without [[parts]].",
        )

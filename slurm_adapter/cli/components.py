"""Further nodes of another kind: `--part WORDS` and `[[parts]]` become its components."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.component import HetComponent
from slurm_adapter.job.flavor import read_flavor
from slurm_adapter.job.option import COUNT, SBATCH, options_of
from slurm_adapter.job.options import ComponentOptions
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.job.flavor import Flavor

_EXAMPLE = "--part 'nodes=1 gpus-per-node=2 partition=other'"
_KINDS = {one.name: one.kind for one in options_of(ComponentOptions) if one.kind != SBATCH}


def read_components(texts: Sequence[str]) -> tuple[ComponentOptions, ...]:
    """Return what `--part` says, each as a table of a job file's `[[parts]]` says it.

    Raises:
        BadValueError: for words that are not understood.
    """
    return tuple(_read_component(text) for text in texts)


def _read_component(text: str) -> ComponentOptions:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadValueError(f"--part {text!r} cannot be read: {error}", _EXAMPLE) from error
    if not words:
        raise BadValueError("--part is empty", f"Say which nodes are meant, as in {_EXAMPLE}.")
    own: dict[str, int | str] = {}
    slurm: dict[str, str | None] = {}
    for word in words:
        written, equals, value = word.partition("=")
        name = written.removeprefix("--").replace("_", "-")
        field = name.replace("-", "_")
        if field in own or name in slurm:
            raise BadValueError(f"--part {text!r} says {name} twice", "Say it once.")
        if field not in _KINDS:
            slurm[name] = value if equals else None
        else:
            own[field] = _number(name, value) if _KINDS[field] == COUNT else value
    return replace(ComponentOptions(slurm=slurm or None), **own)


def _number(name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 6:  # noqa: PLR2004
        return int(text)
    raise BadValueError(
        f"--part: {name}={text} is not a number of {'nodes' if name == 'nodes' else 'GPUs'}",
        f"Write {name}=NUMBER, as in {_EXAMPLE}.",
    )


def make_component(said: ComponentOptions) -> HetComponent:
    """Return the component that is asked for.

    Raises:
        BadValueError: for a flavor that is not known, or not for so many nodes.
    """
    nodes, slurm = 1 if said.nodes is None else said.nodes, said.slurm or {}
    if said.flavor is None:
        return HetComponent(nodes, said.gpus_per_node, slurm=slurm)
    flavor = flavor_for(said.flavor, nodes, "nodes=")
    return HetComponent(
        nodes=nodes,
        gpus_per_node=flavor.cards if said.gpus_per_node is None else said.gpus_per_node,
        accelerator=flavor.accelerator or "gpu",
        cpus_per_task=flavor.cpus,
        memory_mib=flavor.memory_mib,
        slurm=slurm,
    )


def flavor_for(text: str, nodes: int, how: str) -> Flavor:
    """Return a flavor for `nodes`, which are given in the words `how`.

    Raises:
        BadValueError: it is not known, or not for so many.
    """
    flavor = read_flavor(text)
    if flavor.most_nodes is not None and nodes > flavor.most_nodes:
        most = "1 node" if flavor.most_nodes == 1 else f"{flavor.most_nodes} nodes"
        raise BadValueError(
            f"the flavor {text} is for at most {most}, not {nodes}",
            f"Give {how}{flavor.most_nodes} or another flavor.",
        )
    return flavor

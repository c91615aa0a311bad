"""The rooms of the package and what each imports, read from the code: the drawing in docs/."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import grimp

import slurm_adapter

PACKAGE = "slurm_adapter"


def arrows(below: str = PACKAGE) -> Mapping[str, set[str]]:
    """Return for each room directly below a package the rooms beside it that it imports.

    A module that lies beside the rooms is a room of one file. Those that nothing of the project
    stands behind (`errors`, `record` and their like) are left out where all import them.
    """
    graph = grimp.build_graph(PACKAGE)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        own = _room(module, below)
        if own is None:
            continue
        found[own] |= set()
        for imported in graph.find_modules_directly_imported_by(module):
            other = _room(imported, below)
            if other not in (None, own):
                found[own].add(str(other))
    return found


def drawing(below: str = PACKAGE, without: frozenset[str] = frozenset()) -> str:
    """Return the rooms as lines, a room that imports others above all of those."""
    edges = {
        room: others - without for room, others in arrows(below).items() if room not in without
    }
    width = max(map(len, edges))
    height = _heights(edges)
    order = sorted(edges, key=lambda room: (-height[room], room))
    lines = [f"    {room:{width}} → {', '.join(sorted(edges[room])) or '-'}" for room in order]
    count = sum(map(len, edges.values()))
    return "\n".join([*lines, "", f"{len(edges)} rooms, {count} arrows, no circle.", ""])


def _room(module: str, below: str) -> str | None:
    """Return in which room below a package a module lies; None: in none."""
    inside = module.removeprefix(f"{below}.")
    if inside == module:
        return None
    room = inside.split(".")[0]
    folder = Path(slurm_adapter.__file__).parents[1].joinpath(*below.split("."), room)
    return f"{room}/" if folder.is_dir() else f"{room}.py"


def _heights(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how many floors lie below each room.

    Raises:
        ValueError: where rooms import each other in a circle.
    """
    heights: dict[str, int] = {}

    def height(room: str, above: tuple[str, ...]) -> int:
        if room in above:
            raise ValueError(" → ".join((*above, room)))
        if room not in heights:
            below = [height(other, (*above, room)) for other in edges[room]]
            heights[room] = 1 + max(below, default=-1)
        return heights[room]

    for room in edges:
        height(room, ())
    return heights


SMALL = frozenset(
    f"{name}.py"
    for name in (
        "errors",
        "output",
        "paths",
        "quoting",
        "record",
        "record_help",
        "setting",
        "signals",
    )
)

"""What Slurm's refusal is about: its words name a resource, the script has a directive for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_adapter.launch.script.options import GPUS, MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_adapter.launch.script.directives import Directive

# Words of slurm_errno.c (22.05 to 25.05) and of sbatch itself, by the option that they are about.
_CARDS = r"\bgres\b|generic resource|\btres\b"
_WORDS = {
    "account": r"\baccount\b",
    "array": r"job array",
    "clusters": r"cluster name",
    "constraint": r"\bfeature",
    "cpus-per-task": r"\bcpu count\b|\bprocessors\b",
    "dependency": r"\bdependency\b",
    "exclude": r"node name",
    "licenses": r"\blicense",
    "nodelist": r"node name",
    "nodes": r"node count|number of nodes",
    "partition": r"\bpartition\b",
    "qos": r"\bqos\b",
    "reservation": r"\breservation\b",
    "time": r"\btime limit",
    "wckey": r"\bwckey\b",
    **dict.fromkeys((*GPUS, "gres", "tres-per-task"), _CARDS),
    **dict.fromkeys(MEMORY, r"\bmemory\b"),
}


def with_directives(said: str, directives: Iterable[Directive]) -> str:
    """Return Slurm's words, and behind them the directives whose option or resource they name."""
    about = dict.fromkeys(item.option for item in directives if _names(said, item.name))
    if not about:
        return said
    return f"{said} (directive{'s' if len(about) > 1 else ''} {' '.join(about)})"


def _names(said: str, option: str) -> bool:
    written = rf"(?<![\w-])--{re.escape(option)}(?![\w-])"
    words = rf"{written}|{_WORDS[option]}" if option in _WORDS else written
    return re.search(words, said, re.IGNORECASE) is not None

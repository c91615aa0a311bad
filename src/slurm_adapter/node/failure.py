"""Which rank of a step failed first, read from srun's own messages in the job's log.

srun returns the highest status of all tasks, and tasks that it ended because another had failed
count with 143 (SB-08). Its messages stand in the order in which tasks ended. Lines of the ranks
themselves carry a label (`1: ...`) and so cannot be taken for srun's.
"""

from __future__ import annotations

import re
import signal
import sys

from slurm_adapter.errors import NODE_LOST, BadValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

START = "slurm-adapter: starting"
"""How a generated script begins a run in its log."""

_MESSAGE = re.compile(r"srun: error: (?P<node>\S+): tasks? (?P<tasks>[0-9,\-]+): (?P<how>.+)")
_NODE_LOST = re.compile(r"srun: error: Node failure on (?P<node>\S+)")
_EXITED = re.compile(r"Exited with exit code ([0-9]+)")
_OUT_OF_MEMORY = "Out Of Memory"
_MOST_STATUS = 255


def main(words: Sequence[str]) -> int:
    """Print the first failure of a step and return its status: `first-failure STATUS LOG`."""
    if len(words) != 2 or not words[0].isdigit():  # noqa: PLR2004
        raise BadValueError(
            "first-failure is called by generated scripts", "slurm-adapter first-failure STATUS LOG"
        )
    status = int(words[0])
    try:
        # Lines end at \n alone: after a carriage return a rank could write anything unlabelled.
        with open(words[1], encoding="utf-8", errors="replace", newline="\n") as log:  # noqa: PTH123
            found = first_failure(log)
    except OSError:
        return status
    if found is None:
        return status
    said, first_status = found
    print(f"slurm-adapter: {said}", file=sys.stderr)  # noqa: T201
    return first_status or status


def first_failure(lines: Iterable[str]) -> tuple[str, int] | None:
    """Return (what to say, exit status) of the first failure in the last run of a log.

    A requeued job may append to its log: the script's first line marks where a run starts. A
    lost node comes before what its loss did to ranks elsewhere.
    """
    found: tuple[str, int] | None = None
    for line in lines:
        if line.startswith(START):
            found = None
        elif lost := _NODE_LOST.match(line):
            found = f"node {lost['node']} was lost", NODE_LOST
        elif found is None and (match := _MESSAGE.match(line)):
            how = match["how"].strip()
            status = _status(how)
            if status is not None:
                plural = "s" if "," in match["tasks"] or "-" in match["tasks"] else ""
                ranks = f"rank{plural} {match['tasks']} on {match['node']}"
                found = f"{ranks} failed first: {how}", status
    return found


def _status(how: str) -> int | None:
    """Return the exit status that srun's words stand for: 128 + N for signal N."""
    exited = _EXITED.match(how)
    if exited is not None:
        return min(int(exited[1]), _MOST_STATUS)
    if how.startswith(_OUT_OF_MEMORY):
        return 128 + signal.SIGKILL
    name = how.removesuffix(" (core dumped)")
    return next(
        (128 + one for one in signal.valid_signals() if signal.strsignal(one) == name), None
    )

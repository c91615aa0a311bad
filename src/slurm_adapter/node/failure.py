"""Which rank of a step failed first, read from srun's own messages in the job's log.

srun returns the highest status of all tasks, and tasks that it ended because another had failed
count with 143 (SB-08). Its messages stand in the order in which tasks ended. Lines of the ranks
themselves carry a label (`1: ...`) and so cannot be taken for srun's.
"""

from __future__ import annotations

import re
import signal
import sys

from slurm_adapter.errors import BadValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MESSAGE = re.compile(r"srun: error: (?P<node>\S+): tasks? (?P<tasks>[0-9,\-]+): (?P<how>.+)")
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
        with open(words[1], encoding="utf-8", errors="replace") as log:  # noqa: PTH123
            found = first_failure(log)
    except OSError:
        return status
    if found is None:
        return status
    tasks, node, how, first_status = found
    plural = "s" if "," in tasks or "-" in tasks else ""
    print(  # noqa: T201
        f"slurm-adapter: rank{plural} {tasks} on {node} failed first: {how}", file=sys.stderr
    )
    return first_status


def first_failure(lines: Iterable[str]) -> tuple[str, str, str, int] | None:
    """Return (ranks, node, srun's words, exit status) of the first failure in the last run.

    A requeued job may append to its log: a message of ours ends a run, so what stands before it
    belongs to an earlier one.
    """
    found: tuple[str, str, str, int] | None = None
    for line in lines:
        if line.startswith("slurm-adapter: rank"):
            found = None
            continue
        match = _MESSAGE.match(line)
        if match is not None and found is None:
            status = _status(match["how"].strip())
            if status is not None:
                found = match["tasks"], match["node"], match["how"].strip(), status
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

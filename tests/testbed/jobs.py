"""How a job ended, read from what `scontrol show job` prints."""

import re
from dataclasses import dataclass

_FINAL = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)
# Anchored at the line starts that Slurm itself writes: a job's name is free text.
_STATE = re.compile(r"^   JobState=(\S+)", re.MULTILINE)
_EXIT = re.compile(r"^   Requeue=.* ExitCode=(\d+):(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class JobEnd:
    """The end of a job; of several (an array, a heterogeneous job), the first that failed."""

    state: str
    """COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, ..."""

    exit_status: int
    """What the batch script or the salloc command exited with."""

    signal: int
    """The signal that ended it, or 0."""


def parse_end(text: str) -> JobEnd | None:
    """Return the end told by `scontrol show job ID`, or None while any part of it goes on."""
    ends = [
        JobEnd(state, int(exit_status), int(number))
        for state, (exit_status, number) in zip(
            _STATE.findall(text), _EXIT.findall(text), strict=True
        )
    ]
    if not ends or any(end.state not in _FINAL for end in ends):
        return None
    return next((end for end in ends if end.state != "COMPLETED"), ends[0])

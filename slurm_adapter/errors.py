"""Every error this project raises on purpose, a class for each kind of remedy; and exit statuses.

Errors are raised where the fact is known, printed in one place (`report`), never with a traceback.
"""

from __future__ import annotations

WRONG_USE = 2
CLUSTER_UNFIT = 3
NODE_LOST = 4
_SIGNALLED = 128


def signal_status(number: int) -> int:
    """Return the exit status that stands for the end by a signal, as a shell has it: 128 + N."""
    return _SIGNALLED + number


def ending_signal(status: int) -> int:
    """Return the number of the signal that an exit status stands for, 0 where it does for none."""
    return max(0, status - _SIGNALLED)


def exit_status(code: int) -> int:
    """Return how a process ended as a shell has it; `code` is as Python has it, -N for signal N."""
    return code if code >= 0 else signal_status(-code)


class AdapterError(Exception):
    """Base of every error raised on purpose.

    Args:
        found: what was found and what was expected, without a full stop at the end.
        remedy: what to type or change; empty where `found` says it already.
    """

    exit_status = WRONG_USE

    def __init__(self, found: str, remedy: str = "") -> None:
        super().__init__(found, remedy)
        self.found = found
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.found}\n{self.remedy}" if self.remedy else self.found


class BadValueError(AdapterError):
    """A value the user wrote (option, variable, key, file) cannot be meant."""


class NodeListError(AdapterError):
    """A node list that no set of host names corresponds to, or too many of them."""


class NotAStepError(AdapterError):
    """The Slurm variables do not describe a task of a step; the remedy is an srun line."""


class StepError(AdapterError):
    """The variables of a step contradict each other or are broken."""


class ClusterUnfitError(AdapterError):
    """The machines cannot do what was asked; nothing was started."""

    exit_status = CLUSTER_UNFIT


def printable(text: str) -> str:
    """Return a text as one line for people: control characters escaped."""
    return text if text.isprintable() else ascii(text)[1:-1]


def report(error: AdapterError) -> str:
    """Return the lines for stderr: what was found, then what to do."""
    lines = [printable(line) for line in str(error).splitlines()]
    return "\n".join([f"slurm-adapter: {lines[0]}", *(f"  {line}" for line in lines[1:])])

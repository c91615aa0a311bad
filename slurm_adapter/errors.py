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
    """Return a text as one line for people, in which everything is seen for what it is.

    Whatever has no mark of its own is escaped: what a terminal would obey, line ends, what turns
    the direction of writing or takes no room, blanks but the usual one, and bytes that are no text.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if _is_seen(letter) else _escaped(letter) for letter in text)


# Letters to Python, and nothing to the eye: joiners, fillers, vowels without a form.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")


def _is_seen(letter: str) -> bool:
    if letter in _UNSEEN or "\ufe00" <= letter <= "\ufe0f" or letter >= "\U000e0000":
        return False
    return letter.isprintable()


def _escaped(letter: str) -> str:
    # A byte that is no text travels as a surrogate.
    is_byte = "\udc80" <= letter <= "\udcff"
    return f"\\x{ord(letter) - 0xDC00:02x}" if is_byte else ascii(letter)[1:-1]


def printable_lines(text: str) -> str:
    """Return a text as lines for people, those behind the first indented."""
    first, *rest = map(printable, text.splitlines() or [""])
    return "\n".join([first, *(f"  {line.removeprefix('  ')}" for line in rest)])


def message(text: str) -> str:
    """Return the lines by which we say something: whoever wrote a part of it.

    No line but the first begins like one of ours.
    """
    return f"slurm-adapter: {printable_lines(text)}"


def report(error: AdapterError) -> str:
    """Return the lines for stderr: what was found, then what to do."""
    return message(str(error))

"""How a process of our own that starts ranks ends on a signal: in order, nothing left behind.

For the command line and for the heads that this room starts. A program that uses the library keeps
its own handlers: nothing here is called in it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from slurm_adapter.errors import AdapterError, signal_status
from slurm_adapter.node.ranks.subreaper import run_contained
from slurm_adapter.node.system import signal_forwarding
from slurm_adapter.output import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


@contextmanager
def exiting_when_stopped(*more: int, but: Collection[int] = ()) -> Iterator[None]:
    """End in order on a signal that means stop; while ranks run their supervisor heeds it.

    Args:
        more: signals that mean it, too.
        but: signals that are left as they are.
    """

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(signal_status(number))

    heeded = [number for number in signal_forwarding.heeded_signals(*more) if number not in but]
    before = {number: signal_forwarding.listen(number, leave) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal_forwarding.listen(number, handler)


def run_without_leftovers(
    command: Callable[[], int], refused: Callable[[AdapterError], int] = complain
) -> int:
    """Run a command that has ranks here so that nothing stays, however it is ended.

    Args:
        command: returns an exit status.
        refused: told of an `AdapterError` of it; returns the exit status.
    """

    def whole() -> int:
        try:
            return command()
        except AdapterError as error:
            return refused(error)
        except SystemExit as end:
            return int(end.code or 0)

    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    return run_contained(whole)

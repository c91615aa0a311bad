"""How a command that starts ranks leaves: in order on a signal, after a sensible grace."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from slurm_adapter.errors import AdapterError, BadValueError
from slurm_adapter.node.ranks.subreaper import run_guarded
from slurm_adapter.node.system import signal_forwarding
from slurm_adapter.output import complain

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator

_LONGEST_GRACE_S = 86_400


def check_grace(grace_s: float) -> None:
    """Refuse what is no time to wait."""
    if not 0 <= grace_s < _LONGEST_GRACE_S:
        raise BadValueError(
            f"--grace {grace_s} is no time to wait",
            f"Give seconds from 0 to {_LONGEST_GRACE_S}.",
        )


@contextmanager
def exiting_when_stopped(*more: signal.Signals) -> Iterator[None]:
    """Leave in order on a signal that means stop; while ranks run their supervisor heeds it.

    `more` are signals that mean it, too.
    """

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {
        number: signal_forwarding.listen(number, leave)
        for number in signal_forwarding.heeded_signals(*more)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal_forwarding.listen(number, handler)


def leaving_nothing(command: Callable[[], int]) -> int:
    """Run a command that has ranks here so that nothing stays, however it is ended."""

    def whole() -> int:
        try:
            return command()
        except AdapterError as error:
            return complain(error)
        except SystemExit as end:
            return int(end.code or 0)

    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    return run_guarded(whole)

"""How a command that starts ranks leaves: in order on a signal, after a sensible grace."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from slurm_adapter.errors import BadValueError
from slurm_adapter.node.supervise import heeded_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_GRACE_S = 86_400


def check_grace(grace_s: float) -> None:
    """Refuse what is no time to wait."""
    if not 0 <= grace_s < _LONGEST_GRACE_S:
        raise BadValueError(
            f"--grace {grace_s} is no time to wait",
            f"Give seconds from 0 to {_LONGEST_GRACE_S}.",
        )


@contextmanager
def leaving_when_stopped(*more: signal.Signals) -> Iterator[None]:
    """Leave in order on a signal that means stop; while ranks run their supervisor heeds it.

    `more` are signals that mean it, too.
    """

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in heeded_signals(*more)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

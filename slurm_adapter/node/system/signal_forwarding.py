"""Signals that mean stop, where one process takes them for another and forwards them.

Whoever ends a command may reach one of its processes (`kill`), or all of them at once (a
scheduler, `pkill`). Forwarded as others, each counts once, and what the other one is sent itself
not at all.
"""

from __future__ import annotations

from slurm_adapter import signals
from slurm_adapter.errors import signal_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any, NoReturn

    Handler = Callable[[int, FrameType | None], Any] | int | None

STOP_SIGNALS = (signals.SIGINT, signals.SIGTERM, signals.SIGHUP)
"""What means that a process is to end in order; its status is then 128 + N."""
_handlers: dict[int, Handler] = {}
"""What heeds each signal that is forwarded to this process."""


def heeded_signals(*more: int) -> list[int]:
    """Return the stop signals that this process was not started to ignore (nohup, `cmd &`)."""
    wanted = dict.fromkeys((*STOP_SIGNALS, *more))
    return [one for one in wanted if signals.handler_of(one) != signals.SIG_IGN]


def forwarded_as(number: int) -> int:
    """Return the signal as which another one is forwarded."""
    return signals.SIGRTMIN + STOP_SIGNALS.index(number)


def take_only_forwarded(numbers: Iterable[int]) -> None:
    """Heed from now on what is forwarded to this process; others of STOP_SIGNALS stay ignored."""
    for number in STOP_SIGNALS:
        signals.handle(number, signals.SIG_IGN)
    for one in numbers:
        # Not ignored, which every program that this process starts would have from it.
        signals.handle(one, _pass_over)
        _handlers[one] = _leave
        signals.handle(forwarded_as(one), _heed)


def listen(number: int, handler: Handler) -> Handler:
    """Have a signal handled, be it forwarded; return what did so before. Like `signal.signal`."""
    if number not in _handlers:
        return signals.handle(number, handler)
    before = _handlers[number]
    _handlers[number] = handler
    return before


def _pass_over(number: int, _: object) -> None:
    del number


def _leave(number: int, _: object) -> NoReturn:
    raise SystemExit(signal_status(number))


def _heed(number: int, frame: FrameType | None) -> None:
    handler = _handlers[STOP_SIGNALS[number - signals.SIGRTMIN]]
    if callable(handler):
        handler(STOP_SIGNALS[number - signals.SIGRTMIN], frame)

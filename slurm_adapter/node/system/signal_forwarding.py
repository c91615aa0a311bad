"""Signals that mean stop, where one process takes them for another and passes them on.

Whoever ends a command may reach one of its processes (`kill`), or all of them at once (a
scheduler, `pkill`). Passed on as others, each counts once, and what the other one is sent itself
not at all.
"""

from __future__ import annotations

from slurm_adapter.node.system import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any, NoReturn

    Handler = Callable[[int, FrameType | None], Any] | int | None

_handlers: dict[int, Handler] = {}
"""What heeds each signal that is passed on to this process."""


def heeded() -> list[int]:
    """Return the signals that this process was not started to ignore (nohup, `cmd &`)."""
    wanted = signals.STOPPING
    return [one for one in wanted if signals.handler_of(one) is not signals.SIG_IGN]


def passed_as(number: int) -> int:
    """Return the signal as which another one is passed on."""
    return signals.SIGRTMIN + signals.STOPPING.index(number)


def take_only_passed(numbers: Iterable[int]) -> None:
    """Heed from now on what is passed on to this process; others of STOPPING stay ignored."""
    for number in signals.STOPPING:
        signals.handle(number, signals.SIG_IGN)
    for one in numbers:
        # Not ignored, which every program that this process starts would have from it.
        signals.handle(one, _pass_over)
        _handlers[one] = _leave
        signals.handle(passed_as(one), _heed)


def listen(number: int, handler: Handler) -> Handler:
    """Have a signal handled, be it passed on; return what did so before. Like `signal.signal`."""
    if number not in _handlers:
        return signals.handle(number, handler)
    before = _handlers[number]
    _handlers[number] = handler
    return before


def _pass_over(number: int, _: object) -> None:
    del number


def _leave(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _heed(number: int, frame: FrameType | None) -> None:
    handler = _handlers[signals.STOPPING[number - signals.SIGRTMIN]]
    if callable(handler):
        handler(signals.STOPPING[number - signals.SIGRTMIN], frame)

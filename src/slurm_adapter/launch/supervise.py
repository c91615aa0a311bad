"""One supervisor for every launcher: the first failure stops the others, and nothing stays."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Protocol

from slurm_adapter.node.events import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slurm_adapter.node.events import Event

# Signals that mean "stop", and what the command then returns at least: 128 + N.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.5
_SHORT_POLL_S = 0.02
_NAMED_RANKS = 8


class Fleet(Protocol):
    """The running ranks, wherever they are."""

    def events(self, limit_s: float) -> Iterable[Event]:
        """Wait for something to happen, `limit_s` at most, and return it."""

    def running(self) -> set[int]:
        """Return the ranks whose process is not known to be gone."""

    def remains(self) -> bool:
        """Say whether anything that a rank started still lives, ranks included."""

    def send(self, number: int) -> None:
        """Send a signal to everything that remains."""

    def wake(self) -> None:
        """Make `events` return now; called from signal handlers."""

    def close(self) -> Iterable[Event]:
        """Let go of pipes and descriptors; return the output that was still in them."""


class Supervisor:
    """Watches a fleet until every process of it is gone."""

    def __init__(
        self,
        fleet: Fleet,
        show: Callable[[Event], None],
        say: Callable[[str], None],
        name: Callable[[int], str],
        grace_s: float,
    ) -> None:
        self._fleet, self._show, self._say, self._name = fleet, show, say, name
        self._grace_s = grace_s
        self._first_failure: Ended | None = None
        self._signals: list[int] = []
        self._heeded = 0
        self._lost_status = 0
        self._kill_at: float | None = None

    def run(self) -> int:
        """Return the exit status when nothing remains: the first failing rank's own.

        Ctrl-C once ends the ranks, twice kills them.
        """
        before = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        try:
            while self._fleet.running():
                self._step()
            self._end_rest()
            for event in self._fleet.close():
                self._shown(event)
        except BaseException:
            self._fleet.send(signal.SIGKILL)
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._status()

    def _on_signal(self, number: int, _: object) -> None:
        # No more than this: a handler may interrupt a write to the very stream it would write to.
        self._signals.append(number)
        self._fleet.wake()

    def _heed_signals(self) -> None:
        count = len(self._signals)  # one may come in while this one is being heeded
        if count and not self._heeded:
            name = signal.Signals(self._signals[0]).name
            self._say(f"{name}: ending {self._names()}; once more kills at once")
            self._kill_at = time.monotonic() + self._grace_s
            self._fleet.send(signal.SIGTERM)
            count = 1
        elif count > max(1, self._heeded):
            self._kill_at = 0.0
        self._heeded = count

    def _step(self, limit: float = _POLL_S) -> None:
        self._heed_signals()
        if self._kill_at is not None:
            limit = min(limit, max(0.0, self._kill_at - time.monotonic()))
        for event in self._fleet.events(limit):
            self._shown(event)
            if isinstance(event, Ended) and event.status != 0 and self._kill_at is None:
                self._first_failure = event
                others = self._names()
                self._stop(
                    f"{self._name(event.rank)} failed first: {event.how}"
                    + (f"; ending {others}" if others else "")
                )
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._fleet.send(signal.SIGKILL)
            self._kill_at = time.monotonic() + _POLL_S

    def _shown(self, event: Event) -> None:
        if self._lost_status:
            return
        try:
            self._show(event)
        except OSError as error:
            lost = isinstance(error, BrokenPipeError)
            self._lost_status = 128 + signal.SIGPIPE if lost else os.EX_IOERR
            why = "nobody reads the output any more" if lost else f"output lost: {error.strerror}"
            self._stop(f"{why}; ending {self._names()}")

    def _stop(self, why: str) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace_s
            self._say(why)
            self._fleet.send(signal.SIGTERM)

    def _end_rest(self) -> None:
        """End what ranks left behind: they are gone, so nobody waits for it any more."""
        if self._fleet.remains() and self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace_s
            self._fleet.send(signal.SIGTERM)
        while self._fleet.remains():
            self._step(_SHORT_POLL_S)

    def _status(self) -> int:
        if self._signals:
            return 128 + self._signals[0]
        if self._lost_status:
            return self._lost_status
        return 0 if self._first_failure is None else self._first_failure.status

    def _names(self) -> str:
        ranks = sorted(self._fleet.running())
        shown = ", ".join(self._name(rank) for rank in ranks[:_NAMED_RANKS])
        return shown + (
            f" and {len(ranks) - _NAMED_RANKS} more" if len(ranks) > _NAMED_RANKS else ""
        )

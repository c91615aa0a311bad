"""One supervisor for every launcher: the first failure stops the others, and nothing stays."""

from __future__ import annotations

import os
import time

from slurm_adapter import signals
from slurm_adapter.errors import printable, signal_status
from slurm_adapter.node.ranks.events import Lost
from slurm_adapter.node.ranks.first_failure import FirstFailure
from slurm_adapter.node.ranks.terminator import Terminator
from slurm_adapter.node.system import signal_forwarding
from slurm_adapter.node.system.signal_forwarding import STOP_SIGNALS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    from slurm_adapter.node.ranks.events import Event

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


STOP_DETACHED = signals.SIGUSR1
"""What ends a detached job by way of its head, to which the others mean nobody but itself."""
_POLL_S = 0.5


_SHORT_POLL_S = 0.02
_NAMED_RANKS = 8
# How long the news of an earlier death may take, and how long one that is more than the loss of
# a peer is waited for.
_SETTLE_S = 0.15
_PATIENT_S = 1.5


class _UnreadError(Exception):
    """What is being written is not read, and no longer worth waiting for."""


class LeftError(Exception):
    """Nobody watches any more; the ranks go on."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status
        """What the command returns that watched."""


class Supervisor:
    """Watches a fleet until every process of it is gone."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        show: Callable[[Event], None],
        say: Callable[[str], None],
        name: Callable[[int], str],
        grace_s: float,
        node: Callable[[int], str] = str,
        tick: Callable[[], float] | None = None,
        ends: Sequence[int] = STOP_SIGNALS,
        heed_signals: bool = True,
    ) -> None:
        """Take over a fleet.

        Args:
            fleet: the ranks.
            show: told of every event; an `OSError` of it ends the job.
            say: told what people should know.
            name: words for a rank.
            grace_s: seconds from SIGTERM to SIGKILL.
            node: words for a node, by its index.
            tick: called now and then; returns the seconds until it wants to be called again.
            ends: the signals that end the ranks. Others of `STOP_SIGNALS` end the watching alone,
                and so does whatever breaks it: ranks that are watched so go on without anybody.
            heed_signals: whether signals are this object's at all; else the caller sees to them.
        """
        self._fleet, self._show, self._say, self._name = fleet, show, say, name
        self._grace_s, self._node = grace_s, node
        self._tick, self._tick_s = tick, _POLL_S
        self._ends, self._heed_any = tuple(ends), heed_signals
        self._apart = not set(STOP_SIGNALS) <= set(ends)
        self._left_by: int | None = None
        self._first_failure = FirstFailure()
        self._failed_at: float | None = None
        self._signals: list[int] = []
        self._heeded = 0
        self._lost_status = 0
        self._showing = False
        self._ending = ""
        self._terminator = Terminator(_POLL_S)

    def run(self) -> int:
        """Return the exit status when nothing remains: the first failing rank's own.

        Ctrl-C once ends the ranks, twice kills them.

        Raises:
            LeftError: where only the watching has ended.
        """
        numbers = signal_forwarding.heeded_signals(*self._ends) if self._heed_any else []
        before = {number: signal_forwarding.listen(number, self._on_signal) for number in numbers}
        try:
            while self._fleet.running():
                self._step()
            self._end_rest()
            for event in self._fleet.close():
                self._shown(event)
                self._first_failure.take(event)
            self._say_last_words()
        except BaseException:
            if not self._apart:
                self._fleet.send(signals.SIGKILL)
            raise
        finally:
            for number, handler in before.items():
                signal_forwarding.listen(number, handler)
        return self._status()

    @property
    def stopped(self) -> bool:
        """Whether somebody wanted it to end."""
        return bool(self._signals)

    def stop(self) -> None:
        """End the ranks in order, as the first signal that means it does; from any thread."""
        self._signals.append(STOP_DETACHED)
        self._fleet.wake()

    def _on_signal(self, number: int, _: object) -> None:
        # No words here: a handler may interrupt a write to the very stream it would write to.
        if number not in self._ends:
            self._left_by = number
            self._fleet.wake()
            if self._showing:
                raise LeftError(signal_status(number))
            return
        self._signals.append(number)
        self._fleet.wake()
        if self._showing:
            # Nobody may be reading, and then there is no way back to the loop: not even a signal
            # ends a write. The ranks can be told all the same, and the second one gives up on it.
            if len(self._signals) > 1:
                self._fleet.send(signals.SIGKILL)
                raise _UnreadError
            self._end_for_signal()

    def _end_for_signal(self) -> None:
        self._ending = self._ending or self._names()  # those that ended because of it included
        self._end_all()

    def _end_all(self) -> None:
        """Have everything end; from now on ranks fail because they were told to end."""
        self._first_failure.close()
        self._terminator.begin(time.monotonic(), self._grace_s)
        self._send_due()

    def _send_due(self) -> None:
        now = time.monotonic()
        while (number := self._terminator.due(now)) is not None:
            self._fleet.send(number)

    def _heed_signals(self) -> None:
        if self._left_by is not None:
            raise LeftError(signal_status(self._left_by))
        count = len(self._signals)  # one may come in while this one is being heeded
        if count and not self._heeded:
            first = self._signals[0]
            name = "stopped" if first == STOP_DETACHED else signals.name_of(first)
            if not self._ending:
                self._end_for_signal()
            self._say(f"{name}: ending {self._ending}; once more kills at once")
            count = 1
        elif count > max(1, self._heeded):
            self._terminator.kill(time.monotonic())
        self._heeded = count

    def _step(self, limit: float = _POLL_S) -> None:
        self._heed_signals()
        limit = min(limit, self._terminator.wait_s(time.monotonic()))
        if self._failed_at is not None and not self._terminator.begun:
            limit = min(limit, _SHORT_POLL_S)
        for event in self._fleet.events(min(limit, self._tick_s)):
            self._shown(event)
            self._first_failure.take(event)
        self._heed_failure()
        if self._tick is not None:
            self._tick_s = self._tick()
        self._send_due()

    def _heed_failure(self) -> None:
        """Stop everything for the first failure, once it is clear which that was."""
        if not self._first_failure.failed or self._terminator.begun:
            return
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        patience = _SETTLE_S if self._first_failure.settled else _PATIENT_S
        if self._fleet.running() and now - self._failed_at < patience:
            return
        first = self._first_failure.first()
        others = self._names()
        ending = f"; ending {others}" if others else ""
        if isinstance(first, Lost):
            ranks = ", ".join(self._name(rank) for rank in first.ranks[:_NAMED_RANKS])
            where = f" ({ranks})" if ranks else ""
            self._stop(f"{self._node(first.node_index)}{where} was lost: {first.why}{ending}")
        else:
            self._stop(f"{self._name(first.rank)} failed first: {first.how}{ending}")

    def _shown(self, event: Event) -> None:
        if self._lost_status:
            return
        try:
            self._showing = True
            self._show(event)
        except _UnreadError:
            self._lost_status = self._signal_status()
        except OSError as error:
            lost = isinstance(error, BrokenPipeError)
            self._lost_status = signal_status(signals.SIGPIPE) if lost else os.EX_IOERR
            why = "nobody reads the output any more" if lost else f"output lost: {error.strerror}"
            if self._apart:
                self._say(why)
                raise LeftError(self._lost_status) from error
            self._stop(f"{why}; ending {self._names()}")
        finally:
            self._showing = False

    def _stop(self, why: str) -> None:
        if not self._terminator.begun:
            self._say(why)
            self._end_all()

    def _end_rest(self) -> None:
        """End what ranks left behind: they are gone, so nobody waits for it any more."""
        if self._fleet.remains():
            self._terminator.begin(time.monotonic(), self._grace_s)
            self._send_due()
        while self._fleet.remains():
            self._step(_SHORT_POLL_S)

    def _signal_status(self) -> int:
        first = self._signals[0]
        return signal_status(signals.SIGTERM if first == STOP_DETACHED else first)

    def _status(self) -> int:
        if self._signals:
            return self._signal_status()
        if self._lost_status:
            return self._lost_status
        return self._first_failure.first().status if self._first_failure.failed else 0

    def _say_last_words(self) -> None:
        """Show the end of the culprit's output, where the others' noise stands behind it."""
        words = self._first_failure.last_words()
        first = self._first_failure.first() if words else None
        if first is not None and not isinstance(first, Lost):
            lines = "".join(f"\n  {printable(line.decode(errors='replace'))}" for line in words)
            self._say(f"{self._name(first.rank)} failed first ({first.how}) and said last:{lines}")

    def _names(self) -> str:
        ranks = sorted(self._fleet.running())
        shown = ", ".join(self._name(rank) for rank in ranks[:_NAMED_RANKS])
        return shown + (
            f" and {len(ranks) - _NAMED_RANKS} more" if len(ranks) > _NAMED_RANKS else ""
        )

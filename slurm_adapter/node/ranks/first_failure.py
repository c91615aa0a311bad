"""Which of several failures came first, and what that rank said last.

Where one rank dies its peers lose their connections and die of that: they report it, often
before the news of the first death is here.
"""

from __future__ import annotations

import re

from slurm_adapter.errors import ending_signal
from slurm_adapter.node.ranks.events import Ended, Lost, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.node.ranks.events import Event

_KEPT_BYTES = 4096
_SHOWN_LINES = 12
# What Gloo, PyTorch's store and NCCL write when the other end has gone.
_LOST_PEER = re.compile(
    rb"Connection closed by peer|Connection reset by peer|Broken pipe|failed to recv, got 0 bytes"
    rb"|remote server shutdown or crash|ncclRemoteError|remote process exited"
    rb"|socketPollConnect|Socket Timeout|recvValue failed|DistNetworkError"
)

Failure = Ended | Lost


class FirstFailure:
    """Listens to all events; knows the failure that the others may have come from."""

    def __init__(self) -> None:
        self._tails: dict[int, bytes] = {}
        self._last_speaker: int | None = None
        self._failures: list[Failure] = []
        self._closed = False

    def take(self, event: Event) -> None:
        """Note an event."""
        if isinstance(event, Output):
            before = self._tails.get(event.rank, b"")
            lines = event.lines[-_KEPT_BYTES:]
            self._tails[event.rank] = (before + lines)[-_KEPT_BYTES:]
            self._last_speaker = event.rank
        elif not self._closed and (isinstance(event, Lost) or event.status != 0):
            self._failures.append(event)

    def close(self) -> None:
        """From now on ranks end because they were told to."""
        self._closed = True

    @property
    def failed(self) -> bool:
        """Whether anything failed by itself."""
        return bool(self._failures)

    @property
    def settled(self) -> bool:
        """Whether one of the failures is more than the loss of a peer."""
        return any(not self._followed(one) for one in self._failures)

    def first(self) -> Failure:
        """Return the cause of the others: the earliest that was not the loss of a peer."""
        return min(self._failures, key=lambda one: (self._followed(one), one.at_s))

    def _followed(self, failure: Failure) -> bool:
        """Say whether a rank died of another's death, by its own words; a signal is its own."""
        if isinstance(failure, Lost) or ending_signal(failure.status):
            return False
        return _LOST_PEER.search(self._tails.get(failure.rank, b"")) is not None

    def last_words(self) -> list[bytes]:
        """Return the last lines of the first failure's rank where others have spoken since."""
        if not self._failures:
            return []
        first = self.first()
        if isinstance(first, Lost) or self._last_speaker == first.rank:
            return []
        lines = self._tails.get(first.rank, b"").splitlines()
        whole = lines[1:] if len(self._tails.get(first.rank, b"")) == _KEPT_BYTES else lines
        return whole[-_SHOWN_LINES:]

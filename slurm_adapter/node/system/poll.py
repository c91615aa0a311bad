"""Waiting for several descriptors at once, without the 3 ms that `selectors` takes to load."""

from __future__ import annotations

import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Watch:
    """Descriptors, and what each of them stands for."""

    def __init__(self) -> None:
        # What became ready first comes first: a rank's stderr and stdout keep their order.
        self._epoll = select.epoll()
        self._meaning: dict[int, Any] = {}

    def add(self, descriptor: int, meaning: Any, *, room: bool = False) -> None:
        """Wait for something to read, or for room to write."""
        self._epoll.register(descriptor, select.EPOLLOUT if room else select.EPOLLIN)
        self._meaning[descriptor] = meaning

    def remove(self, descriptor: int) -> None:
        """Wait for it no more."""
        self._epoll.unregister(descriptor)
        del self._meaning[descriptor]

    def wait(self, limit_s: float) -> list[Any]:
        """Return what the descriptors stand for that are ready; waits `limit_s` seconds at most."""
        found = self._epoll.poll(max(0.0, limit_s))
        return [self._meaning[descriptor] for descriptor, _ in found]

"""Open connections to all nodes at once, within bounds, and collect what did not work (SSH-03)."""

from __future__ import annotations

import heapq
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from slurm_adapter.errors import AdapterError
from slurm_adapter.remote.transport.connect_error import ConnectError
from slurm_adapter.remote.transport.connector import Connector
from slurm_adapter.remote.transport.unreachable import Failure, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurm_adapter.cluster import Node
    from slurm_adapter.remote.transport.fabric_connection import FabricConnection
    from slurm_adapter.remote.transport.port import Connection
    from slurm_adapter.remote.transport.prompts import Terminal

T = TypeVar("T")

OPENINGS = 32
RETRY_S = 60.0
_FIRST_WAIT_S = 0.1
_GROWTH = 1.7
_LONGEST_WAIT_S = 5.0
_CANCEL_JOIN_S = 0.5
_SHORTEST_S = 1.0
"""What even a hurried attempt may take."""


@dataclass(frozen=True)
class Connected(Generic[T]):
    """What came of it, in node order."""

    nodes: tuple[Node, ...]
    connections: tuple[Connection | None, ...]
    """Open ones; None for a node that failed."""
    results: tuple[T | None, ...]
    """What the first step returned on each."""
    failures: tuple[Failure, ...]

    def all(self) -> list[T]:
        """Return the first step's results if every node succeeded.

        Raises:
            UnreachableError: some did not; then all connections are closed.
        """
        return self.at_least(len(self.nodes))

    def at_least(self, count: int) -> list[T]:
        """Return the results of those that succeeded, if they are enough.

        Raises:
            UnreachableError: they are not; then all connections are closed.
        """
        if len(self.nodes) - len(self.failures) < count:
            self.close()
            raise UnreachableError(self.failures, len(self.nodes))
        failed = {id(failure.node) for failure in self.failures}
        pairs = zip(self.nodes, self.results, strict=True)
        return [result for node, result in pairs if id(node) not in failed]  # type: ignore[misc]

    def close(self) -> None:
        """Let go of every node."""
        for connection in self.connections:
            if connection is not None:
                connection.close()


def connect_all(
    nodes: Sequence[Node],
    use: Callable[[Connection, int], T],
    *,
    config_file: Path | None = None,
    openings: int = OPENINGS,
    retry_s: float = RETRY_S,
    say: Callable[[str], None] | None = None,
    terminal: Terminal | None = None,
) -> Connected[T]:
    """Open a connection to each node and take the first step on it.

    Args:
        nodes: in rank order.
        use: the first step; gets a connection and its node's index, in the thread that opened
            it. An `AdapterError` of it makes its node a failure.
        config_file: as with `ssh -F`; None for what SLURM_ADAPTER_SSH_CONFIG names, or the
            user's own.
        openings: how many connections are opened at a time.
        retry_s: seconds since a node's first attempt after which it is not tried again, and the
            most that one attempt takes. Only what passes by itself is tried again: a server that
            sheds load, not a refused login.
        say: gets warnings; default: stderr.
        terminal: where questions are asked; default: the controlling one.

    Returns:
        Also where nodes failed: see `Connected.all`.
    """
    connector = Connector(config_file, say, terminal, longest_s=max(retry_s, _SHORTEST_S))
    return _Attempts(nodes, use, connector, retry_s).run(openings)


@dataclass(order=True)
class _Attempt:
    not_before: float
    order: int
    index: int = field(compare=False)
    number: int = field(compare=False, default=0)
    first_at: float = field(compare=False, default=0.0)


class _Attempts(Generic[T]):
    """One run of `connect_all`: the attempts to come, and what has come of those before."""

    def __init__(
        self,
        nodes: Sequence[Node],
        use: Callable[[Connection, int], T],
        connector: Connector,
        retry_s: float,
    ) -> None:
        self._nodes, self._use, self._connector, self._retry_s = (
            tuple(nodes),
            use,
            connector,
            retry_s,
        )
        self._changed = threading.Condition()
        self._waiting = [_Attempt(0.0, index, index) for index in range(len(self._nodes))]
        self._unfinished = len(self._nodes)
        self._stopped = False
        self._broken: BaseException | None = None
        self._connections: list[FabricConnection | None] = [None] * len(self._nodes)
        self._results: list[T | None] = [None] * len(self._nodes)
        self._failures: dict[int, Failure] = {}

    def run(self, openings: int) -> Connected[T]:
        """Work all attempts off with so many threads."""
        # Daemons: one that hangs in a look-up of a name must not keep the interpreter.
        threads = [
            threading.Thread(target=self._work, name=f"connect-{number}", daemon=True)
            for number in range(min(openings, len(self._nodes)))
        ]
        try:
            for thread in threads:
                thread.start()
            with self._changed:
                self._changed.wait_for(lambda: not self._unfinished or self._broken)
            self._raise_what_broke()
        except BaseException:
            self._cancel(threads)
            raise
        for thread in threads:
            thread.join()
        self._connector.close()
        failures = [self._failures[index] for index in sorted(self._failures)]
        return Connected(
            self._nodes, tuple(self._connections), tuple(self._results), tuple(failures)
        )

    def _raise_what_broke(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _cancel(self, threads: list[threading.Thread]) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            opened = [one for one in self._connections if one is not None]
        self._connector.cancel()
        for connection in opened:
            connection.close()
        deadline = time.monotonic() + _CANCEL_JOIN_S
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        try:
            while (attempt := self._next()) is not None:
                self._try(attempt)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            with self._changed:
                self._broken = error
                self._changed.notify_all()

    def _next(self) -> _Attempt | None:
        """Wait for the next attempt that is due; None once there will be none."""
        with self._changed:
            while not self._stopped and self._unfinished:
                now = time.monotonic()
                if not self._waiting:
                    self._changed.wait()
                elif self._waiting[0].not_before <= now:
                    return heapq.heappop(self._waiting)
                else:
                    self._changed.wait(self._waiting[0].not_before - now)
        return None

    def _try(self, attempt: _Attempt) -> None:
        index = attempt.index
        attempt.first_at = attempt.first_at or time.monotonic()
        try:
            connection = self._connector.open(self._nodes[index])
        except AdapterError as error:
            if not self._try_later(attempt, error):
                self._finish(index, error)
            return
        with self._changed:
            self._connections[index] = connection
            stopped = self._stopped
        try:
            if not stopped:
                self._results[index] = self._use(connection, index)
        except AdapterError as error:
            connection.close()
            self._finish(index, error)
        else:
            if stopped:
                connection.close()
            self._finish(index, None)

    def _try_later(self, attempt: _Attempt, error: AdapterError) -> bool:
        if not (isinstance(error, ConnectError) and error.again):
            return False
        # Scattered: those that were turned away together must not come back together.
        wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * _GROWTH**attempt.number)
        wait *= random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        now = time.monotonic()
        if now + wait > attempt.first_at + self._retry_s:
            return False
        attempt.number += 1
        attempt.not_before = now + wait
        with self._changed:
            heapq.heappush(self._waiting, attempt)
            self._changed.notify()
        return True

    def _finish(self, index: int, error: AdapterError | None) -> None:
        with self._changed:
            if error is not None:
                self._connections[index] = None
                self._failures[index] = Failure(self._nodes[index], error)
            self._unfinished -= 1
            if not self._unfinished:
                self._changed.notify_all()

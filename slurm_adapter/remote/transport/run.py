"""Run a command over any channel to its end: the blocking way, for short questions."""

from __future__ import annotations

import selectors
import time
from contextlib import closing
from typing import TYPE_CHECKING

from slurm_adapter.remote.transport.port import Answer, ConnectionLostError, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_adapter.remote.transport.port import CommandChannel, Connection

_CHUNK = 1 << 18


def run(connection: Connection, command: str, data: bytes, limit_s: float) -> Answer:
    """Return what the command left; see `Connection.run`."""
    deadline = time.monotonic() + limit_s
    with closing(connection.start(command)) as channel, selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        exchange = _Exchange(channel, data)
        while (status := exchange.step()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise NoAnswerError(
                    f"{connection.node.name}: no end of `{command}` within {limit_s:g} s",
                    "Try the same command with ssh; the machine may be overloaded or hang.",
                )
            if exchange.silent and not connection.alive():
                raise ConnectionLostError(f"{connection.node.name}: the connection was lost")
            selector.select(left)
        return Answer(status, exchange.output, exchange.error)


class _Exchange:
    """The three streams of a command, each as far as it has got."""

    def __init__(self, channel: CommandChannel, data: bytes) -> None:
        self._channel = channel
        self._unsent = memoryview(data)
        self._input_open = True
        self._output: list[bytes] = []
        self._error: list[bytes] = []
        self.silent = False
        """Both streams have ended: only the exit status is still to come."""

    def step(self) -> int | None:
        """Take and give what can be had now; return the status once the command has ended."""
        self._feed()
        ended = [
            _drain(self._channel.read, self._output),
            _drain(self._channel.read_error, self._error),
        ]
        self.silent = all(ended)
        # Asked every time: only then is the descriptor quiet again.
        status = self._channel.status()
        return status if self.silent else None

    @property
    def output(self) -> bytes:
        """What it has printed so far."""
        return b"".join(self._output)

    @property
    def error(self) -> bytes:
        """What it has printed to its error stream so far."""
        return b"".join(self._error)

    def _feed(self) -> None:
        while self._unsent:
            taken = self._channel.write(bytes(self._unsent[:_CHUNK]))
            if not taken:
                return
            self._unsent = self._unsent[taken:]
        if self._input_open:
            self._channel.close_input()
            self._input_open = False


def _drain(read: Callable[[int], bytes | None], into: list[bytes]) -> bool:
    """Read until there is nothing now; say whether the stream has ended."""
    while chunk := read(_CHUNK):
        into.append(chunk)
    return chunk is not None

"""Requests to one agent, one at a time, each of which waits for its answer."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, TypeVar

from slurm_adapter.node.protocol.encoding import request_frame
from slurm_adapter.node.protocol.messages import Data, Refused, Unfit, Warned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm_adapter.node.protocol.messages import AgentMessage, Request
    from slurm_adapter.remote.agent import Agent

T = TypeVar("T", bound="AgentMessage")

_SLICE_S = 0.25
_MOST_UNSENT_BYTES = 1 << 18
_MOST_DATA_BYTES = 1 << 28
_NONSENSE = "what it sends makes no sense"


class RequestError(Exception):
    """What an agent could not do, and what to do about it where that is known."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


class NoReplyError(RequestError):
    """The agent is gone, or says nothing any more."""


class Requests:
    """What is asked of one agent. Every method waits, and raises `RequestError`."""

    def __init__(self, agent: Agent, patience_s: float) -> None:
        """Take over an agent that has begun; `patience_s` is the longest that it may be silent."""
        self.agent = agent
        self._patience_s = patience_s
        self._cancelled = False
        self._moved_s = time.monotonic()
        self._come: list[AgentMessage] = []
        self._poll = select.poll()
        self._poll.register(agent.fileno(), select.POLLIN)

    def ask(self, request: Request, answer: type[T]) -> T:
        """Send a request and return its answer."""
        return self.ask_for_data(request, answer)[0]

    def ask_for_data(self, request: Request, answer: type[T]) -> tuple[T, dict[int, bytes]]:
        """Send a request; return its answer, and the data before it by their numbers."""
        self.send_all([request])
        return self._answer(answer)

    def take(self, answer: type[T]) -> T:
        """Return the answer to what `send_all` has sent."""
        return self._answer(answer)[0]

    def _answer(self, answer: type[T]) -> tuple[T, dict[int, bytes]]:
        data: dict[int, bytearray] = {}
        size = 0
        for message in self._messages():
            if isinstance(message, Data):
                data.setdefault(message.number, bytearray()).extend(message.piece)
                size += len(message.piece)
                if size > _MOST_DATA_BYTES:
                    raise NoReplyError(f"it sends more than {_MOST_DATA_BYTES:,} bytes")
            elif isinstance(message, answer):
                return message, {number: bytes(piece) for number, piece in data.items()}
            else:
                self._check(message)
        raise NoReplyError(_NONSENSE)

    def send_all(self, requests: Iterable[Request]) -> None:
        """Send several, no more of them at a time than there is room for; a refusal ends it."""
        self._moved_s = time.monotonic()
        for request in requests:
            self.agent.send_bytes(request_frame(request))
            while self.agent.unsent > _MOST_UNSENT_BYTES:
                self._turn(sending=True)
            for message in self._come:
                self._check(message)
        while self.agent.unsent:
            self._turn(sending=True)

    def cancel(self) -> None:
        """Have whatever another thread does with it fail soon."""
        self._cancelled = True

    def _messages(self) -> Iterator[AgentMessage]:
        while True:
            while self._come:
                yield self._come.pop(0)
            self._turn()

    def _check(self, message: AgentMessage) -> None:
        """Raise for what is no answer."""
        if isinstance(message, (Refused, Unfit)):
            raise RequestError(message.found, message.remedy)
        if not isinstance(message, Warned):
            raise NoReplyError(_NONSENSE)

    def _turn(self, *, sending: bool = False) -> None:
        """Take what has come and give what there is room for; wait where that is nothing.

        `sending`: whether it counts as a sign of life that bytes were taken, which heartbeats are
        also by an agent that hangs.
        """
        sent, heard_s = self.agent.sent, self.agent.heard_s
        come = self.agent.read()
        self._come += come
        moved = sending and sent != self.agent.sent
        if come or moved or heard_s != self.agent.heard_s:
            self._moved_s = time.monotonic()
        elif self.agent.lost:
            reason = "the connection was lost" if self.agent.unreachable else self.agent.lost
            raise NoReplyError(reason)
        else:
            self._wait()

    def _wait(self) -> None:
        self._poll.poll(_SLICE_S * 1000)
        if self._cancelled:
            raise RequestError("the copy was broken off")
        if time.monotonic() - self._moved_s > self._patience_s:
            reason = f"no answer for {self._patience_s:g} s; its file system may hang"
            raise NoReplyError(reason)

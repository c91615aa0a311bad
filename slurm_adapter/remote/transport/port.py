"""All that is needed of a connection: one command at its other end, with its three streams.

What connects, and how, is none of the callers' concern: nothing of a library shows here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from slurm_adapter.errors import NODE_LOST, AdapterError, ClusterUnfitError

if TYPE_CHECKING:
    from slurm_adapter.cluster import Node

RUN_LIMIT_S = 60.0


class ConnectionLostError(AdapterError):
    """The connection to a node is gone; what runs there can no longer be reached over it."""

    exit_status = NODE_LOST


class NoAnswerError(ClusterUnfitError):
    """A command on a node, or the node itself, took longer than the caller would wait."""


@dataclass(frozen=True)
class Answer:
    """What a command that has ended left."""

    status: int
    """Its exit status, 128 + N where signal N ended it, 255 where the node would not say."""
    output: bytes
    error: bytes


class CommandChannel(Protocol):
    """A command that runs on a node, and its streams. Nothing here waits."""

    def fileno(self) -> int:
        """Return a descriptor for selectors.

        It is readable when `read`, `read_error` or `status` may have something new, and when
        there may be room again after a `write` that took nothing; it is quiet again once all of
        them were asked.
        """

    def read(self, limit: int) -> bytes | None:
        """Return up to `limit` bytes of its output; None: nothing now; empty: it has ended."""

    def read_error(self, limit: int) -> bytes | None:
        """Return up to `limit` bytes of its error stream, likewise."""

    def write(self, data: bytes) -> int:
        """Send bytes to its input and return how many were taken, 0 while there is no room.

        A command that has ended or closed its input takes everything and keeps nothing.

        Raises:
            ConnectionLostError: the connection is gone.
        """

    def close_input(self) -> None:
        """End its input; what was taken before still arrives."""

    def status(self) -> int | None:
        """Return its exit status, 128 + N where signal N ended it.

        255 where the node ended it without a word about that. None while it runs, and where
        the connection ended before it was told: `read` then returns empty bytes, and the
        connection is no longer `alive`.
        """

    def close(self) -> None:
        """Let go of it. The command may run on: it is not told."""


class Connection(Protocol):
    """A node that commands can be started on, any number at a time, from any thread."""

    @property
    def node(self) -> Node:
        """The node as the host list has it."""

    def start(self, command: str) -> CommandChannel:
        """Start a command: text for the user's login shell there, as behind `ssh HOST`.

        Raises:
            ConnectionLostError: the connection is gone.
            NoAnswerError: the node does not answer any more, or refuses to start it.
        """

    def run(self, command: str, data: bytes = b"", limit_s: float = RUN_LIMIT_S) -> Answer:
        """Run a command with `data` as its input to its end.

        Raises:
            ConnectionLostError: the connection is gone.
            NoAnswerError: it did not end within `limit_s` seconds; it may run on.
        """

    def alive(self) -> bool:
        """Say whether the connection still stands, as far as is known here."""

    def close(self) -> None:
        """Let go of the node, at once even where it does not answer; channels end with it."""

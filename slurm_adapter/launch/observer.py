"""What a launcher tells whoever started it: words for people, how far it is, what ranks print.

Launchers know nothing of terminals. `show` has observers that draw; the one here, which a program
gets that brings none, writes to the standard library's logging.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

from slurm_adapter.errors import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_adapter.launch.records import End
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.plan import Plan

NodeState = Literal["connecting", "looking", "starting", "running", "ending", "gone", "lost"]
_log = logging.getLogger("slurm_adapter")
_TICK_S = 0.5


class Chunk(NamedTuple):
    """Whole lines of a job, as many as have come at once."""

    rank: int | None
    """Whose they are; under Slurm the node's index where a node's ranks write one file. None: of
    the job's own log."""
    lines: bytes
    is_error: bool = False
    """Whether they came from stderr, where that is known."""


class Observer:
    """Told of one job, by one thread at a time; each method may be overridden."""

    def say(self, text: str) -> None:
        """Hear what people should know: why a job ends, what is not confirmed."""
        _log.info("%s", printable_lines(text))

    def warn(self, text: str) -> None:
        """Hear of what may be wrong, and does not stop the start."""
        _log.warning("%s", printable_lines(text))

    def note(self, text: str) -> None:
        """Hear of something that was done."""
        _log.info("%s", printable_lines(text))

    def detail(self, text: str) -> None:
        """Hear what only those want to know who look closely."""
        _log.debug("%s", printable_lines(text))

    def planned(self, plan: Plan) -> None:
        """Learn what is about to be started; an `AdapterError` refuses it."""

    @contextmanager
    def running(self, plan: Plan, job_id: str) -> Iterator[None]:
        """Be entered when all ranks run, and left when nothing of them remains.

        A job on this machine has no id.
        """
        del plan, job_id
        yield

    def show(self, event: Event) -> None:
        """Learn what happened to a rank; an `OSError` (nobody can read it) ends the job."""

    def node(self, index: int, state: NodeState) -> None:
        """Learn what a node is about."""

    def tick(self) -> float:
        """Do what is due; return the seconds until there is more."""
        return _TICK_S

    def ended(self, end: End) -> None:
        """Learn how the job ended."""

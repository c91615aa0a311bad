"""A live panel below the ranks' lines, where a terminal can have one; else the lines alone.

The lines are bytes that go by in pieces as large as possible; only the panel is drawn by rich.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from slurm_adapter.errors import message
from slurm_adapter.node.ranks.events import Output
from slurm_adapter.show.lines import LinePrinter, may_colour, own_streams, short_names, write_all
from slurm_adapter.show.progress import Progress
from slurm_adapter.show.terminal import (
    BEGIN,
    END,
    ERASE,
    ERASE_TORN,
    framed,
    has_room,
    in_front,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from slurm_adapter.launch.observer import NodeState
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.show.lines import Streams


_FIRST_S = 0.5
"""A job that is over by then was never worth a panel."""
_LINES_S = 0.1
"""Lines that come faster are held back so long, for panel and lines to be written in one piece."""
_PANEL_S = 0.25
_CLOCK_S = 1.0
"""How often the panel is drawn anew: where something has changed, where only time has passed."""
_REST, _LONGEST_REST_S = 25, 2.0
"""So many times as long as a drawing took, none is made: it costs 4 % of a processor at most."""
_MOST_HELD = 1 << 17


class Screen(Protocol):
    """Where a running job is shown. One thread calls it all."""

    @property
    def due_s(self) -> float:
        """Seconds until `tick` has something to do, at most half a second."""

    def begin(self, printer: LinePrinter, ranks: Sequence[Sequence[int]]) -> None:
        """Learn which ranks are on each node, and how their lines are shown."""

    def show(self, event: Event) -> None:
        """Show what happened; `OSError` where lines cannot be written."""

    def state(self, node_index: int, state: NodeState) -> None:
        """Learn what a node is about."""

    def say(self, text: str) -> None:
        """Say something of our own on stderr, after all lines that came before it."""

    def tick(self) -> None:
        """Draw what is due: to be called when `due_s` has passed, and after events."""

    def aside(self) -> AbstractContextManager[None]:
        """Keep the panel away while others (a password prompt) have the terminal."""


@contextmanager
def live_or_plain(
    nodes: Sequence[str],
    *,
    enabled: bool = True,
    streams: Streams | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Screen]:
    """Give a screen for a job; at the end the terminal is as it was, below the lines.

    Args:
        nodes: the nodes' names, in node order.
        enabled: whether a panel is wanted at all.
        streams: stdout and stderr; None: this process's own.
        clock: seconds.
    """
    streams = own_streams() if streams is None else streams
    if not enabled or not has_room(streams):
        yield _Plain(streams)
        return
    live = _Live(short_names(nodes), streams, clock)
    try:
        yield live
    finally:
        live.close()


class _Plain:
    """Lines alone, as they come."""

    due_s = 0.5

    def __init__(self, streams: Streams) -> None:
        self._error_stream = streams[1]
        self._printer = LinePrinter((), streams=streams)

    def begin(self, printer: LinePrinter, ranks: Sequence[Sequence[int]]) -> None:
        del ranks
        self._printer = printer

    def show(self, event: Event) -> None:
        if isinstance(event, Output):
            self._printer.show(event)

    def state(self, node_index: int, state: NodeState) -> None:
        pass

    def say(self, text: str) -> None:
        with suppress(OSError):  # where nobody hears it any more, the job's end goes on
            write_all(self._error_stream, _message(text))

    def tick(self) -> None:
        pass

    @contextmanager
    def aside(self) -> Iterator[None]:
        yield


class _Live:
    """Lines, and the panel below them."""

    def __init__(self, nodes: Sequence[str], streams: Streams, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._progress = Progress(nodes, clock())
        self._printer = LinePrinter((), streams=streams)
        self._terminal = streams[1]
        self._out_apart = not (streams[0] >= 0 and os.isatty(streams[0]))
        self._colour = may_colour(self._terminal)
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._wrote_s = float("-inf")
        self._panel = b""
        self._drawn_s = float("-inf")  # when the panel's content was made
        self._drawing_s = 0.0  # how long that took
        self._size = (0, 0)
        self._visible = self._saved = self._torn = self._changed = self._aside = False
        self._error: OSError | None = None

    # What is told.

    def begin(self, printer: LinePrinter, ranks: Sequence[Sequence[int]]) -> None:
        self._printer = printer
        self._progress.begin(ranks)
        self._changed = True

    def show(self, event: Event) -> None:
        now_s = self._clock()
        self._progress.take(event, now_s)
        self._changed = True
        if self._error is not None:
            raise self._error
        if not isinstance(event, Output):
            return
        if self._out_apart and not event.is_error:
            self._printer.show(event)
            return
        lines = self._printer.prefixed(event.rank, event.lines, is_error=event.is_error)
        if not lines:
            return
        self._hold(lines)
        if self._lines_due_s(now_s) <= 0 or self._held_bytes > _MOST_HELD:
            self._write(now_s)

    def state(self, node_index: int, state: NodeState) -> None:
        self._progress.nodes[node_index].enter(state, self._clock())
        self._changed = True

    def say(self, text: str) -> None:
        self._hold(_message(text))
        with suppress(OSError):  # where nobody hears it any more, the job's end goes on
            self._write(self._clock())

    @property
    def due_s(self) -> float:
        now_s = self._clock()
        due_s = self._panel_due_s(now_s)
        return min(max(0.0, min(due_s, self._lines_due_s(now_s) if self._held else due_s)), 0.5)

    def tick(self) -> None:
        now_s = self._clock()
        resized = self._visible and self._size != size_of(self._terminal)
        lines_due = self._held and self._lines_due_s(now_s) <= 0
        if lines_due or resized or self._panel_due_s(now_s) <= 0:
            try:
                self._write(now_s)
            except OSError as error:
                self._error = error  # told by the next `show`, where it ends the job

    @contextmanager
    def aside(self) -> Iterator[None]:
        self._aside = True
        with suppress(OSError):
            self._write(self._clock())
        try:
            yield
        finally:
            self._aside = False

    def close(self) -> None:
        """Write what is held back and take the panel away."""
        self._aside = True
        with suppress(OSError):
            self._write(self._clock())

    # When it is shown.

    def _lines_due_s(self, now_s: float) -> float:
        """Return in how many seconds lines are to be written; there is no panel to spare yet."""
        return self._wrote_s + _LINES_S - now_s if self._visible else 0.0

    def _panel_due_s(self, now_s: float) -> float:
        if self._aside:
            return _CLOCK_S
        if self._drawn_s < 0:
            return self._progress.begun_s + _FIRST_S - now_s
        least_s = _PANEL_S if self._changed else _CLOCK_S
        return self._drawn_s + max(least_s, _REST * self._drawing_s) - now_s

    # How.

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)

    def _write(self, now_s: float) -> None:
        """Write lines, and the panel anew below them: in one piece, or it would flicker."""
        lines, self._held, self._held_bytes = b"".join(self._held), [], 0
        self._wrote_s = now_s
        is_in_front = in_front(self._terminal)
        erase = b""
        if self._visible and is_in_front:  # after Ctrl-Z and `bg` the shell's lines stand there
            erase = ERASE_TORN if self._torn and self._saved else ERASE
        if not is_in_front:
            self._drawn_s = now_s  # or it would stay due
        panel = self._framed(now_s) if is_in_front and not self._aside else b""
        if not panel and not erase:
            self._visible = False
            write_all(self._terminal, lines)
            return
        # An exception out of a signal handler may leave the write half done, the cursor anywhere
        # in the panel: then it is brought back to where it was saved last.
        self._torn = self._visible = True
        write_all(self._terminal, b"".join((BEGIN, erase, lines, panel, END)))
        self._torn, self._visible, self._saved = False, bool(panel), True

    def _framed(self, now_s: float) -> bytes:
        """Return what draws the panel from the cursor on and brings the cursor back."""
        due = self._panel_due_s(now_s) <= 0
        if self._drawn_s < 0 and not due:
            return b""
        size = size_of(self._terminal)
        if due or size != self._size:
            self._size, self._drawn_s, self._changed = size, now_s, False
            self._panel = self._rendered(now_s, size)
        return self._panel

    def _rendered(self, now_s: float, size: tuple[int, int]) -> bytes:
        from slurm_adapter.show.panel import draw  # a pipe has no use for rich

        begun_s = self._clock()
        panel = framed(draw(self._progress, now_s, size, colour=self._colour))
        self._drawing_s = min(self._clock() - begun_s, _LONGEST_REST_S / _REST)
        return panel


def _message(text: str) -> bytes:
    return os.fsencode(message(text) + "\n")

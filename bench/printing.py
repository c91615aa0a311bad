"""How fast lines of ranks go by at the head: behind their names, and above the live panel."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from figure import Figure

from slurm_adapter.node.ranks.events import Output
from slurm_adapter.show.lines import LinePrinter, rank_names
from slurm_adapter.show.live import live_or_plain

_RUNS = 5
_LINE = b"step 12345\n"
_RANKS, _PER_EVENT, _ROUNDS = 16, 50, 500
_NODES, _EVENTS = 8, 10_000
_GOAL_PER_S, _PANEL_GOAL = 1_500_000, 2.0


def printing_figures() -> list[Figure]:
    """Measure lines beside a loop that puts a name before each, and with the panel and without."""
    ours, theirs, gain = _in_turn(lambda: _lines_per_s(_print), lambda: _lines_per_s(_put_before))
    panel, plain, cost = _in_turn(lambda: _flood_s(panel=True), lambda: _flood_s(panel=False))
    return [
        Figure(
            f"short lines of {_RANKS} ranks behind their names, by CPU time",
            f"{ours:,.0f} lines/s",
            f"a write for each {theirs:,.0f} lines/s",
            f">= {_GOAL_PER_S:,} lines/s",
            f"{ours:,.0f} lines/s ({gain:.1f} x)",
            ours >= _GOAL_PER_S,
        ),
        Figure(
            f"lines of {_NODES} nodes through a terminal, the panel below them",
            f"{panel:.2f} s",
            f"without it {plain:.2f} s",
            f"<= {_PANEL_GOAL} x",
            f"{cost:.2f} x",
            cost <= _PANEL_GOAL,
        ),
    ]


def _in_turn(ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float, float]:
    """Return the median of each, and of their ratios."""
    pairs = [(ours(), theirs()) for _ in range(_RUNS)]
    first, second = zip(*pairs, strict=True)
    return median(first), median(second), median(our / their for our, their in pairs)


def _lines_per_s(show: Callable[[int, list[bytes], list[Output]], None]) -> float:
    """Return how many lines go into a file for each second of CPU: others may have it between."""
    names = [f"gpu-n{rank:02}/{rank}".encode() for rank in range(_RANKS)]
    events = [Output(rank, _LINE * _PER_EVENT, is_error=False) for rank in range(_RANKS)]
    stream = os.memfd_create("lines")
    begin_s = time.process_time()
    show(stream, names, events * _ROUNDS)
    spent_s = time.process_time() - begin_s
    os.close(stream)
    return _RANKS * _PER_EVENT * _ROUNDS / spent_s


def _print(stream: int, names: list[bytes], events: list[Output]) -> None:
    printer = LinePrinter([name.decode() for name in names], streams=(stream, stream))
    for event in events:
        printer.show(event)


def _put_before(stream: int, names: list[bytes], events: list[Output]) -> None:
    for event in events:
        for line in event.lines.splitlines(keepends=True):
            os.write(stream, b"[%s] %s" % (names[event.rank], line))


def _flood_s(*, panel: bool, per_event: int = 20) -> float:
    """Return how long lines take through a pty that another process reads."""
    ours, stream = os.openpty()
    offset_s = 0.0
    nodes = [f"gpu-n{number}" for number in range(1, _NODES + 1)]
    ranks = [[rank] for rank in range(_NODES)]
    streams = (stream, stream)
    with subprocess.Popen(
        ["cat"], stdin=ours, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as reader:
        os.close(ours)
        try:
            printer = LinePrinter(rank_names(nodes, ranks), streams=streams)
            clock = lambda: time.monotonic() + offset_s  # noqa: E731 - what it adds changes
            with live_or_plain(nodes, enabled=panel, streams=streams, clock=clock) as screen:
                screen.begin(printer, ranks)
                offset_s = 1.0
                screen.tick()  # draws it for the first time, and loads what draws
                begin_s = time.perf_counter()
                for number in range(_EVENTS):
                    lines = Output(number % _NODES, _LINE * per_event, is_error=False)
                    screen.show(lines)
                    screen.tick()
        finally:
            os.close(stream)
        reader.wait()
        return time.perf_counter() - begin_s


if __name__ == "__main__":
    sys.stdout.write("\n".join([Figure.HEADER, *(one.row() for one in printing_figures())]) + "\n")

"""The ranks' output as it comes, each line behind the rank it is from.

Bytes as they are in a file or a pipe, harmless ones at a terminal, one write for each event: this
is what a job's whole output goes through.
"""

from __future__ import annotations

import os
import select
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from slurm_adapter.errors import BadValueError, printable
from slurm_adapter.show.harmless import harmless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.node.ranks.events import Output

Streams = tuple[int, int]
"""The descriptors of stdout and stderr; -1 for one that was closed before we started."""

_COLOURS = (36, 33, 35, 32, 34, 31)
_CHOICES = "Choose all, first, none or ranks, as in rank=3 or rank=0,4-7."
_LONGEST_NUMBER = 9


@dataclass(frozen=True)
class LogChoice:
    """Whose output is shown, on stdout and on stderr alike; files hold everybody's."""

    ranks: frozenset[int] | None = None
    """None: of all."""

    @classmethod
    def parse(cls, text: str, world_size: int) -> LogChoice:
        """Return what `--logs TEXT` means for ranks 0 to `world_size` - 1.

        Raises:
            BadValueError: for a text of another form, and for ranks that do not exist.
        """
        if text == "all":
            return cls()
        if text in ("first", "none"):
            return cls(frozenset({0} if text == "first" else ()))
        name, _, listed = text.partition("=")
        if name != "rank":
            raise BadValueError(f"--logs {printable(text)} is not understood", _CHOICES)
        chosen: set[int] = set()
        for part in listed.split(","):
            chosen |= _range(part, text, world_size)
        return cls(frozenset(chosen))

    def shows(self, rank: int) -> bool:
        """Say whether a rank's output is shown."""
        return self.ranks is None or rank in self.ranks


def _range(part: str, text: str, world_size: int) -> set[int]:
    first, dash, last = part.partition("-")
    numbers = (first, last) if dash else (first, first)
    if not all(_is_number(number) for number in numbers) or int(numbers[0]) > int(numbers[1]):
        raise BadValueError(
            f"--logs {printable(text)}: {printable(part)!r} is no rank and no range of ranks",
            _CHOICES,
        )
    # Before it is spelled out: a range may be far longer than any job.
    if int(numbers[1]) >= world_size:
        there = f"ranks are 0 to {world_size - 1}" if world_size > 1 else "rank 0 is the only one"
        raise BadValueError(f"--logs {text}: there is no rank {numbers[1]}; {there}", _CHOICES)
    return set(range(int(numbers[0]), int(numbers[1]) + 1))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER


def short_names(nodes: Sequence[str]) -> list[str]:
    """Return names of nodes without the domain that all share, as people do who speak of them."""
    first = [node.partition(".")[0] for node in nodes]
    domains = {node.partition(".")[2] for node in nodes}
    # An address has dots, too, and no part of it is a name.
    is_one = len(domains) == 1 and not any(map(_is_number, first))
    return first if is_one else list(nodes)


def rank_names(nodes: Sequence[str], ranks: Sequence[Sequence[int]]) -> list[str]:
    """Return `node/rank` for each rank, in rank order.

    Args:
        nodes: the nodes' names.
        ranks: for each node the ranks on it.
    """
    pairs = zip(short_names(nodes), ranks, strict=True)
    of_rank = {rank: f"{name}/{rank}" for name, mine in pairs for rank in mine}
    return [of_rank[rank] for rank in sorted(of_rank)]


class LinePrinter:
    """Writes lines to our own stdout and stderr."""

    def __init__(
        self,
        names: Sequence[str],
        choice: LogChoice = LogChoice(),
        streams: Streams | None = None,
        *,
        raw: bool = False,
    ) -> None:
        """Prepare a prefix for each rank.

        Args:
            names: by rank: `0`, or `gpu-n01/0` where there are several machines.
            choice: whose lines are shown.
            streams: where to; None: this process's own.
            raw: whether a terminal, too, gets what ranks print byte for byte.
        """
        self.streams = own_streams() if streams is None else streams
        self._tamed = tuple(not raw and _is_terminal(stream) for stream in self.streams)
        self._shown = [choice.shows(rank) for rank in range(len(names))]
        plain = _prefixes([printable(name) for name in names])
        of_stream = {True: _coloured(plain), False: plain}
        self._prefixes = tuple(of_stream[may_colour(stream)] for stream in self.streams)

    def prefixed(self, rank: int, lines: bytes, *, is_error: bool) -> bytes:
        """Return lines as they are shown on a stream; nothing where the rank's are not."""
        if not self._shown[rank]:
            return b""
        prefix = self._prefixes[is_error][rank]
        lines = self.tamed(lines, is_error=is_error)
        return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n"

    def tamed(self, lines: bytes, *, is_error: bool) -> bytes:
        """Return lines as a stream takes them: without what would disturb a terminal."""
        return harmless(lines) if self._tamed[is_error] else lines

    def show(self, output: Output) -> None:
        """Write lines; `OSError` where that cannot be (nobody reads, the disk is full)."""
        data = self.prefixed(output.rank, output.lines, is_error=output.is_error)
        if data:
            write_all(self.streams[output.is_error], data)


def _prefixes(names: Sequence[str]) -> list[bytes]:
    """Return `[name] ` for each, all of one width: numbers to the right, names to the left."""
    width = max(map(len, names), default=0)
    if all(map(_is_number, names)):
        return [f"[{name:>{width}}] ".encode() for name in names]
    return [f"[{name}]{'':{width - len(name)}} ".encode() for name in names]


def _coloured(prefixes: Sequence[bytes]) -> list[bytes]:
    return [
        b"\x1b[%dm%s\x1b[0m" % (_COLOURS[rank % len(_COLOURS)], prefix)
        for rank, prefix in enumerate(prefixes)
    ]


def own_streams() -> Streams:
    """Return this process's stdout and stderr.

    Where one was closed at the start its number may belong to another file by now.
    """
    return (-1 if sys.stdout is None else 1, -1 if sys.stderr is None else 2)


def write_all(stream: int, data: bytes) -> None:
    """Write everything, in one piece where the system takes it; `OSError` where it cannot."""
    written = 0
    while written < len(data):
        try:
            written += os.write(stream, memoryview(data)[written:] if written else data)
        except BlockingIOError:
            # Whoever shares the terminal or the pipe with us may have made it so.
            select.select((), (stream,), ())


def has_colour(stream: IO[Any] | None) -> bool:
    """Say whether colour may be written: at a terminal, unless NO_COLOR or TERM=dumb says no."""
    if stream is None:  # closed before we started
        return False
    return stream.isatty() and _wants_colour()


def may_colour(stream: int) -> bool:
    """Say so of a descriptor."""
    return _is_terminal(stream) and _wants_colour()


def _is_terminal(stream: int) -> bool:
    return stream >= 0 and os.isatty(stream)


def _wants_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

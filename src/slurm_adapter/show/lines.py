"""The ranks' output as it comes, each line behind the rank it is from."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from slurm_adapter.node.events import Output

_COLOURS = (36, 33, 35, 32, 34, 31)


class LinePrinter:
    """Writes lines to our own stdout and stderr, bytes as they are."""

    def __init__(self, ranks: int) -> None:
        width = len(str(ranks - 1))
        self._plain = [f"[{rank:{width}}] ".encode() for rank in range(ranks)]
        self._streams: tuple[BinaryIO, BinaryIO] = (sys.stdout.buffer, sys.stderr.buffer)
        self._prefixes = tuple(
            self._coloured() if has_colour(stream) else self._plain for stream in self._streams
        )

    def _coloured(self) -> list[bytes]:
        return [
            b"\x1b[%dm%s\x1b[0m" % (_COLOURS[rank % len(_COLOURS)], prefix)
            for rank, prefix in enumerate(self._plain)
        ]

    def show(self, output: Output) -> None:
        """Write lines; `OSError` where that cannot be (nobody reads, the disk is full)."""
        stream = self._streams[output.is_error]
        prefix = self._prefixes[output.is_error][output.rank]
        try:
            stream.write(prefix + output.lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n")
            stream.flush()
        except OSError:
            # Or Python complains once more when it flushes the stream at its own end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise


def has_colour(stream: IO[Any] | None) -> bool:
    """Say whether colour may be written: at a terminal, unless NO_COLOR or TERM=dumb says no."""
    if stream is None:  # closed before we started
        return False
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

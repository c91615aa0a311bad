"""What happens to ranks while they run, as whoever started them tells it."""

from __future__ import annotations

from slurm_adapter import signals
from slurm_adapter.errors import ending_signal
from slurm_adapter.record import record


@record
class Output:
    """Whole lines of a rank, each with its line break (a progress bar's CR ends a line too)."""

    rank: int
    lines: bytes
    is_error: bool
    """Whether they came from stderr."""


@record
class Ended:
    """A rank's process is gone."""

    rank: int
    status: int
    """Exit status as a shell has it: 128 + N where signal N ended it."""
    at_s: float = 0.0
    """When, on the monotonic clock of the process that is told; 0: not known."""

    @property
    def how(self) -> str:
        """Words for it: `exit status 3` or `signal SIGSEGV`."""
        name = signals.name_of(ending_signal(self.status))
        return f"exit status {self.status}" if name is None else f"signal {name}"


@record
class Lost:
    """A node cannot be reached any more, whatever its ranks do."""

    node_index: int
    ranks: tuple[int, ...]
    """Those whose end is not known."""
    why: str
    status: int
    """What the command returns for it."""
    at_s: float = 0.0
    """When that was noticed, on the monotonic clock."""


Event = Output | Ended | Lost


_LONGEST_LINE = 1 << 20
"""Bytes of a line that are held back for the rest of it; a longer one comes in several."""


class LineSplitter:
    """Bytes as they come become whole lines; characters split over two reads stay whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the line that is not complete yet

    def feed(self, data: bytes) -> bytes:
        """Return the lines that are complete now, each with its line break."""
        if self._parts and self._parts[-1] == b"\r":  # it may have been half of \r\n
            data = self._parts.pop() + data
        # A \r at the very end waits for the next byte, for the same reason.
        held = data.endswith(b"\r")
        body = data[:-1] if held else data
        if b"\r" in body:
            body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = body.rfind(b"\n") + 1
        lines = b""
        if end:
            lines = b"".join([*self._parts, body[:end]])
            self._parts.clear()
        self._parts += [part for part in (body[end:], b"\r" if held else b"") if part]
        if sum(map(len, self._parts)) > _LONGEST_LINE:
            lines += self.finish()
        return lines

    def finish(self) -> bytes:
        """Return what is left when no more comes, as a line."""
        rest = b"".join(self._parts).removesuffix(b"\r")
        self._parts.clear()
        return rest + b"\n" if rest else b""

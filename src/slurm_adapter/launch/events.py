"""What happens to ranks while they run, as a launcher tells it."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Output:
    """One whole line of a rank, without its line break (a progress bar's CR ends one too)."""

    rank: int
    line: bytes
    is_error: bool
    """Whether it came from stderr."""


@dataclass(frozen=True)
class Ended:
    """A rank's process is gone."""

    rank: int
    status: int
    """Exit status as a shell has it: 128 + N where signal N ended it."""

    @property
    def how(self) -> str:
        """Words for it: `exit status 3` or `signal SIGSEGV`."""
        number = self.status - 128
        if number > 0 and number in {one.value for one in signal.Signals}:
            return f"signal {signal.Signals(number).name}"
        return f"exit status {self.status}"


Event = Output | Ended


class LineSplitter:
    """Bytes as they come become whole lines; characters split over two reads stay whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now."""
        data = self._rest + data
        # A \r at the very end may be the first half of \r\n: it waits for the next byte.
        held = b"\r" if data.endswith(b"\r") else b""
        body = data[: len(data) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = body.split(b"\n")
        self._rest = rest + held
        return lines

    def finish(self) -> list[bytes]:
        """Return what is left when no more comes."""
        rest = self._rest.removesuffix(b"\r")
        self._rest = b""
        return [rest] if rest else []

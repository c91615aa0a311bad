"""A file of text as it grows, line by line: where it was read to, and what is not whole yet."""

from __future__ import annotations

_LONGEST_LINE = 1 << 20


class Tail:
    """One file, from its beginning, whether it is there yet or not."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""

    @property
    def place(self) -> tuple[str, int]:
        """What is to be read next, as `SubmitHost.read` takes it."""
        return self.path, self._offset

    def lines(self, piece: tuple[int, bytes], *, last: bool = False) -> bytes:
        """Return the whole lines that a piece completes; with `last` also one that has no end.

        A piece that begins where none was due is of a file that was written anew: as a requeued
        job does without `open-mode=append`.
        """
        offset, data = piece
        self._offset = offset + len(data)
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if len(data) - end > _LONGEST_LINE or (last and end < len(data)):
            self._rest = b""
            return data + b"\n"
        self._rest = data[end:]
        return data[:end]

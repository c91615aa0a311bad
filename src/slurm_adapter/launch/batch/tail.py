"""Files of text as they grow, line by line: no file is read twice, none is copied."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_READ_BYTES = 1 << 20
_LONGEST_LINE = 1 << 20


class Tail:
    """One file, from its beginning, whether it is there yet or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._rest = b""

    def lines(self, *, last: bool = False) -> bytes:
        """Return the whole lines that have come; with `last` also one that has no end.

        At most a mebibyte at a time: there may be more. An `OSError` of a network file system in
        trouble is nothing new, which is how it passes by itself.
        """
        try:
            data = self._read()
        except OSError:
            data = b""
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if len(data) - end > _LONGEST_LINE or (last and end < len(data)):
            self._rest = b""
            return data + b"\n"
        self._rest = data[end:]
        return data[:end]

    def _read(self) -> bytes:
        if self._file is None:
            try:
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
        data = os.read(self._file, _READ_BYTES)
        if not data and os.fstat(self._file).st_size < os.lseek(self._file, 0, os.SEEK_CUR):
            os.lseek(self._file, 0, os.SEEK_SET)  # written anew: a requeued job without append
        return data

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

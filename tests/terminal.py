"""A real terminal (pty) with an emulator behind it, that tells what a person would see."""

import fcntl
import os
import queue
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pyte

from testbed.waiting import LONG_S


class Terminal:
    """A pty; whatever is written to `stream` is read at once, and drawn when it is asked for."""

    def __init__(self, columns: int, rows: int) -> None:
        self._ours, self.stream = os.openpty()
        self._screen = pyte.HistoryScreen(columns, rows, history=1_000_000, ratio=0.1)
        self._emulator = pyte.ByteStream(self._screen)
        self._read = queue.SimpleQueue[bytes]()
        self._marks = 0
        self.written = b""
        """Everything so far, as of the last look."""
        self.resize(columns, rows)
        self._reader = threading.Thread(target=self._keep_reading, daemon=True)
        self._reader.start()

    def _keep_reading(self) -> None:
        try:
            while data := os.read(self._ours, 1 << 16):
                self._read.put(data)
        except OSError:  # closed: Linux says EIO
            pass

    def resize(self, columns: int, rows: int) -> None:
        """Have another size, as after the window was dragged."""
        fcntl.ioctl(self.stream, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        screen, lost = self._screen, self._screen.lines - rows
        if lost > 0:
            # The emulator drops rows at the top. Terminals keep the cursor's row: what is below
            # it goes first, and what has to leave at the top is scrolled out.
            place = screen.cursor.y
            scrolled = max(0, place + 1 - rows)
            screen.history.top.extend(screen.buffer[row] for row in range(scrolled))
            screen.cursor.y = 0
            screen.insert_lines(lost - scrolled)
            screen.cursor.y = place - scrolled
        screen.resize(rows, columns)

    def type(self, text: str) -> None:
        """Have somebody type."""
        os.write(self._ours, text.encode())

    def drain(self) -> bytes:
        """Return what was written since it was asked for last, without drawing it."""
        self._marks += 1
        mark = b"\x1b]0;%d\x07" % self._marks
        os.write(self.stream, mark)
        data = b""
        while not data.endswith(mark):
            data += self._read.get(timeout=LONG_S)
        return data.removesuffix(mark)

    def look(self) -> pyte.HistoryScreen:
        """Return the screen with everything on it that was written so far."""
        data = self.drain()
        self.written += data
        self._emulator.feed(data)
        return self._screen

    def rows(self) -> list[str]:
        """Return the screen's rows, without blanks at their ends, as far as they are used."""
        rows = [row.rstrip() for row in self.look().display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def everything(self) -> list[str]:
        """Return all rows, those that have scrolled away included."""
        rows = self.rows()
        above = self._screen.history.top
        blank = self._screen.default_char
        texts = [
            "".join(line.get(x, blank).data for x in range(self._screen.columns)) for line in above
        ]
        return [text.rstrip() for text in texts] + rows

    @property
    def in_order(self) -> bool:
        """Whether cursor and modes are as a shell expects them."""
        modes = pyte.Screen(1, 1).mode
        return not self.look().cursor.hidden and self._screen.mode == modes

    def close(self) -> None:
        """Let go of it."""
        os.close(self.stream)
        self._reader.join()
        os.close(self._ours)


@contextmanager
def terminal(columns: int, rows: int, **env: str) -> Iterator[Terminal]:
    """Give a terminal for a while, and an environment that goes with it, plus `env`."""
    with patch.dict(os.environ, {"TERM": "xterm-256color", "NO_COLOR": "", **env}):
        one = Terminal(columns, rows)
        try:
            yield one
        finally:
            one.close()

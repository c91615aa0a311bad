"""Questions to the user at the terminal, one at a time, whoever asks."""

from __future__ import annotations

import contextlib
import os
import select
import termios
import threading
from typing import TYPE_CHECKING

from slurm_adapter.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 4096


class NoTerminalError(Exception):
    """There is nobody to ask, or the question was withdrawn."""


class Terminal:
    """The controlling terminal: also where stdin and stdout are pipes, as with ssh."""

    def __init__(self, path: str = "/dev/tty") -> None:
        self.path = path
        self._lock = threading.RLock()
        self._withdrawn = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def there(self) -> bool:
        """Say whether somebody can be asked."""
        with contextlib.suppress(OSError, NoTerminalError), self._opened():
            return True
        return False

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Keep others from asking while several questions belong together."""
        with self._lock:
            yield

    def ask(self, prompt: str, *, echo: bool) -> str:
        """Show a prompt and return the line that is typed, without its end.

        Raises:
            NoTerminalError: there is no terminal, it was hung up, or `withdraw` was called.
        """
        with self._lock, self._opened() as terminal, _silent(terminal, silent=not echo):
            self._check_wanted()
            lines = "\n".join(map(printable, prompt.split("\n")))
            os.write(terminal, lines.encode(errors="replace"))
            answer = self._line(terminal)
            if not echo:
                os.write(terminal, b"\n")
            return answer

    def withdraw(self) -> None:
        """End the question that is being asked, and every later one, unanswered."""
        os.eventfd_write(self._withdrawn, 1)

    def close(self) -> None:
        """Let go of the descriptor; nothing can be asked any more."""
        os.close(self._withdrawn)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            terminal = os.open(self.path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            raise NoTerminalError(str(error)) from error
        try:
            if not os.isatty(terminal):
                raise NoTerminalError(f"{self.path} is no terminal")
            yield terminal
        finally:
            os.close(terminal)

    def _check_wanted(self) -> None:
        poll = select.poll()
        poll.register(self._withdrawn, select.POLLIN)
        if poll.poll(0):
            raise NoTerminalError("the question was withdrawn")

    def _line(self, terminal: int) -> str:
        typed = b""
        while not typed.endswith(b"\n"):
            poll = select.poll()  # select() knows no descriptor above 1023
            poll.register(terminal, select.POLLIN)
            poll.register(self._withdrawn, select.POLLIN)
            if self._withdrawn in {descriptor for descriptor, _ in poll.poll()}:
                raise NoTerminalError("the question was withdrawn")
            try:
                chunk = os.read(terminal, _CHUNK)
            except OSError as error:
                raise NoTerminalError(str(error)) from error
            if not chunk:
                raise NoTerminalError("the terminal's input has ended")
            typed += chunk
        return typed.rstrip(b"\r\n").decode(errors="surrogateescape")


@contextlib.contextmanager
def _silent(terminal: int, *, silent: bool) -> Iterator[None]:
    if not silent:
        yield
        return
    before = termios.tcgetattr(terminal)
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)

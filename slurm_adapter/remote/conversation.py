"""The head's end of a conversation (`node.converse`): requests over one channel, one at a time."""

from __future__ import annotations

import inspect
import json
import select
import time
import zlib
from typing import TYPE_CHECKING
from uuid import uuid4

from slurm_adapter.quoting import shell_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

    from slurm_adapter.remote.transport.port import CommandChannel, Connection

_STATUS_S = 1.0
_CHUNK = 1 << 16
_SLICE_S = 0.25
_READ_PROGRAM = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
# Parents come first; one that another imports comes before it.
_RUN_MODULES = """
import types
for name, text in modules.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(module.main(*sys.argv[2:]))
"""


class ToldError(Exception):
    """What the other end could not do, and what to do about it where that is known."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


class SilentError(ToldError):
    """The other end is gone, or says nothing any more."""


class Conversation:
    """One end that runs on a machine. Every method waits, and raises `ToldError`."""

    def __init__(
        self,
        connection: Connection,
        python: str,
        program: bytes,
        arguments: Sequence[str],
        patience_s: float,
    ) -> None:
        """Start a command for it; `start` waits until it runs.

        Args:
            connection: to the machine.
            python: the interpreter there.
            program: what runs there, as `program_of` returns it.
            arguments: what its `main` gets behind the token.
            patience_s: how long it may say nothing before it counts as hanging.
        """
        self.token = uuid4().hex
        self.sent = 0
        """Bytes that went there."""
        self._connection = connection
        self._patience_s = patience_s
        self._cancelled = False
        self._heard = time.monotonic()
        self._ended = False
        self._output = bytearray()
        self._error = bytearray()
        words = (python, "-I", "-S", "-c", _READ_PROGRAM, str(len(program)), self.token)
        self._channel: CommandChannel = connection.start(shell_words([*words, *arguments]))
        self._poll = select.poll()
        self._poll.register(self._channel.fileno(), select.POLLIN)
        self._program = program

    def start(self) -> None:
        """Wait until it runs."""
        self.write(self._program)
        self._read_past(f"\n{self.token}\n".encode())

    def ask(self, what: str, **details: object) -> dict[str, Any]:
        """Send a request and return its answer."""
        self.write(request(what, **details))
        return self.answer()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        unsent = memoryview(data)
        self._heard = time.monotonic()
        while unsent:
            taken = self._channel.write(bytes(unsent[:_CHUNK]))
            unsent = unsent[taken:]
            self.sent += taken
            self._take()
            if self._ended:
                self.answer()  # it says why
            if taken:
                self._heard = time.monotonic()
            else:
                self._wait()

    def answer(self) -> dict[str, Any]:
        """Return the answer to the request sent last."""
        answer: dict[str, Any] = {"beat": True}
        while "beat" in answer:
            size = int.from_bytes(self._read(4), "big")
            answer = json.loads(zlib.decompress(self._read(size)))
        if "error" in answer:
            raise ToldError(answer["error"], answer.get("remedy", ""))
        return answer

    def cancel(self) -> None:
        """Have whatever another thread does with it fail soon."""
        self._cancelled = True

    def close(self) -> None:
        """Let it end."""
        self._channel.close_input()
        self._channel.close()

    def _read(self, count: int) -> bytes:
        while len(self._output) < count:
            self._more()
        data = bytes(self._output[:count])
        del self._output[:count]
        return data

    def _read_past(self, mark: bytes) -> None:
        while mark not in self._output:
            self._more()
        del self._output[: self._output.index(mark) + len(mark)]

    def _more(self) -> None:
        if not self._take():
            if self._ended:
                raise SilentError(self._why_ended())
            self._wait()

    def _take(self) -> bool:
        """Take what the other end has said; say whether that was something."""
        found = False
        while data := self._channel.read(_CHUNK):
            self._output += data
            self._heard = time.monotonic()
            found = True
        self._ended = data == b""
        while said := self._channel.read_error(_CHUNK):
            self._error += said
        self._channel.status()  # its descriptor is quiet only once everything was asked
        return found

    def _wait(self) -> None:
        self._poll.poll(_SLICE_S * 1000)
        if self._cancelled:
            raise ToldError("the copy was broken off")
        if time.monotonic() - self._heard > self._patience_s:
            raise SilentError(f"no answer for {self._patience_s:g} s; its file system may hang")

    def _why_ended(self) -> str:
        """Return why the other end is gone without a word."""
        if not self._connection.alive():
            return "the connection was lost"
        lines = bytes(self._error).decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        deadline = time.monotonic() + _STATUS_S  # it may come a moment behind the output's end
        while (status := self._channel.status()) is None and time.monotonic() < deadline:
            self._poll.poll(_SLICE_S * 1000)
        return said or f"the receiving end ended with exit status {status}"


def program_of(*modules: ModuleType) -> bytes:
    """Return a program of modules, whose last one has the `main` that runs.

    One that another imports comes before it.
    """
    texts = dict.fromkeys(
        (
            "slurm_adapter",
            "slurm_adapter.node",
            "slurm_adapter.node.agent",
            "slurm_adapter.node.system",
        ),
        "",
    )
    texts |= {module.__name__: inspect.getsource(module) for module in modules}
    return f"modules = {texts!r}\n{_RUN_MODULES}".encode()


def request(what: str, **details: object) -> bytes:
    """Return a request as bytes."""
    data = zlib.compress(json.dumps({"do": what, **details}).encode())
    return len(data).to_bytes(4, "big") + data

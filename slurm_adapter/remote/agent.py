"""The head's end of one agent: started with its code, spoken to, listened to.

The only piece that pumps an agent's channel, whatever it is asked for: `AgentFleet` does so for all
of a job's together, `Requests` for one that answers.
"""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING

from slurm_adapter import signals
from slurm_adapter.errors import ClusterUnfitError, ending_signal, printable
from slurm_adapter.node.protocol import framing
from slurm_adapter.node.protocol.checked import read_agent_message
from slurm_adapter.node.protocol.encoding import BEAT_FRAME, request_frame
from slurm_adapter.node.protocol.framing import BrokenMessageError, FrameReader
from slurm_adapter.node.protocol.messages import Beat
from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.agent_archive import interpreter_words
from slurm_adapter.remote.transport.port import ConnectionLostError

if TYPE_CHECKING:
    from slurm_adapter.node.protocol.messages import AgentMessage, Request
    from slurm_adapter.remote.agent_archive import AgentFiles
    from slurm_adapter.remote.transport.port import CommandChannel, Connection

_READ_BYTES = 1 << 20
_WRITE_BYTES = 1 << 18
_MOST_NOISE_BYTES = 1 << 16
_NOT_FOUND = (126, 127)
_SHOWN_LINES = 3


class Agent:
    """One node's agent.

    Messages are sent whole, whichever thread sends them; they are read by one thread only.
    """

    def __init__(self, connection: Connection, index: int, python: str, run: str) -> None:
        self.connection, self.index, self.python = connection, index, python
        self.name = connection.node.name
        self.gone = False
        """Whether it has confirmed that nothing is left, or cannot any more."""
        self.lost = ""
        """Why it cannot be reached any more, empty while it can."""
        self.unreachable = False
        """Whether that is because the way there broke, and not because it ended."""
        self.confirmed = False
        """Whether it told, by the way it ended, that nothing is left."""
        self.heard_s = self.answered_s = time.monotonic()
        self.clock_s = 0.0
        """What to add to its clock's moments to have ours."""
        self.sent = 0
        """Bytes that went there."""
        self._run = run
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._sending = threading.Lock()
        self._error = b""
        self._noise = b""
        self._channel: CommandChannel
        self._limit_s = self._begun_by_s = 0.0

    def begin(self, files: AgentFiles, limit_s: float) -> None:
        """Start it and have its code there; waits for its greeting.

        Raises:
            ClusterUnfitError: where it does not come.
        """
        self._channel = self.connection.start(self._command(self._run))
        self.send_bytes(files.first)
        self._limit_s, self._begun_by_s = limit_s, time.monotonic() + limit_s
        word = self._greeting()
        if word in (framing.NEED, framing.NEED_SOURCE):
            self.send_bytes(files.code if word == framing.NEED else files.archive)
            self._finish_sending()
        elif word.startswith(framing.OLD):
            version = word.removeprefix(framing.OLD).decode().strip()
            raise ClusterUnfitError(
                f"{self.name}: {self.python} is Python {version}",
                "Name one of 3.10 or later with --python PATH, or python=PATH in the host file.",
            )

    def _command(self, run: str) -> str:
        """Return what is started there, as text for a login shell."""
        return shell_words(interpreter_words(self.python, run))

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be something to read."""
        return self._channel.fileno()

    @property
    def unsent(self) -> int:
        """How many bytes wait for room."""
        return len(self._unsent)

    def send(self, request: Request) -> None:
        """Send a message; where the connection is gone the reading side will notice."""
        self.send_bytes(request_frame(request))

    def beat(self) -> None:
        """Have it know that somebody is still here."""
        self.send_bytes(BEAT_FRAME)

    def send_bytes(self, data: bytes = b"") -> None:
        """Send bytes behind those that are still waiting for room."""
        with self._sending:
            self._unsent += data
            try:
                while self._unsent:
                    count = self._channel.write(bytes(self._unsent[:_WRITE_BYTES]))
                    if not count:
                        return
                    self.sent += count
                    del self._unsent[:count]
            except ConnectionLostError:
                self._unsent.clear()

    def read(self) -> list[AgentMessage]:
        """Return the messages that have come; sets `lost` where there will be no more."""
        self.send_bytes()
        # All that there is to ask: only then is the descriptor quiet again.
        self._channel.status()
        self._hear_error()
        found: list[AgentMessage] = []
        while data := self._channel.read(_READ_BYTES):
            self.heard_s = time.monotonic()
            try:
                found += self._messages(data)
            except BrokenMessageError as broken:
                self.lost = str(broken)
                return found
            if len(data) < _READ_BYTES:
                return found
        if data is not None and not self.lost:
            self.lost = self._why_ended()
        return found

    def _messages(self, data: bytes) -> list[AgentMessage]:
        messages = [read_agent_message(*one) for one in self._reader.feed(data)]
        return [one for one in messages if not isinstance(one, Beat)]

    def _hear_error(self) -> None:
        error = self._channel.read_error(_READ_BYTES)
        if error:
            self._error = (self._error + error)[-_MOST_NOISE_BYTES:]

    def close(self) -> None:
        """Let go of it and of its node."""
        if hasattr(self, "_channel"):
            self._channel.close()
        self.connection.close()

    def _greeting(self) -> bytes:
        """Return the word behind the greeting; what start-up files print before it is passed."""
        while True:
            self._wait()
            self.send_bytes()
            data = self._channel.read(_READ_BYTES)
            if data == b"":
                raise self._no_greeting()
            self._noise += data or b""
            _, found, rest = self._noise.partition(b"\n" + framing.GREETING)
            if found and b"\n" in rest:
                word, _, more = rest.partition(b"\n")
                self._reader.feed(more)
                return word
            if len(self._noise) > _MOST_NOISE_BYTES:
                raise ClusterUnfitError(
                    f"{self.name}: its start-up files print without end",
                    f"Let {shell_words(['ssh', self.name, 'true'])} print nothing.",
                )

    def _finish_sending(self) -> None:
        while self._unsent:
            self._wait()
            self.send_bytes()
            if self._channel.status() is not None:
                raise self._no_greeting()

    def _wait(self) -> None:
        waiting = select.poll()
        waiting.register(self._channel.fileno(), select.POLLIN)
        # All there is to ask: only then is the descriptor quiet, and waiting no busy loop.
        self._channel.status()
        self._hear_error()
        left_s = self._begun_by_s - time.monotonic()
        if left_s <= 0 or not waiting.poll(left_s * 1000):
            raise ClusterUnfitError(
                f"{self.name}: {self.python} did not answer within {self._limit_s:g} s",
                self._try_it(),
            )

    def _no_greeting(self) -> ClusterUnfitError:
        """Return why the interpreter, or the login shell before it, ended."""
        status = self._end_status()
        self._hear_error()
        if status in _NOT_FOUND:
            return self._no_interpreter()
        said = _last_lines(self._noise + b"\n" + self._error)
        return ClusterUnfitError(
            f"{self.name}: {self.python} ended with status {status}"
            + (f": {said}" if said else ""),
            self._try_it(),
        )

    def _no_interpreter(self) -> ClusterUnfitError:
        self._channel.close()  # a server may allow one session at a time
        return ClusterUnfitError(
            f"{self.name}: it has no {self.python}" + self._other_interpreters(),
            "Name the interpreter with --python PATH, or python=PATH in the host file.",
        )

    def _try_it(self) -> str:
        """Return the command that shows whether the interpreter runs there."""
        return f"Try {shell_words(['ssh', self.name, self.python, '-I', '-S', '-c', 'pass'])}."

    def _end_status(self) -> int | None:
        """Return it where it comes, soon after the end of the output."""
        waiting = select.poll()
        waiting.register(self._channel.fileno(), select.POLLIN)
        deadline = time.monotonic() + 1.0
        while (status := self._channel.status()) is None and self.connection.alive():
            if time.monotonic() > deadline:
                return None
            waiting.poll(100)
            self._channel.read(_READ_BYTES)
        return status

    def _other_interpreters(self) -> str:
        try:
            answer = self.connection.run("command -v python3 python", limit_s=10.0)
        except (ConnectionLostError, ClusterUnfitError):
            return ""
        found = answer.output.decode(errors="replace").split("\n")[0].strip()
        return f" (it has {printable(found)})" if found.startswith("/") else ""

    def _why_ended(self) -> str:
        status = self._end_status()
        if status is None:
            self.unreachable = True
            return "the connection ended"
        if status == framing.UNHEARD:
            self.confirmed = True
            return "it heard nothing from here for too long, and has ended what ran there"
        if (name := signals.name_of(ending_signal(status))) is not None:
            return f"its agent was ended by {name}"
        self._hear_error()
        said = _last_lines(self._error)
        return f"its agent ended with status {status}" + (f": {said}" if said else "")


def _last_lines(data: bytes) -> str:
    lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
    return "; ".join(printable(line.strip()) for line in lines[-_SHOWN_LINES:])

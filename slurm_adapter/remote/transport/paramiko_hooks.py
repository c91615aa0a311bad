"""What is needed of paramiko beyond its documented interface: all of it is here.

Each hook says why it is one. `tests/test_connect_paramiko.py` says which one a new version has
taken away. Everywhere else only documented classes and methods of paramiko are used.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import paramiko
from paramiko.agent import AgentSSH
from paramiko.common import (
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EOF,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_REQUEST,
    MSG_CHANNEL_WINDOW_ADJUST,
    MSG_DEBUG,
    MSG_DISCONNECT,
    cMSG_GLOBAL_REQUEST,
)
from paramiko.packet import Packetizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# What a slow reader may leave unread here, for each command: it bounds the head's memory.
WINDOW_BYTES = 1 << 18
_IDLE_POLL_S = 1.0
_AGENT_LIMIT_S = 60.0  # a person may have to touch a token

OUTPUT, ERROR, STATUS, ROOM = 1, 2, 4, 8
"""What there may be news of: a command's streams, its end, and room for its input."""
_EVERYTHING = OUTPUT | ERROR | STATUS | ROOM
_NEWS = {
    MSG_CHANNEL_DATA: OUTPUT,
    MSG_CHANNEL_EXTENDED_DATA: ERROR,
    MSG_CHANNEL_REQUEST: STATUS,
    MSG_CHANNEL_WINDOW_ADJUST: ROOM,
    MSG_CHANNEL_EOF: OUTPUT | ERROR,
    MSG_CHANNEL_CLOSE: _EVERYTHING,
}

# Without a handler Python prints the library's messages, tracebacks among them, on stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def _no_traceback() -> list[str]:
    """Stand in for what writes one for that log, for each connection that was turned away.

    It reads source files for it, in each connection's own thread, and Python 3.11 reads them one
    at a time only: SystemError, "AST constructor recursion depth mismatch", in any of the threads.
    Nothing public turns it off: the text is made before any logger is asked.
    """
    return []


paramiko.util.tb_strings = _no_traceback


def timed_out(error: Exception) -> bool:
    """Say whether a key exchange or a login went unanswered: there is no class for that."""
    return "No existing session" in str(error) or "Authentication timeout" in str(error)


class ChannelWatch:
    """What the server has said of a channel, as far as paramiko does not keep it.

    Args:
        tell: called with OUTPUT, ERROR, STATUS and ROOM, or several of them added up, once there
            may be something new; in the transport's thread.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self.tell = tell
        self.signal: int | None = None
        """The signal that ended the command."""
        self.no_more_output = False
        self.closed_by_server = False
        """A lost connection closes channels, too."""


class Transport(paramiko.Transport):  # type: ignore[misc]
    """One connection's protocol, fit for hundreds of long, silent connections."""

    def __init__(self, sock: Any, handshake_limit_s: float, **options: Any) -> None:
        super().__init__(
            sock, default_window_size=WINDOW_BYTES, packetizer_class=_Packets, **options
        )
        # Longer or shorter than 15 s only by this attribute.
        self.handshake_timeout = handshake_limit_s

    @property
    def farewell(self) -> str:
        """Why the server ended the connection, in its own words; empty where it said nothing."""
        return str(self.packetizer.farewell)

    def run(self) -> None:
        """Serve the connection to its end, whatever that is, without a word on stderr.

        Where it is lost while it is being closed the thread's own `run` raises, and Python prints
        that; and there is no event for the end of a connection.
        """
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is lost
            self.active = False
            self.saved_exception = error
        finally:
            self.packetizer.tell_the_end()

    def watch_channel(self, number: int, tell: Callable[[int], None]) -> ChannelWatch:
        """From now on, be told of a channel; see `ChannelWatch`."""
        watch = ChannelWatch(tell)
        self.packetizer.watches[number] = watch
        return watch

    def forget_channel(self, number: int) -> None:
        """Be told of it no more."""
        self.packetizer.watches.pop(number, None)

    def keep_alive(self, interval_s: int, most_unanswered: int) -> None:
        """From now on, notice when nothing comes any more.

        The documented `set_keepalive` says something now and then and expects no answer.

        Args:
            interval_s: seconds of silence after which the server is asked for a word.
            most_unanswered: so many questions without any word back, and the connection is lost.
        """
        self.packetizer.keep_alive(self._ask, interval_s, most_unanswered)
        self.sock.settimeout(min(_IDLE_POLL_S, interval_s / 2))

    def renew_keys(self, most_bytes: int, most_s: int) -> None:
        """From now on, exchange new keys after so much: there is no public way to say when.

        Args:
            most_bytes: either way; 0: as many as is usual.
            most_s: seconds; 0: whenever.
        """
        self.packetizer.renew_keys(most_bytes, most_s, lambda: bool(self.in_kex))

    def _ask(self) -> None:
        """Ask for an answer; `global_request` would wait for it, in the thread that reads it."""
        if not self.clear_to_send.is_set():
            return  # keys are being exchanged: an answer is due already
        question = paramiko.Message()
        question.add_byte(cMSG_GLOBAL_REQUEST)
        question.add_string("keepalive@openssh.com")
        question.add_boolean(True)  # noqa: FBT003 - an answer is wanted, if only a refusal
        self.packetizer.send_message(question)


class _Packets(Packetizer):  # type: ignore[misc]
    """Reads and writes messages; sees each before the transport does."""

    REKEY_BYTES: int

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        self.farewell = ""
        self.watches: dict[int, ChannelWatch] = {}
        self._due: tuple[ChannelWatch, int] | None = None
        self._handshake_ends: float | None = None
        self._ask: Callable[[], None] | None = None
        self.interval_s = 0.0
        self._most_unanswered = 0
        self._unanswered = 0
        self._next_question = 0.0
        self._keys_last_s = 0
        self._keys_made_s = time.monotonic()
        self._exchanging: Callable[[], bool] = bool

    def renew_keys(self, most_bytes: int, most_s: int, exchanging: Callable[[], bool]) -> None:
        """See `Transport.renew_keys`; `exchanging` says whether that goes on already."""
        self.REKEY_BYTES = min(most_bytes or self.REKEY_BYTES, self.REKEY_BYTES)
        self._keys_last_s, self._exchanging = most_s, exchanging

    def need_rekey(self) -> bool:
        """Say whether new keys are due; asked after each message, heartbeats among them."""
        now_s = time.monotonic()
        too_old = self._keys_last_s and now_s - self._keys_made_s > self._keys_last_s
        if too_old and not self._exchanging():
            self._keys_made_s = now_s
            return True
        return bool(super().need_rekey())

    def read_message(self) -> tuple[int, Any]:
        """Return the next message.

        Channels have no public event for their status and for room to write, drop the signal
        that ended a command, and do not tell an end of theirs from one of the connection.
        """
        # The transport asks for the next message once it is done with the one before.
        if self._due is not None:
            (watch, news), self._due = self._due, None
            watch.tell(news)
        kind, message = super().read_message()
        if self._ask is not None:
            self._unanswered = 0
            self._next_question = time.monotonic() + self.interval_s
        if kind in _NEWS:
            self._look_into(kind, message)
        elif kind == MSG_DISCONNECT:
            message.get_int()
            self.farewell = message.get_text()
            message.rewind()
        elif kind == MSG_DEBUG:
            # A server says much for its own log, and paramiko takes long to decode it.
            message = paramiko.Message()
        return kind, message

    def _look_into(self, kind: int, message: Any) -> None:
        watch = self.watches.get(message.get_int())
        if watch is not None:
            if kind == MSG_CHANNEL_REQUEST and message.get_text() == "exit-signal":
                message.get_boolean()
                watch.signal = _number_of(message.get_text())
            if kind in (MSG_CHANNEL_EOF, MSG_CHANNEL_CLOSE):
                watch.no_more_output = True
                watch.closed_by_server = kind == MSG_CHANNEL_CLOSE
            self._due = watch, _NEWS[kind]
        message.rewind()

    def tell_the_end(self) -> None:
        """Tell every channel that nothing comes any more."""
        for watch in list(self.watches.values()):
            watch.no_more_output = True
            watch.tell(_EVERYTHING)

    def keep_alive(self, ask: Callable[[], None], interval_s: float, most_unanswered: int) -> None:
        """See `Transport.keep_alive`."""
        self.interval_s, self._most_unanswered = interval_s, most_unanswered
        self._next_question = time.monotonic() + interval_s
        self._ask = ask

    def _check_keepalive(self) -> None:
        """Called whenever nothing came for the socket's time-out.

        What `set_keepalive` would have called goes by the wall clock, which may be set back, and
        stands still while keys are exchanged.
        """
        if self._ask is None or time.monotonic() < self._next_question:
            return
        if self._unanswered >= self._most_unanswered:
            raise EOFError("nothing came for too long")
        self._unanswered += 1
        self._next_question = time.monotonic() + self.interval_s
        self._ask()

    # paramiko has a timer for each connection: a thread that keeps the interpreter from ending.
    def start_handshake(self, timeout: float) -> None:
        self._handshake_ends = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        return self._handshake_ends is not None and time.monotonic() > self._handshake_ends

    def complete_handshake(self) -> None:
        self._handshake_ends = None


def _number_of(name: str) -> int:
    """Return the number of a signal that the protocol names without its `SIG`."""
    found = signal.Signals.__members__.get(f"SIG{name}")
    return 127 if found is None else found.value


class SshAgent(AgentSSH):  # type: ignore[misc]
    """An agent behind a socket; asked one question at a time, from whichever thread.

    The documented `Agent` takes its socket from this process's environment only, waits without
    limit, and mixes up the answers to two threads.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._turn = threading.Lock()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_AGENT_LIMIT_S)
        try:
            connection.connect(path)
            self._connect(connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """End the connection to it."""
        self._close()

    def _send_message(self, msg: object) -> object:
        with self._turn:
            return super()._send_message(msg)

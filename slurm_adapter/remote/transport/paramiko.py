"""paramiko's transport, put right where hundreds of long, silent connections need it.

* It asks the node whether it is still there, and gives up when nothing comes back (SSH-09);
  paramiko sends a word now and then and expects no answer.
* It needs no second thread while keys are exchanged, and wakes rarely while nothing happens.
* It keeps what the node said about the end: of a command by a signal, of the connection itself.
"""

from __future__ import annotations

import logging
import signal
import time
from typing import TYPE_CHECKING

import paramiko
from paramiko.common import MSG_CHANNEL_CLOSE, MSG_CHANNEL_REQUEST, cMSG_GLOBAL_REQUEST
from paramiko.packet import Packetizer

from slurm_adapter.errors import signal_status

if TYPE_CHECKING:
    from typing import Any

# What a slow reader may leave unread here, for each command: it bounds the head's memory.
WINDOW_BYTES = 1 << 18
_IDLE_POLL_S = 1.0

# Without a handler Python prints the library's messages, tracebacks among them, on stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def _no_traceback() -> list[str]:
    """Stand in for what writes one for that log, for each connection that was turned away.

    It reads source files for it, in each connection's own thread, and Python 3.11 reads them one
    at a time only: SystemError, "AST constructor recursion depth mismatch", in any of the threads.
    """
    return []


paramiko.util.tb_strings = _no_traceback


def _on_request(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """Keep the signal that ended a command as 128 + N: paramiko passes over it."""
    kind = message.get_text()
    if kind == "exit-signal":
        message.get_boolean()
        name = f"SIG{message.get_text()}"
        number = signal.Signals[name].value if name in signal.Signals.__members__ else 127
        channel.exit_status = signal_status(number)
        channel.status_event.set()
        return
    message.rewind()
    message.get_int()  # the channel's number, which was read before
    channel._handle_request(message)  # noqa: SLF001 - what stood here before


def _on_close(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """Remember that the server closed it: a lost connection closes channels, too."""
    channel.closed_by_server = True
    channel._handle_close(message)  # noqa: SLF001 - what stood here before


class Transport(paramiko.Transport):  # type: ignore[misc]
    """One connection's protocol."""

    _channel_handler_table = {  # noqa: RUF012 - as it is there
        **paramiko.Transport._channel_handler_table,  # noqa: SLF001 - the only place for it
        MSG_CHANNEL_REQUEST: _on_request,
        MSG_CHANNEL_CLOSE: _on_close,
    }

    def __init__(self, sock: Any, **options: Any) -> None:
        super().__init__(
            sock, default_window_size=WINDOW_BYTES, packetizer_class=_Packetizer, **options
        )
        self.farewell = ""
        """Why the server ended the connection, in its own words."""

    def run(self) -> None:
        """Serve the connection to its end, whatever that is, without a word on stderr."""
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - it was lost while it was being closed
            self.active = False
            self.saved_exception = error

    def watch(self, interval_s: int, most_unanswered: int) -> None:
        """From now on, notice when nothing comes any more.

        Args:
            interval_s: seconds of silence after which the server is asked for a word.
            most_unanswered: so many questions without any word back, and the connection is lost.
        """
        self.packetizer.watch(self._ask, interval_s, most_unanswered)
        self.sock.settimeout(min(_IDLE_POLL_S, interval_s / 2))

    def _ask(self) -> None:
        question = paramiko.Message()
        question.add_byte(cMSG_GLOBAL_REQUEST)
        question.add_string("keepalive@openssh.com")
        question.add_boolean(True)  # noqa: FBT003 - an answer is wanted, if only a refusal
        self._send_user_message(question)

    def _parse_debug(self, m: paramiko.Message) -> None:
        """Pass over it: a server says much for its own log, and decoding that here takes long."""

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()
        self.farewell = m.get_text()
        m.rewind()
        super()._parse_disconnect(m)


class _Packetizer(Packetizer):  # type: ignore[misc]
    """Reads and writes packets; knows when the last one came in."""

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        self._handshake_ends: float | None = None
        self._ask: Any = None
        self.interval_s = 0.0
        self._most_unanswered = 0
        self._unanswered = 0
        self._next_question = 0.0

    def watch(self, ask: Any, interval_s: float, most_unanswered: int) -> None:
        self.interval_s, self._most_unanswered = interval_s, most_unanswered
        self._next_question = time.monotonic() + interval_s
        self._ask = ask

    def read_message(self) -> Any:
        message = super().read_message()
        if self._ask is not None:
            self._unanswered = 0
            self._next_question = time.monotonic() + self.interval_s
        return message

    def _check_keepalive(self) -> None:
        # Called whenever nothing came for the socket's time-out.
        if self._ask is None or time.monotonic() < self._next_question:
            return
        if self._unanswered >= self._most_unanswered:
            raise EOFError("nothing came for too long")
        self._unanswered += 1
        self._next_question = time.monotonic() + self.interval_s
        self._ask()

    # paramiko has a timer thread for each of these.
    def start_handshake(self, timeout: float) -> None:
        self._handshake_ends = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        return self._handshake_ends is not None and time.monotonic() > self._handshake_ends

    def complete_handshake(self) -> None:
        self._handshake_ends = None

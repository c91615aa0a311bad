"""A node behind SSH: one Fabric connection, raw channels, nothing that polls or decodes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING

import paramiko

from slurm_adapter.errors import signal_status
from slurm_adapter.remote.transport import run
from slurm_adapter.remote.transport.paramiko_hooks import ERROR, OUTPUT, ROOM, STATUS
from slurm_adapter.remote.transport.port import RUN_LIMIT_S, ConnectionLostError, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

    import fabric

    from slurm_adapter.cluster import Node
    from slurm_adapter.remote.transport.paramiko_hooks import Transport
    from slurm_adapter.remote.transport.port import Answer

_NO_STATUS = 255  # what ssh returns, too, where a server ends a command without one


class FabricConnection:
    """See `Connection`.

    Args:
        node: as the host list has it.
        connection: open.
        let_go: called once, after the end.
    """

    def __init__(
        self, node: Node, connection: fabric.Connection, let_go: Callable[[], None]
    ) -> None:
        self.node = node
        self.fabric = connection
        self.transport: Transport = connection.transport
        self._let_go: Callable[[], None] | None = let_go

    def start(self, command: str) -> FabricChannel:
        """See `Connection.start`; no terminal, no agent, no variables go along."""
        try:
            started = FabricChannel(self.node.name, self.transport)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._failure("open a session", error) from error
        try:
            started.begin(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            started.close()
            raise self._failure("start a command", error) from error
        return started

    def run(self, command: str, data: bytes = b"", limit_s: float = RUN_LIMIT_S) -> Answer:
        """See `Connection.run`."""
        return run.run(self, command, data, limit_s)

    def alive(self) -> bool:
        """See `Connection.alive`."""
        return bool(self.transport.is_active())

    def close(self) -> None:
        """See `Connection.close`."""
        let_go, self._let_go = self._let_go, None
        if let_go is None:
            return
        # Ends whatever waits on the socket, the thread that reads from it included.
        with contextlib.suppress(OSError):
            if isinstance(self.transport.sock, socket.socket):
                self.transport.sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self.fabric.client.close()
        let_go()

    def _failure(self, what: str, error: BaseException) -> ConnectionLostError | NoAnswerError:
        if not self.alive():
            return ConnectionLostError(f"{self.node.name}: the connection was lost")
        return NoAnswerError(
            f"{self.node.name}: the server does not {what}: {error}",
            "Is the machine overloaded, or MaxSessions in its sshd_config too small?",
        )


class FabricChannel:
    """See `CommandChannel`. A write may wait until the kernel takes it, not until the node does."""

    def __init__(self, name: str, transport: Transport) -> None:
        self._name = name
        self._transport = transport
        self._channel = transport.open_session()
        self._news = _News()
        self._wants_room = False
        self._watch = transport.watch_channel(self._channel.get_id(), self._tell)

    def begin(self, command: str) -> None:
        """Start the command. Nothing of it comes before that, its end included."""
        self._channel.exec_command(command)
        self._channel.settimeout(0.0)

    def fileno(self) -> int:
        """See `CommandChannel.fileno`."""
        return self._news.descriptor

    def read(self, limit: int) -> bytes | None:
        """See `CommandChannel.read`."""
        return self._read(OUTPUT, self._channel.recv, self._channel.recv_ready, limit)

    def read_error(self, limit: int) -> bytes | None:
        """See `CommandChannel.read_error`."""
        return self._read(ERROR, self._channel.recv_stderr, self._channel.recv_stderr_ready, limit)

    def _read(
        self,
        source: int,
        receive: Callable[[int], bytes],
        more: Callable[[], bool],
        limit: int,
    ) -> bytes | None:
        self._news.seen(source)
        try:
            data = receive(limit)
        except TimeoutError:
            return None
        except (paramiko.SSHException, EOFError, OSError):
            return b""  # it took the bytes, and lost the connection when it said so
        # Its end may have come before the data were taken: nobody will tell it again.
        if data and (self._watch.no_more_output or more()):
            self._news.tell(source)
        return data

    def write(self, data: bytes) -> int:
        """See `CommandChannel.write`."""
        self._news.seen(ROOM)
        try:
            # 0 where the command's input has ended.
            return int(self._channel.send(data)) or self._without_reader(data)
        except TimeoutError:
            self._wants_room = True
            if self._channel.send_ready():  # since a moment ago
                self._news.tell(ROOM)
            return 0
        except (paramiko.SSHException, EOFError, OSError):
            return self._without_reader(data)

    def _without_reader(self, data: bytes) -> int:
        if self._transport.is_active():
            return len(data)
        raise ConnectionLostError(f"{self._name}: the connection was lost")

    def close_input(self) -> None:
        """See `CommandChannel.close_input`."""
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._channel.shutdown_write()

    def status(self) -> int | None:
        """See `CommandChannel.status`."""
        self._news.seen(STATUS)
        if self._watch.signal is not None:
            return signal_status(self._watch.signal)
        if not self._channel.exit_status_ready():
            return None
        status = int(self._channel.recv_exit_status())
        if status >= 0:
            return status
        return _NO_STATUS if self._watch.closed_by_server else None

    def close(self) -> None:
        """See `CommandChannel.close`."""
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._channel.close()
        self._transport.forget_channel(self._channel.get_id())
        self._news.close()

    def _tell(self, news: int) -> None:
        """Take what the transport's thread has seen."""
        if not self._wants_room:
            news &= ~ROOM  # nobody waits for it
        elif news & ROOM:
            self._wants_room = False
        if news:
            self._news.tell(news)


class _News:
    """A descriptor that is readable while there is something that was not asked for yet."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._unseen = 0

    def tell(self, source: int) -> None:
        with self._lock:
            if not self._unseen and self.descriptor >= 0:
                os.eventfd_write(self.descriptor, 1)
            self._unseen |= source

    def seen(self, source: int) -> None:
        with self._lock:
            if self._unseen & source:
                self._unseen &= ~source
                if not self._unseen and self.descriptor >= 0:
                    os.eventfd_read(self.descriptor)

    def close(self) -> None:
        with self._lock:
            if self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1

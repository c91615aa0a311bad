"""A node behind SSH: one Fabric connection, raw channels, nothing that polls or decodes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING

import paramiko

from slurm_adapter.remote.transport import run
from slurm_adapter.remote.transport.port import RUN_LIMIT_S, ConnectionLostError, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import fabric

    from slurm_adapter.cluster.cluster import Node
    from slurm_adapter.remote.transport.paramiko import Transport
    from slurm_adapter.remote.transport.port import Answer

_OUTPUT, _ERROR, _STATUS, _ROOM = 1, 2, 4, 8
_UNTOLD = 255  # what ssh returns, too, where a server ends a command without a status


class RemoteConnection:
    """See `Connection`.

    Args:
        node: as the host list has it.
        connection: open.
        limit_s: how long the node may take to open a channel.
        let_go: called once, after the end.
    """

    def __init__(
        self,
        node: Node,
        connection: fabric.Connection,
        limit_s: float,
        let_go: Callable[[], None],
    ) -> None:
        self.node = node
        self.fabric = connection
        self.transport: Transport = connection.transport
        self._limit_s = limit_s
        self._let_go: Callable[[], None] | None = let_go

    def start(self, command: str) -> RemoteChannel:
        """See `Connection.start`; no terminal, no agent, no variables go along."""
        try:
            channel = self.transport.open_session(timeout=self._limit_s)
            started = RemoteChannel(self.node.name, channel)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._failure("open a session", error) from error
        try:
            channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            started.close()
            raise self._failure("start a command", error) from error
        channel.settimeout(0.0)
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
        with contextlib.suppress(OSError, AttributeError):
            if isinstance(self.transport.sock, socket.socket):
                self.transport.sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self.transport.close()
            self.fabric.client.close()
        let_go()

    def _failure(self, what: str, error: BaseException) -> ConnectionLostError | NoAnswerError:
        if not self.alive():
            return ConnectionLostError(f"{self.node.name}: the connection was lost")
        return NoAnswerError(
            f"{self.node.name}: the server does not {what}: {error}",
            "Is the machine overloaded, or MaxSessions in its sshd_config too small?",
        )


class RemoteChannel:
    """See `Channel`. A write may wait until the kernel takes it, not until the node does."""

    def __init__(self, name: str, channel: paramiko.Channel) -> None:
        self._name = name
        self._channel = channel
        self._news = _News()
        # paramiko tells these in its own thread; all of them are part of its public face.
        channel.in_buffer.set_event(_Teller(self._news, _OUTPUT))
        channel.in_stderr_buffer.set_event(_Teller(self._news, _ERROR))
        channel.status_event = _StatusEvent(self._news)
        self._room = channel.out_buffer_cv = _RoomCondition(channel.lock, self._news)
        if channel.closed:
            channel.status_event.set()

    def fileno(self) -> int:
        """See `Channel.fileno`."""
        return self._news.descriptor

    def read(self, limit: int) -> bytes | None:
        """See `Channel.read`."""
        return self._read(_OUTPUT, self._channel.recv, self._channel.recv_ready, limit)

    def read_error(self, limit: int) -> bytes | None:
        """See `Channel.read_error`."""
        return self._read(_ERROR, self._channel.recv_stderr, self._channel.recv_stderr_ready, limit)

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
        if data and (more() or self._channel.eof_received or self._channel.closed):
            self._news.tell(source)
        return data

    def write(self, data: bytes) -> int:
        """See `Channel.write`."""
        self._news.seen(_ROOM)
        try:
            # 0 where the command's input has ended.
            return int(self._channel.send(data)) or self._without_reader(data)
        except TimeoutError:
            self._room.wanted = True
            if self._channel.send_ready():  # since a moment ago
                self._news.tell(_ROOM)
            return 0
        except (paramiko.SSHException, EOFError, OSError):
            return self._without_reader(data)

    def _without_reader(self, data: bytes) -> int:
        if self._channel.get_transport().is_active():
            return len(data)
        raise ConnectionLostError(f"{self._name}: the connection was lost")

    def close_input(self) -> None:
        """See `Channel.close_input`."""
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._channel.shutdown_write()

    def status(self) -> int | None:
        """See `Channel.status`."""
        self._news.seen(_STATUS)
        status = int(self._channel.exit_status)
        if status >= 0:
            return status
        return _UNTOLD if getattr(self._channel, "closed_by_server", False) else None

    def close(self) -> None:
        """See `Channel.close`."""
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._channel.close()
        self._news.close()


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


class _Teller:
    """What paramiko's buffers take for an event."""

    def __init__(self, news: _News, source: int) -> None:
        self._news, self._source = news, source

    def set(self) -> None:
        self._news.tell(self._source)

    def clear(self) -> None:
        """Nothing: `_News.seen` comes before every read."""


class _StatusEvent(threading.Event):
    def __init__(self, news: _News) -> None:
        super().__init__()
        self._news = news

    def set(self) -> None:
        super().set()
        self._news.tell(_STATUS)


class _RoomCondition(threading.Condition):
    def __init__(self, lock: Any, news: _News) -> None:
        super().__init__(lock)
        self._news = news
        self.wanted = False
        """Whether a write found no room."""

    def notify_all(self) -> None:
        super().notify_all()
        if self.wanted:
            self.wanted = False
            self._news.tell(_ROOM)

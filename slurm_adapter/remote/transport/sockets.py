"""The socket to a host's ssh server: over TCP, a ProxyCommand, or a jump host's connection."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import paramiko

from slurm_adapter.remote.transport.connect_error import ConnectError
from slurm_adapter.remote.transport.ssh_settings import bracketed

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_adapter.remote.transport.paramiko_hooks import Transport
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
_SAID_BYTES = 500
_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
_AGAIN = (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.EAGAIN, errno.EINTR)


def connect_tcp(settings: SshSettings, watch: Callable[[socket.socket], None]) -> socket.socket:
    """Connect to the host, whichever of its addresses answers first in their order.

    Args:
        settings: of the host.
        watch: gets each socket before it may wait, so that somebody else can shut it down.

    Raises:
        ConnectError: no address answers.
    """
    where = bracketed(settings.hostname, settings.port)
    family = _FAMILIES.get(settings.address_family, socket.AF_UNSPEC)
    try:
        found = socket.getaddrinfo(settings.hostname, settings.port, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no name"
        raise ConnectError(
            "its name cannot be resolved",
            "Correct the name, give its address in the host list (address=...), or HostName in"
            " ~/.ssh/config.",
            detail=f"{settings.hostname}: {said}",
        ) from error
    last: OSError = OSError("it has no address")
    for one, kind, protocol, _, address in found:
        try:
            return _connect(settings, socket.socket(one, kind, protocol), address, watch)
        except OSError as error:
            last = error
    raise tcp_failure(last, where, settings.connect_timeout_s) from last


def _connect(
    settings: SshSettings,
    connection: socket.socket,
    address: tuple[object, ...],
    watch: Callable[[socket.socket], None],
) -> socket.socket:
    with ExitStack() as undo:
        undo.callback(connection.close)
        watch(connection)
        connection.settimeout(settings.connect_timeout_s)
        # Small packets go back and forth while it opens: none may wait for the next.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Data that nobody confirms for so long: the link is cut (SSH-09).
        patience_s = settings.alive_interval_s * (settings.alive_count_max + 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_s * 1000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if settings.bind_interface is not None:
            name = settings.bind_interface.encode()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)
        if settings.bind_address is not None:
            connection.bind((settings.bind_address, 0))
        connection.connect(address)
        undo.pop_all()
    return connection


def tcp_failure(error: OSError, where: str, limit_s: float) -> ConnectError:
    """Return what an error of a TCP connection means to the user."""
    if isinstance(error, TimeoutError):
        return ConnectError(
            f"no answer within {limit_s:g} s",
            "Is the machine on, and does a firewall let ssh through? ConnectTimeout in"
            " ~/.ssh/config waits longer.",
            detail=where,
        )
    if isinstance(error, ConnectionRefusedError):
        return ConnectError(
            "connection refused",
            "No ssh server listens there: start sshd, or correct the port (port=... in the host"
            " list, Port in ~/.ssh/config).",
            detail=where,
        )
    if error.errno in _NO_ROUTE:
        return ConnectError(
            "no route to it", "Is the machine on, and in this network?", detail=where
        )
    said = error.strerror or str(error)
    return ConnectError(f"cannot connect: {said}", detail=where, again=error.errno in _AGAIN)


def connect_through(settings: SshSettings, jump: Transport, jump_name: str) -> paramiko.Channel:
    """Have a jump host connect to the host; return what stands for the socket.

    Fabric's `gateway` would wait as long as the settings of the jump host say, and open one that
    was lost anew on its old socket.

    Raises:
        ConnectError: it cannot, or does not answer in time.
    """
    where = bracketed(settings.hostname, settings.port)
    try:
        return jump.open_channel(
            "direct-tcpip",
            (settings.hostname, settings.port),
            ("127.0.0.1", 0),
            timeout=settings.connect_timeout_s,
        )
    except paramiko.ChannelException as error:
        forbidden = error.code == 1
        raise ConnectError(
            f"jump host {jump_name} "
            + ("does not forward connections" if forbidden else "cannot reach it"),
            f"Set AllowTcpForwarding in the sshd_config of {jump_name}."
            if forbidden
            else f"Try `ssh {jump_name}` and connect on from there.",
            detail=f"{where}: {error.text}",
        ) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise ConnectError(
            f"jump host {jump_name} does not answer", detail=where, again=not jump.is_active()
        ) from error


class Proxy:
    """A running ProxyCommand; `connection` is its input and output.

    paramiko's own knows no shell, keeps what the command says of itself, and ends at Ctrl-C.
    """

    def __init__(self, line: str) -> None:
        self.line = line
        self.connection, theirs = socket.socketpair()
        self._said = os.memfd_create("proxy")
        with theirs:
            self._process = subprocess.Popen(
                # As ssh does it: the user's shell, which makes room for the command.
                [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {line}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._said,
                start_new_session=True,  # Ctrl-C must not cut it before the node was told
            )

    def failure(self, error: ConnectError) -> ConnectError:
        """Return what went wrong, with the command's own words where it has some."""
        said = self.said()
        if not (error.again and said):
            return error
        return ConnectError(
            "its ProxyCommand failed", f"Try it by hand: {self.line}", detail=said, again=True
        )

    def said(self) -> str:
        """Return the end of what it printed to its error stream."""
        size = os.fstat(self._said).st_size
        text = os.pread(self._said, _SAID_BYTES, max(0, size - _SAID_BYTES))
        return " ".join(text.decode(errors="replace").split())

    def close(self) -> None:
        """End it."""
        self.connection.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._said >= 0:
            os.close(self._said)
            self._said = -1

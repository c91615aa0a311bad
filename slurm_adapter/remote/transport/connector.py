"""Open one node: settings, socket, host key, login, in that order; what hosts share is shared."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import fabric
import paramiko

from slurm_adapter import output
from slurm_adapter.errors import BadValueError
from slurm_adapter.remote.transport.algorithms import (
    forbidden_signatures,
    restrict_algorithms,
)
from slurm_adapter.remote.transport.auth import Authenticator
from slurm_adapter.remote.transport.connect_error import ConnectError
from slurm_adapter.remote.transport.fabric_connection import FabricConnection
from slurm_adapter.remote.transport.host_keys import HostKeys
from slurm_adapter.remote.transport.keys import KeyRing
from slurm_adapter.remote.transport.paramiko_hooks import Transport, timed_out
from slurm_adapter.remote.transport.prompts import Terminal
from slurm_adapter.remote.transport.proxy_jump import JumpHost, check_no_circle, jump_hosts
from slurm_adapter.remote.transport.sockets import Proxy, connect_tcp, connect_through, tcp_failure
from slurm_adapter.remote.transport.ssh_config import SshConfig
from slurm_adapter.remote.transport.ssh_settings import bracketed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from slurm_adapter.cluster import Node
    from slurm_adapter.remote.transport.ssh_settings import SshSettings


class _Session(fabric.Connection):  # type: ignore[misc]
    # Fabric would write it into the configuration that all connections share.
    inline_ssh_env = None


class Connector:
    """Opens connections for one launch, from several threads at once.

    Args:
        config_file: as with `ssh -F`; None as `SshConfig` has it.
        say: gets warnings, a line each.
        terminal: where questions are asked.
        longest_s: an attempt takes no longer, whatever ConnectTimeout says.
    """

    def __init__(
        self,
        config_file: Path | None = None,
        say: Callable[[str], None] | None = None,
        terminal: Terminal | None = None,
        longest_s: float = math.inf,
    ) -> None:
        self._own_terminal = terminal is None
        self.terminal = Terminal() if terminal is None else terminal
        self._config, self._longest_s = SshConfig(config_file), longest_s
        self._host_keys = HostKeys(self.terminal, output.say if say is None else say)
        self._keys = KeyRing(self.terminal)
        # Explicitly empty: Fabric and paramiko misread the user's own (SSH-05).
        self._fabric = fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig())
        self._jump_hosts: dict[tuple[Node, ...], JumpHost] = {}
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._cancelled = False

    def open(self, node: Node) -> FabricConnection:
        """Return an open connection to a node.

        Raises:
            ConnectError: it cannot be reached; `again` says whether another attempt may help.
            BadValueError: its name or the ssh config is broken.
        """
        return self._open(node, None, is_jump=False)

    def close(self) -> None:
        """Let go of what was only needed for opening; connections stay open."""
        self._keys.close()
        if self._own_terminal:
            self.terminal.close()

    def cancel(self) -> None:
        """End everything that is being opened now or later, unsuccessfully."""
        with self._lock:
            self._cancelled = True
            sockets = list(self._sockets)
        self.terminal.withdraw()
        for one in sockets:
            _shut(one)

    def _open(
        self, node: Node, jumps: tuple[Node, ...] | None, *, is_jump: bool
    ) -> FabricConnection:
        """Open a node; `jumps` stand in for what its own ProxyJump says, where given."""
        settings = self._config.settings(node)
        if settings.session_type != "default" and not is_jump:
            raise BadValueError(
                f"the ssh config says SessionType {settings.session_type} for {node.name}:"
                " ssh would run no command there",
                "Take it out for this host, or the host out of the list.",
            )
        limit_s = min(settings.connect_timeout_s, self._longest_s)
        settings = replace(settings, connect_timeout_s=limit_s)
        jumps = jump_hosts(settings.proxy_jump) if jumps is None else jumps
        with ExitStack() as undo:
            if settings.proxy_command is not None and not jumps:
                connection = self._log_in_by_proxy(settings, undo)
            else:
                sock = self._socket(settings, jumps, undo)
                undo.callback(_close, sock)
                connection = self._log_in(settings, sock, undo, direct=not jumps)
            connection.transport.keep_alive(settings.alive_interval_s, settings.alive_count_max)
            connection.transport.renew_keys(settings.rekey_bytes, settings.rekey_s)
            return FabricConnection(node, connection, undo.pop_all().close)

    def _socket(self, settings: SshSettings, jumps: tuple[Node, ...], undo: ExitStack) -> Any:
        if not jumps:
            return connect_tcp(settings, partial(self._watch, undo=undo))
        jump = self._jump_host(settings, jumps)
        transport = jump.enter()
        undo.callback(jump.leave)
        return connect_through(settings, transport, jumps[-1].name)

    def _jump_host(self, settings: SshSettings, jumps: tuple[Node, ...]) -> JumpHost:
        check_no_circle(settings, jumps, self._config.settings)
        with self._lock:
            if jumps not in self._jump_hosts:
                # The first is reached as its own settings say, each other from the one before.
                before = jumps[:-1] or None
                self._jump_hosts[jumps] = JumpHost(
                    partial(self._open, jumps[-1], before, is_jump=True)
                )
            return self._jump_hosts[jumps]

    def _log_in_by_proxy(self, settings: SshSettings, undo: ExitStack) -> fabric.Connection:
        if settings.proxy_fdpass:
            raise BadValueError(
                f"{settings.name} is reached with ProxyUseFdpass, which does not work here",
                "Use a ProxyCommand without it, or ProxyJump.",
            )
        proxy = Proxy(settings.proxy_command or "")
        undo.callback(proxy.close)
        self._watch(proxy.connection, undo)
        try:
            return self._log_in(settings, proxy.connection, undo, direct=False)
        except ConnectError as error:
            raise proxy.failure(error) from error

    def _log_in(
        self, settings: SshSettings, sock: Any, undo: ExitStack, *, direct: bool
    ) -> fabric.Connection:
        known = self._host_keys.known_types(settings)
        login = Authenticator(settings, self._keys, self.terminal)

        def transport(sock: Any, **options: Any) -> Transport:
            made = Transport(sock, settings.connect_timeout_s, **options)
            restrict_algorithms(made.get_security_options(), settings, known)
            return made

        connection = _Session(
            # The name has no part in it any more: the socket leads there already.
            host=settings.hostname,
            user=settings.user,
            port=settings.port,
            config=self._fabric,
            connect_kwargs={
                "sock": sock,
                # Fabric's own `connect_timeout` knows whole seconds only.
                "timeout": settings.connect_timeout_s,
                "banner_timeout": settings.connect_timeout_s,
                "channel_timeout": settings.connect_timeout_s,
                "transport_factory": transport,
                "disabled_algorithms": forbidden_signatures(settings),
                "auth_strategy": login,
            },
        )
        undo.callback(_close, connection.client)
        try:
            address = sock.getpeername()[0] if direct else None
            policy = _HostKeyPolicy(self._host_keys, settings, login, address)
            connection.client.set_missing_host_key_policy(policy)
            connection.open()
        except ConnectError:
            raise
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise _failure(error, settings) from error
        return connection

    def _watch(self, connection: socket.socket, undo: ExitStack) -> None:
        """Have `cancel` shut a socket down while it is being opened."""
        with self._lock:
            if self._cancelled:
                raise ConnectError("it was interrupted")
            self._sockets.add(connection)
        undo.callback(self._sockets.discard, connection)


class _HostKeyPolicy(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Judges every key that a host shows: nothing is loaded into paramiko, so all are missing."""

    def __init__(
        self, keys: HostKeys, settings: SshSettings, login: Authenticator, address: str | None
    ) -> None:
        self._keys, self._settings, self._login, self._address = keys, settings, login, address

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        _ = client, hostname
        self._login.secrets = self._keys.accept(
            self._settings, key.get_name(), key.asbytes(), self._address
        )


def _failure(error: Exception, settings: SshSettings) -> ConnectError:
    """Return what an error between the first byte and the login means to the user."""
    where = bracketed(settings.hostname, settings.port)
    if isinstance(error, paramiko.IncompatiblePeer):
        return ConnectError(
            "no algorithm in common with its ssh server",
            "Bring that server up to date.",
            detail=f"{where}: {error}",
        )
    cause = error.__context__ if isinstance(error, paramiko.SSHException) else error
    if isinstance(cause, TimeoutError) or timed_out(error):
        return tcp_failure(TimeoutError(), where, settings.connect_timeout_s)
    if isinstance(error, OSError) and not isinstance(error, EOFError):
        return tcp_failure(error, where, settings.connect_timeout_s)
    return ConnectError(
        "the ssh server hung up before the login",
        "It sheds load while many connect at once (MaxStartups in its sshd_config), or refuses"
        " this machine.",
        detail=f"{where}: {str(error) or 'it ended the connection'}",
        again=True,
    )


def _close(one: Any) -> None:
    # What a jump host carries may be closed when that host is gone.
    with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
        one.close()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was not connected yet, or is closed already
        connection.shutdown(socket.SHUT_RDWR)

"""Open one node: settings, way, host key, login, in that order; what hosts share is shared."""

from __future__ import annotations

import contextlib
import math
import socket
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import fabric
import paramiko

from slurm_adapter.errors import BadValueError
from slurm_adapter.remote.transport.algorithms import choose_algorithms
from slurm_adapter.remote.transport.auth import Authenticator
from slurm_adapter.remote.transport.errors import ConnectError
from slurm_adapter.remote.transport.fabric import RemoteConnection
from slurm_adapter.remote.transport.host_keys import HostKeys
from slurm_adapter.remote.transport.keys import KeyRing
from slurm_adapter.remote.transport.paramiko import Transport
from slurm_adapter.remote.transport.proxy_jump import jump_hosts
from slurm_adapter.remote.transport.sockets import Proxy, connect_tcp, connect_through, tcp_failure
from slurm_adapter.remote.transport.ssh_config import SshConfig
from slurm_adapter.remote.transport.ssh_settings import bracketed
from slurm_adapter.remote.transport.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from slurm_adapter.cluster.cluster import Node
    from slurm_adapter.remote.transport.ssh_settings import Settings


class _FabricConnection(fabric.Connection):  # type: ignore[misc]
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
        self._host_keys = HostKeys(self.terminal, _to_stderr if say is None else say)
        self._keys = KeyRing(self.terminal)
        # Explicitly empty: Fabric and paramiko misread the user's own (SSH-05).
        self._fabric = fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig())
        self._hops: dict[tuple[Node, ...], _Hop] = {}
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._cancelled = False

    def open(self, node: Node) -> RemoteConnection:
        """Return an open connection to a node.

        Raises:
            ConnectError: it cannot be reached; `again` says whether another attempt may help.
            BadValueError: its name or the ssh config is broken.
        """
        return self._open(node, None)

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

    def _open(self, node: Node, via: tuple[Node, ...] | None) -> RemoteConnection:
        """Open a node; `via` are the jump hosts that stand in for its own ProxyJump, if any."""
        settings = self._config.settings(node)
        limit_s = min(settings.connect_timeout_s, self._longest_s)
        settings = replace(settings, connect_timeout_s=limit_s)
        hops = jump_hosts(settings.proxy_jump) if via is None else via
        with ExitStack() as undo:
            proxied = settings.proxy_command is not None and not hops
            proxy = self._proxy(settings, undo) if proxied else None
            way = proxy.connection if proxy is not None else self._way(settings, hops, undo)
            undo.callback(way.close)
            try:
                connection = self._log_in(settings, way, undo, direct=not (proxied or hops))
            except ConnectError as error:
                if proxy is None:
                    raise
                raise proxy.failure(error) from error
            connection.transport.watch(settings.alive_interval_s, settings.alive_count_max)
            return RemoteConnection(
                node, connection, settings.connect_timeout_s, undo.pop_all().close
            )

    def _way(self, settings: Settings, hops: tuple[Node, ...], undo: ExitStack) -> Any:
        if not hops:
            return connect_tcp(settings, partial(self._watch, undo=undo))
        hop = self._hop(settings, hops)
        transport = hop.enter()
        undo.callback(hop.leave)
        return connect_through(settings, transport, hops[-1].name)

    def _proxy(self, settings: Settings, undo: ExitStack) -> Proxy:
        if settings.proxy_fdpass:
            raise BadValueError(
                f"{settings.name} is reached with ProxyUseFdpass, which does not work here",
                "Use a ProxyCommand without it, or ProxyJump.",
            )
        proxy = Proxy(settings.proxy_command or "")
        undo.callback(proxy.close)
        self._watch(proxy.connection, undo)
        return proxy

    def _hop(self, settings: Settings, hops: tuple[Node, ...]) -> _Hop:
        self._check_no_circle(settings, hops)
        with self._lock:
            if hops not in self._hops:
                # The first hop is reached as its own settings say, the others from the one before.
                before = hops[:-1] or None
                self._hops[hops] = _Hop(partial(self._open, hops[-1], before))
            return self._hops[hops]

    def _check_no_circle(self, settings: Settings, hops: tuple[Node, ...]) -> None:
        seen = {_place(settings)}
        while hops:
            found = [self._config.settings(hop) for hop in hops]
            for hop in found:
                if _place(hop) in seen:
                    raise BadValueError(
                        f"{settings.name} is behind jump host {hop.name}, which leads back to"
                        " itself",
                        f"Leave it out in the ssh config: `Host * !{hop.name}`, or give it"
                        " ProxyJump none.",
                    )
                seen.add(_place(hop))
            hops = jump_hosts(found[0].proxy_jump)

    def _log_in(
        self, settings: Settings, way: Any, undo: ExitStack, *, direct: bool
    ) -> fabric.Connection:
        known = self._host_keys.known(settings).keys(settings.host_key_name)
        algorithms = choose_algorithms(settings, known)
        login = Authenticator(settings, self._keys, self.terminal)

        def transport(sock: Any, **options: Any) -> Transport:
            made = Transport(sock, **options)
            algorithms.ask_of(made)
            made.handshake_timeout = settings.connect_timeout_s
            return made

        connection = _FabricConnection(
            # The name has no part in it any more: the way leads there already.
            host=settings.hostname,
            user=settings.user,
            port=settings.port,
            config=self._fabric,
            gateway=False,
            forward_agent=False,
            inline_ssh_env=False,
            connect_kwargs={
                "sock": way,
                "timeout": settings.connect_timeout_s,
                "banner_timeout": settings.connect_timeout_s,
                "channel_timeout": settings.connect_timeout_s,
                "compress": False,
                "transport_factory": transport,
                "auth_strategy": login,
            },
        )
        undo.callback(connection.client.close)
        try:
            address = way.getpeername()[0] if direct else None
            judge = _Judge(self._host_keys, settings, login, address)
            connection.client.set_missing_host_key_policy(judge)
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


class _Judge(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Judges every key that a host shows: nothing is loaded into paramiko, so all are missing."""

    def __init__(
        self, keys: HostKeys, settings: Settings, login: Authenticator, address: str | None
    ) -> None:
        self._keys, self._settings, self._login, self._address = keys, settings, login, address

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        _ = client, hostname
        self._login.secrets = self._keys.accept(
            self._settings, key.get_name(), key.asbytes(), self._address
        )


class _Hop:
    """A jump host, opened for the first that is behind it, closed after the last."""

    def __init__(self, make: Callable[[], RemoteConnection]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._connection: RemoteConnection | None = None
        self._users = 0

    def enter(self) -> Transport:
        with self._lock:
            if self._connection is not None and not self._connection.alive():
                self._connection.close()
                self._connection = None
            if self._connection is None:
                try:
                    self._connection = self._make()
                except ConnectError as error:
                    raise ConnectError(
                        f"its jump host cannot be reached: {error.reason}",
                        error.remedy,
                        detail=error.detail,
                        again=error.again,
                    ) from error
            self._users += 1
            return self._connection.transport

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._connection is not None:
                self._connection.close()
                self._connection = None


def _failure(error: Exception, settings: Settings) -> ConnectError:
    """Return what an error between the first byte and the login means to the user."""
    where = bracketed(settings.hostname, settings.port)
    if isinstance(error, paramiko.IncompatiblePeer):
        return ConnectError(
            "no algorithm in common with its ssh server",
            "Bring that server up to date.",
            detail=f"{where}: {error}",
        )
    cause = error.__context__ if isinstance(error, paramiko.SSHException) else error
    if isinstance(cause, TimeoutError) or "No existing session" in str(error):
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


def _place(settings: Settings) -> tuple[str, int, str]:
    return settings.hostname, settings.port, settings.user


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was not connected yet, or is closed already
        connection.shutdown(socket.SHUT_RDWR)


def _to_stderr(line: str) -> None:
    print(f"slurm-adapter: {line}", file=sys.stderr)  # noqa: T201 - where nobody else speaks

"""Jump hosts: read a ProxyJump, and keep one connection to each for all hosts behind it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from slurm_adapter.cluster import Node
from slurm_adapter.errors import BadValueError
from slurm_adapter.remote.transport.connect_error import ConnectError
from slurm_adapter.remote.transport.ssh_config import check_host_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_adapter.remote.transport.fabric_connection import FabricConnection
    from slurm_adapter.remote.transport.paramiko_hooks import Transport
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

_LARGEST_PORT = 65535


def jump_hosts(jump: str | None) -> tuple[Node, ...]:
    """Return the jump hosts of `[user@]host[:port],...` or `ssh://` forms of it.

    Raises:
        BadValueError: it cannot be read.
    """
    return tuple(_jump_host(word.strip(), jump) for word in jump.split(",")) if jump else ()


def _jump_host(word: str, jump: str) -> Node:
    text = word.removeprefix("ssh://").rstrip("/")
    user, _, place = text.rpartition("@")
    host, port = place, ""
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port = rest.removeprefix(":")
    elif place.count(":") == 1:
        host, _, port = place.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= _LARGEST_PORT):
        raise BadValueError(
            f"{word!r} in ProxyJump {jump} is not a jump host",
            "Write it as user@host:port, with as much of it as is needed.",
        )
    check_host_name(host)
    return Node(host, user=user or None, port=int(port) if port else None)


def check_no_circle(
    settings: SshSettings, jumps: tuple[Node, ...], settings_of: Callable[[Node], SshSettings]
) -> None:
    """Refuse jump hosts that are behind the host that they lead to.

    Args:
        settings: of that host.
        jumps: its jump hosts.
        settings_of: returns those of a jump host.

    Raises:
        BadValueError: they are.
    """
    seen = {_endpoint(settings)}
    while jumps:
        found = [settings_of(jump) for jump in jumps]
        for jump in found:
            if _endpoint(jump) in seen:
                raise BadValueError(
                    f"{settings.name} is behind jump host {jump.name}, which leads back to itself",
                    f"Leave it out in the ssh config: `Host * !{jump.name}`, or give it"
                    " ProxyJump none.",
                )
            seen.add(_endpoint(jump))
        jumps = jump_hosts(found[0].proxy_jump)


def _endpoint(settings: SshSettings) -> tuple[str, int, str]:
    return settings.hostname, settings.port, settings.user


class JumpHost:
    """A jump host's connection: opened for the first host behind it, closed after the last.

    Args:
        connect: opens it; its ConnectError is told as one of each host behind it.
    """

    def __init__(self, connect: Callable[[], FabricConnection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._connection: FabricConnection | None = None
        self._users = 0

    def enter(self) -> Transport:
        """Return the connection's transport, for one more host; `leave` when it is done with."""
        with self._lock:
            if self._connection is not None and not self._connection.alive():
                self._connection.close()
                self._connection = None
            if self._connection is None:
                try:
                    self._connection = self._connect()
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
        """Close it where no other host is behind it."""
        with self._lock:
            self._users -= 1
            if not self._users and self._connection is not None:
                self._connection.close()
                self._connection = None

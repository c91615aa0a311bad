"""Read a ProxyJump: the hosts on the way, first hop first."""

from __future__ import annotations

from slurm_adapter.cluster.cluster import Node
from slurm_adapter.errors import BadValueError
from slurm_adapter.remote.transport.ssh_config import check_host_name

_LARGEST_PORT = 65535


def jump_hosts(jump: str | None) -> tuple[Node, ...]:
    """Return the jump hosts of `[user@]host[:port],...` or `ssh://` forms of it.

    Raises:
        BadValueError: it cannot be read.
    """
    return tuple(_hop(word.strip(), jump) for word in jump.split(",")) if jump else ()


def _hop(word: str, jump: str) -> Node:
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

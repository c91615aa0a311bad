"""Whether nodes reach each other: real TCP connections, from each one's chosen address.

Nobody has to accept them: the kernel does, while the port is listened at. That it is the right
machine which answers is known by the port, which each node drew by itself.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_S = 3.0
"""How long a connection may take."""
_MOST_WAITING = 4096


def listen() -> socket.socket:
    """Return a socket that listens on all addresses of this node, IPv4 and IPv6, at a free port."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("::", 0), family=socket.AF_INET6, backlog=_MOST_WAITING, dualstack_ipv6=True
            )
        except OSError:  # IPv6 is switched off here
            pass
    return socket.create_server(("", 0), backlog=_MOST_WAITING)


def try_all(tries: Sequence[tuple[str, str, int]], limit_s: float = LIMIT_S) -> list[str]:
    """Connect to all peers at once; return for each why it did not work, empty where it did.

    Args:
        tries: (this node's own address, the peer's address, the peer's port).
        limit_s: how long the slowest may take.
    """
    results = ["no answer"] * len(tries)
    waiting: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    try:
        for index, (own, peer, port) in enumerate(tries):
            probe = socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET)
            waiting[probe.fileno()] = index, probe
            probe.settimeout(0)
            error = _connect(probe, own, peer, port)
            if error != errno.EINPROGRESS:
                results[index] = os.strerror(error) if error else ""
                waiting.pop(probe.fileno())[1].close()
            else:
                poll.register(probe, select.POLLOUT)
        deadline = time.monotonic() + limit_s
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left_s * 1000):
                index, probe = waiting.pop(descriptor)
                poll.unregister(descriptor)
                error = probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                results[index] = os.strerror(error) if error else ""
                probe.close()
    finally:
        for _, probe in waiting.values():
            probe.close()
    return results


def _connect(probe: socket.socket, own: str, peer: str, port: int) -> int:
    try:
        probe.bind((own, 0))
        return probe.connect_ex((peer, port))
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL

"""Free ports, and those that were given to runs here though nothing may listen on them yet.

A name of an abstract Unix socket stands for each that was given: it is seen exactly as far as the
port is (in one network namespace, by every user there), and is gone with whoever holds it.
"""

from __future__ import annotations

import errno
import socket

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.addresses import why_not_bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_PORT, _LAST_PORT = 6666, 32767
"""Where a free port is looked for: from where ModelArts has it, below all ephemeral ranges."""


def take_free_port(address: str) -> int:
    """Return the first port that is free on an address and given to no other run; take it.

    Raises:
        ClusterUnfitError: there is none.
    """
    return next(port for port in _free_ports(address) if take(port))


def _free_ports(address: str) -> Iterator[int]:
    for port in range(FIRST_PORT, _LAST_PORT + 1):
        if why_not_bound(address, port) is None:
            yield port
    raise ClusterUnfitError(
        f"no port from {FIRST_PORT} to {_LAST_PORT} is free on {address}", "Choose one with --port."
    )


def take(port: int) -> bool:
    """Note that a port is this run's while this process lives, and whom it forks.

    Returns:
        Whether it is; False where another run has it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as note:
        try:
            note.bind(f"\0slurm-adapter port {port}".encode())
        except OSError as error:
            # Where there are no such names, the port is as free as could be found out.
            return error.errno != errno.EADDRINUSE
        note.detach()  # its descriptor stays open until the end
    return True


def any_free_port(address: str) -> int:
    """Return a port that the kernel has chosen on an address: two processes hardly get the same."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])

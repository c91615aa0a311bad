"""Ports that were given to runs on this machine, though nothing may listen there yet.

A name of an abstract Unix socket stands for each: it is seen exactly as far as the port is (in one
network namespace, by every user there), and is gone with the processes that hold it.
"""

from __future__ import annotations

import errno

from slurm_adapter.node.facts import facts


def take_free_port(address: str) -> int:
    """Return the first port that is free on an address and given to no other run; take it.

    Raises:
        ClusterUnfitError: there is none.
    """
    return next(port for port in facts.free_ports(address) if take(port))


def take(port: int) -> bool:
    """Note that a port is this run's while this process lives, and whom it forks.

    Returns:
        Whether it is; False where another run has it.
    """
    import socket  # 4 ms, which only the node of rank 0 needs

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as note:
        try:
            note.bind(f"\0slurm-adapter port {port}".encode())
        except OSError as error:
            # Where there are no such names, the port is as free as could be found out.
            return error.errno != errno.EADDRINUSE
        note.detach()  # its descriptor stays open until the end
    return True

"""Facts that only the node itself can tell: its accelerators, its address, a free port."""

from __future__ import annotations

import errno
import os
import re
import socket

from slurm_adapter.errors import ClusterUnfitError

_STEP_TITLE = re.compile(r"slurmstepd: \[([^.\]]+)\.([^\]]+)\]")
_MOST_ANCESTORS = 16
# Device files that the drivers make, one for each card: NVIDIA's, Ascend's.
_DEVICE_FILE = re.compile(r"nvidia[0-9]+|davinci[0-9]+")


def count_accelerators(folder: str = "/dev") -> int:
    """Return the number of GPU or NPU device files on this machine."""
    return sum(1 for name in os.listdir(folder) if _DEVICE_FILE.fullmatch(name))  # noqa: PTH208


def address_toward(peer: str) -> str:
    """Return the address that this node's kernel uses toward a peer (no packet is sent).

    Raises:
        ClusterUnfitError: where the peer's name does not resolve or no route leads there.
    """
    try:
        # As bytes, or Python loads its IDNA tables first, which costs 5 ms. IPv4 before IPv6.
        found = socket.getaddrinfo(peer.encode(), 9, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, target = min(found, key=lambda one: one[0] != socket.AF_INET)
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ClusterUnfitError(
            f"{socket.gethostname()} cannot reach {peer}: {error.strerror or error}",
            f"Make the name {peer} resolve to a reachable address on every node; try"
            f" `getent hosts {peer}` there.",
        ) from error


def own_address(name: str) -> str:
    """Return this node's address where no peer asks for it: that of its own name.

    127.0.1.1, which Debian writes for it, is kept: alone on its node a job needs no other.
    """
    try:
        found = socket.getaddrinfo(name.encode(), None, socket.AF_INET)
        return str(found[0][4][0])
    except OSError:
        return "127.0.0.1"


def read_text(path: str) -> str:
    """Return a file's text; empty where it cannot be read (whoever needs it says so then)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib costs start-up time
            return file.read()
    except OSError:
        return ""


def step_daemon() -> tuple[str, str] | None:
    """Return (job, step) as the Slurm daemon above this process names them in its title.

    `slurmstepd: [12.0]` for a step, `[12.batch]` for a batch script; None where no such daemon
    can be seen (in a container, say).
    """
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        name, _, rest = read_text(f"/proc/{pid}/stat").rpartition(")")
        if "(slurmstepd" in name:
            title = _STEP_TITLE.match(read_text(f"/proc/{pid}/cmdline"))
            return (title[1], title[2]) if title is not None else None
        fields = rest.split()
        if len(fields) < 2 or fields[1] in "01":  # noqa: PLR2004
            return None
        pid = int(fields[1])
    return None


def check_port_free(port: int, reason: str) -> None:
    """Raise `ClusterUnfitError` where nothing could listen on this port (MA-01)."""
    error = _bind_error("", port)
    if error is not None:
        raise ClusterUnfitError(
            f"port {port} on {socket.gethostname()} is taken: {os.strerror(error)} ({reason})",
            "Choose another with --port, from 10000 to 32767.",
        )


def first_free_port(address: str, start: int, stop: int) -> int:
    """Return the first port from `start` up that can be bound on an address."""
    for port in range(start, stop):
        if _bind_error(address, port) is None:
            return port
    raise ClusterUnfitError(
        f"no port from {start} to {stop - 1} is free on {address}", "Choose one with --port."
    )


def is_own_address(host: str) -> bool:
    """Say whether a name or address is one of this machine's (it can be bound)."""
    return _bind_error(host, 0) is None


def _bind_error(address: str, port: int) -> int | None:
    """Return the error number of binding, or None; what TCPStore does: reuse a closing port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error.errno or errno.EADDRNOTAVAIL
        return None

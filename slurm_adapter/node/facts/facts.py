"""Facts that only the node itself can tell: its accelerators, its address, a free port."""

from __future__ import annotations

import errno
import os

from slurm_adapter.errors import ClusterUnfitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
else:  # without the 4 ms of the module that stands on it
    import _socket as socket

HOSTS = "/etc/hosts"
FIRST_PORT, _LAST_PORT = 6666, 32767
"""Where a free port is looked for: from where ModelArts has it, below all ephemeral ranges."""
_STEP_TITLE = r"slurmstepd: \[([^.\]]+)\.([^\]]+)\]"
_MOST_ANCESTORS = 16
# Device files that the drivers make, one for each card: NVIDIA's, Ascend's.
_DEVICE_FILES = ("nvidia", "davinci")


def count_accelerators(folder: str = "/dev") -> int:
    """Return the number of GPU or NPU device files on this machine."""
    return sum(
        1
        for name in os.listdir(folder)
        for driver in _DEVICE_FILES
        if name.startswith(driver) and name[len(driver) :].isdigit()
    )


def own_address(name: str) -> str:
    """Return this node's address where no peer asks for it: that of its own name.

    127.0.1.1, which Debian writes for it, is kept: alone on its node a job needs no other.
    """
    return resolve(name) or "127.0.0.1"


def resolve(name: str) -> str:
    """Return the address of a name, empty where it has none; IPv4 before IPv6.

    The hosts file is read here: the resolver would open four files for what stands in this one.
    """
    return read_hosts_file(read_text(HOSTS)).get(name) or look_up(name)


def read_hosts_file(text: str) -> dict[str, str]:
    """Return the first IPv4 address of each name in a hosts file, one other than loopback first.

    Names without an IPv4 address have their first IPv6 address.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            if _rank(address) < _rank(found.get(name, "")):
                found[name] = address
    return found


def is_loopback(address: str) -> bool:
    """Say whether an address means the machine that uses it."""
    return address.startswith("127.") or address == "::1"


def _rank(address: str) -> int:
    """Order addresses: IPv4, loopback, IPv6, none."""
    if not address:
        return 4
    if ":" in address:
        return 2
    return 1 if is_loopback(address) else 0


def look_up(name: str) -> str:
    """Return the address of a name as the resolver has it, empty where it has none."""
    return next(iter(look_up_all(name)), "")


def look_up_all(name: str) -> list[str]:
    """Return all addresses of a name as the resolver has them, the best one first."""
    try:
        # As bytes, or Python loads its IDNA tables first, which costs 5 ms.
        found = socket.getaddrinfo(name.encode(), None, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    return sorted((str(one[4][0]) for one in found), key=_rank)


def read_text(path: str) -> str:
    """Return a file's text; empty where it cannot be read (whoever needs it says so then)."""
    try:
        # Every byte is kept, whoever wrote it in whatever encoding.
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
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
            import re  # 6 ms, which only a step's own node needs

            title = re.match(_STEP_TITLE, read_text(f"/proc/{pid}/cmdline"))
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
            f"port {port} on {os.uname().nodename} is taken: {os.strerror(error)} ({reason})",
            "Choose another with --port, from 10000 to 32767.",
        )


def any_free_port(address: str) -> int:
    """Return a port that the kernel has chosen on an address: two processes hardly get the same."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    probe = socket.socket(family, socket.SOCK_STREAM)
    try:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
    finally:
        probe.close()


def free_ports(address: str) -> Iterator[int]:
    """Yield the ports from `FIRST_PORT` up that can be bound on an address.

    Raises:
        ClusterUnfitError: there are no more.
    """
    for port in range(FIRST_PORT, _LAST_PORT + 1):
        if _bind_error(address, port) is None:
            yield port
    raise ClusterUnfitError(
        f"no port from {FIRST_PORT} to {_LAST_PORT} is free on {address}", "Choose one with --port."
    )


def is_own_address(host: str) -> bool:
    """Say whether a name or address is one of this machine's (it can be bound)."""
    return _bind_error(host, 0) is None


def _bind_error(address: str, port: int) -> int | None:
    """Return the error number of binding, or None; what TCPStore does: reuse a closing port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    probe = socket.socket(family, socket.SOCK_STREAM)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
        probe.listen(1)
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL
    finally:
        probe.close()
    return None

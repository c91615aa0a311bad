"""Names and addresses as this machine has them: hosts file, resolver, routes, ports.

The one place that uses the module beneath `socket`: that one would take a rank 2.6 ms and four
files more, for enumerations of the numbers that are named here.
"""

from __future__ import annotations

import errno
import os

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.paths import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket as socket  # noqa: PLC0414 - said to be public
else:
    import _socket as socket

HOSTS = "/etc/hosts"
_ANY_PORT = 9


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
            if _order(address) < _order(found.get(name, "")):
                found[name] = address
    return found


def is_loopback(address: str) -> bool:
    """Say whether an address means the machine that uses it."""
    return address.startswith("127.") or address == "::1"


def _order(address: str) -> int:
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
    return sorted((str(one[4][0]) for one in found), key=_order)


def is_address(text: str) -> bool:
    """Say whether a text is an IP address in its usual form."""
    try:
        packed(text)
    except OSError:
        return False
    return True


def packed(ip: str) -> bytes:
    """Return an IP address as its 4 or 16 bytes; an `OSError` where it is none."""
    return socket.inet_pton(_family(ip), ip)


def is_within(ip: str, subnet: str) -> bool:
    """Say whether an address belongs to a network in CIDR notation."""
    network, _, bits = subnet.partition("/")
    if (":" in ip) != (":" in network):
        return False
    return _first_bits(ip, int(bits)) == _first_bits(network, int(bits))


def network_of(ip: str, bits: int) -> str:
    """Return the network of so many bits that an address is in, in CIDR notation."""
    size = len(packed(ip))
    number = _first_bits(ip, bits) << size * 8 - bits
    return f"{socket.inet_ntop(_family(ip), number.to_bytes(size, 'big'))}/{bits}"


def _first_bits(ip: str, count: int) -> int:
    number = packed(ip)
    return int.from_bytes(number, "big") >> len(number) * 8 - count


def _family(ip: str) -> int:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def source_toward(ip: str) -> str:
    """Return the address of its own that this machine would use toward another one.

    `connect` of a datagram socket sends nothing: it looks the route up and takes the source that
    belongs to it, as a connection to the same peer would, whatever rules and tables there are.

    Raises:
        OSError: no route leads there.
    """
    probe = socket.socket(_family(ip), socket.SOCK_DGRAM)
    try:
        probe.connect((ip, _ANY_PORT))
        return str(probe.getsockname()[0])
    finally:
        probe.close()


def check_port_free(port: int, reason: str) -> None:
    """Raise `ClusterUnfitError` where nothing could listen on this port (MA-01)."""
    error = why_not_bound("", port)
    if error is not None:
        raise ClusterUnfitError(
            f"port {port} on {os.uname().nodename} is taken: {os.strerror(error)} ({reason})",
            "Choose another with --port, from 10000 to 32767.",
        )


def is_own_address(host: str) -> bool:
    """Say whether a name or address is one of this machine's (it can be bound)."""
    return why_not_bound(host, 0) is None


def why_not_bound(address: str, port: int) -> int | None:
    """Return the error number of binding, or None; what TCPStore does: reuse a closing port."""
    probe = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
        probe.listen(1)
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL
    finally:
        probe.close()
    return None

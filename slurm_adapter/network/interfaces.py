"""This machine's network interfaces: addresses, state, and what each of them is made of.

The kernel is asked in two questions (rtnetlink(7)) rather than through `getifaddrs`: a link's kind
and an address's scope are told along with it, no file is opened, and `ctypes`, which takes longer
than all of this, is not loaded.
"""

from __future__ import annotations

import os
import sys

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.addresses import socket
from slurm_adapter.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SYSFS_VARIABLE = "SLURM_ADAPTER_SYSFS"
# linux/netlink.h, linux/rtnetlink.h
_ROUTE, _DUMP = 0, 0x301  # NETLINK_ROUTE; NLM_F_REQUEST | NLM_F_DUMP
_GET_LINKS, _GET_ADDRESSES = 18, 22
_ERROR, _DONE = 2, 3
_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR: something changed meanwhile
# Bytes of what stands first in a message, then for a link or an address, and in an attribute.
_HEAD, _LINK_HEAD, _ADDRESS_HEAD, _ATTRIBUTE_HEAD = 16, 16, 8, 4
_WITHOUT_STATISTICS = ((8, 2), (29, 2), (8, 4))  # the attribute IFLA_EXT_MASK
_NESTED = 0x3FFF
_READ_BYTES = 1 << 16
_TRIES = 5

_Attributes = dict[int, bytes]
# linux/if.h, linux/if_arp.h, linux/if_link.h, linux/if_addr.h
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40
_ETHERNET, _INFINIBAND = 1, 32
_NAME, _MTU, _LOWER, _MASTER, _KIND_INFO = 3, 4, 5, 10, 18
_KIND = 1
_ADDRESS, _LOCAL, _LONG_FLAGS = 1, 2, 8
_OF_LINKS = frozenset((_NAME, _MTU, _LOWER, _MASTER, _KIND_INFO))
_OF_KINDS, _OF_ADDRESSES = frozenset((_KIND,)), frozenset((_ADDRESS, _LOCAL, _LONG_FLAGS))
_DUPLICATE, _DEPRECATED, _TENTATIVE = 0x08, 0x20, 0x40
_SCOPES = {0: "global", 200: "site", 253: "link", 254: "host"}
_TUNNELS = frozenset(
    {"tun", "gre", "gretap", "ip6gre", "ip6gretap", "ipip", "ip6tnl", "sit", "vti", "vti6"}
    | {"wireguard", "vxlan", "geneve", "erspan", "ppp", "xfrm"}
)
_OWN_WORDS = {"ipoib": "IPoIB", "vlan": "VLAN", "macvtap": "macvlan", "ipvlan": "macvlan"}


@record
class Address:
    """One IP address of an interface."""

    ip: str
    prefix: int
    """Bits of its network."""
    scope: str = "global"
    """`global`, `site`, `link` (valid on its own cable only) or `host`."""

    @property
    def is_ipv6(self) -> bool:
        """Whether it is one of IPv6."""
        return ":" in self.ip

    @property
    def reachable(self) -> bool:
        """Whether other machines can reach it: neither loopback nor link-local."""
        local = self.ip.startswith(("127.", "169.254.", "fe8", "fe9", "fea", "feb"))
        return not local and self.ip != "::1" and self.scope in ("global", "site")

    def __str__(self) -> str:
        return f"{self.ip}/{self.prefix}"


@record
class Interface:
    """One network interface."""

    name: str
    addresses: tuple[Address, ...] = ()
    up: bool = True
    """Whether it is switched on and has a carrier."""
    mtu: int = 1500
    """Bytes."""
    kind: str = "physical"
    """`physical`, `loopback`, `bond`, `VLAN`, `bridge`, `veth`, `macvlan`, `tunnel`, `IPoIB`, else
    the kernel's word for it."""
    lower: str | None = None
    """The interface that it stands on (a VLAN's), None where there is none of its kind."""
    members: tuple[str, ...] = ()
    """What a bond or a bridge is made of."""
    speed_mbps: int | None = None
    """Megabits per second, None where the driver does not say."""
    numa: int | None = None
    """The NUMA node of its card, None where it has none."""

    @property
    def usable(self) -> tuple[Address, ...]:
        """The addresses at which other machines can reach it, IPv4 first."""
        found = [address for address in self.addresses if address.reachable]
        return tuple(sorted(found, key=lambda address: address.is_ipv6))

    @property
    def shown(self) -> str:
        """Its name and first address, for a message."""
        first = next(iter(self.usable or self.addresses), None)
        return self.name if first is None else f"{self.name} ({first.ip})"


def sysfs_root(environment: Mapping[str, str]) -> str:
    """Return where sysfs is read: recorded machines can be replayed."""
    return environment.get(SYSFS_VARIABLE) or "/sys"


def read_interfaces(sysfs: str | None = "/sys") -> tuple[Interface, ...]:
    """Return all interfaces of this network namespace, in the kernel's order.

    Args:
        sysfs: where speeds and cards are read; None: they are left out, and no file is opened.

    Raises:
        OSError: the kernel does not tell them.
    """
    links = _dumped_links()
    names = {index: _text(found[_NAME]) for index, _, _, found in links}
    addresses = _addresses()
    members: dict[int, list[str]] = {}
    for index, _, _, found in links:
        if _MASTER in found:
            members.setdefault(_number(found[_MASTER]), []).append(names[index])
    interfaces = []
    for index, hardware, flags, found in links:
        one = Interface(
            name=names[index],
            addresses=tuple(addresses.get(index, ())),
            up=bool(flags & _UP and flags & _RUNNING),
            mtu=_number(found[_MTU]),
            kind=_kind(hardware, flags, found),
            lower=names.get(_number(found[_LOWER])) if _LOWER in found else None,
            members=tuple(members.get(index, ())),
        )
        interfaces.append(one if sysfs is None else _with_card(one, sysfs))
    return tuple(interfaces)


def interfaces_of(node: str, sysfs: str | None) -> tuple[Interface, ...]:
    """Return the interfaces of this node as `read_interfaces` does, its refusal in words.

    Raises:
        ClusterUnfitError: the kernel does not tell them.
    """
    try:
        return read_interfaces(sysfs)
    except OSError as error:
        raise ClusterUnfitError(
            f"{node} does not tell its network interfaces: {error.strerror}",
            "Netlink sockets are forbidden there; a container may need other rights.",
        ) from error


def has_rdma(sysfs: str) -> bool:
    """Say whether this machine may have RDMA devices: few have, others need not load the reader."""
    return os.path.isdir(f"{sysfs}/class/infiniband")  # pathlib is slow


def _addresses() -> dict[int, list[Address]]:
    """Return the addresses of each link that may be used now."""
    found: dict[int, list[Address]] = {}
    for index, family, prefix, scope, flags, values in _dumped_addresses():
        if family not in (socket.AF_INET, socket.AF_INET6):
            continue
        flags |= _number(values.get(_LONG_FLAGS, b"\0\0\0\0"))  # noqa: PLW2901 - the rest of them
        if flags & (_DUPLICATE | _DEPRECATED | _TENTATIVE):
            continue
        # At the end of a tunnel `address` is the other side's.
        ip = socket.inet_ntop(family, values.get(_LOCAL) or values[_ADDRESS])
        found.setdefault(index, []).append(Address(ip, prefix, _SCOPES.get(scope, "global")))
    return found


def _kind(hardware: int, flags: int, found: _Attributes) -> str:
    if flags & _LOOPBACK:
        return "loopback"
    word = _text(_attributes(found.get(_KIND_INFO, b""), 0, _OF_KINDS).get(_KIND, b""))
    if word in _TUNNELS:
        return "tunnel"
    if hardware == _INFINIBAND:
        return "IPoIB"
    if not word:
        return "physical" if hardware == _ETHERNET else "tunnel"
    return _OWN_WORDS.get(word, word)


def _with_card(interface: Interface, sysfs: str) -> Interface:
    """Add what the card's driver says; it may refuse each single value."""
    folder = f"{sysfs}/class/net/{interface.name}"
    numa = read_value(f"{folder}/device/numa_node")
    speed = read_value(f"{folder}/speed")
    return replace(
        interface,
        speed_mbps=int(speed) if speed.isdigit() and speed != "0" else None,
        numa=int(numa) if numa.isdigit() else None,
    )


def read_value(path: str) -> str:
    """Return the text of a file of sysfs without its line's end; empty where it has none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, 4096).decode(errors="replace").strip()
    except OSError:  # a driver that knows no answer says so only when it is asked
        return ""
    finally:
        os.close(file)


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="surrogateescape")


def _number(value: bytes) -> int:
    return int.from_bytes(value[:4], sys.byteorder)


def listed(interfaces: Iterable[Interface]) -> str:
    """Return the interfaces with an address that others can reach, for a remedy."""
    return ", ".join(one.shown for one in interfaces if one.up and one.usable) or "none"


def _dumped_links() -> list[tuple[int, int, int, _Attributes]]:
    """Return (index, hardware type, flags, attributes) of each link; IFLA_* are the keys.

    Raises:
        OSError: the kernel does not answer.
    """
    return [
        (
            _number(body[4:8]),
            _number(body[2:4]),
            _number(body[8:12]),
            _attributes(body, _LINK_HEAD, _OF_LINKS),
        )
        for body in _dump(_GET_LINKS, bytes(_LINK_HEAD) + _packed(*_WITHOUT_STATISTICS))
    ]


def _dumped_addresses() -> list[tuple[int, int, int, int, int, _Attributes]]:
    """Return (index of the link, family, prefix length, scope, flags, attributes) of each address.

    IFA_* are the keys.

    Raises:
        OSError: the kernel does not answer.
    """
    found = []
    for body in _dump(_GET_ADDRESSES, bytes(_ADDRESS_HEAD)):
        family, prefix, flags, scope = body[:4]
        values = _attributes(body, _ADDRESS_HEAD, _OF_ADDRESSES)
        found.append((_number(body[4:8]), family, prefix, scope, flags, values))
    return found


def _attributes(data: bytes, start: int, wanted: frozenset[int]) -> _Attributes:
    """Return those attributes of a message, or within an attribute, that are wanted.

    A link has fifty, and there may be hundreds of links.
    """
    found: _Attributes = {}
    words = memoryview(data)[: len(data) & ~1].cast("H")  # the kernel's own byte order
    at, last = start // 2, len(words) - 2
    while at <= last:
        length, kind = words[at], words[at + 1] & _NESTED
        if kind in wanted:
            found[kind] = data[at * 2 + _ATTRIBUTE_HEAD : at * 2 + length]
        if length < _ATTRIBUTE_HEAD:
            break
        at += (length + 3 & ~3) // 2
    return found


def _dump(question: int, body: bytes) -> list[bytes]:
    for _ in range(_TRIES):
        found, whole = _answer(question, body)
        if whole:
            break
    return found  # changing all the time: what was seen last


def _answer(question: int, body: bytes) -> tuple[list[bytes], bool]:
    """Return the answers to a question, and whether nothing changed while they were told."""
    found: list[bytes] = []
    whole = True
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _ROUTE)
    try:
        head = _packed((_HEAD + len(body), 4), (question, 2), (_DUMP, 2), (1, 4), (0, 4))
        kernel.send(head + body)
        while True:
            for kind, flags, one in _messages(kernel.recv(_READ_BYTES)):
                whole = whole and not flags & _INTERRUPTED
                if kind == _DONE:
                    return found, whole
                if kind == _ERROR:
                    number = -int.from_bytes(one[:4], sys.byteorder, signed=True)
                    raise OSError(number, os.strerror(number))
                found.append(one)
    finally:
        kernel.close()


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (type, flags, rest) of each message."""
    position = 0
    while position + _HEAD <= len(data):
        length = _number(data[position : position + 4])
        kind = _number(data[position + 4 : position + 6])
        flags = _number(data[position + 6 : position + 8])
        yield kind, flags, data[position + _HEAD : position + length]
        position += max(length, _HEAD) + 3 & ~3


def _packed(*fields: tuple[int, int]) -> bytes:
    """Return (number, bytes that it takes) after each other as the kernel reads them."""
    return b"".join(number.to_bytes(size, sys.byteorder) for number, size in fields)

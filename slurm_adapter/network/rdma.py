"""This machine's RDMA ports, as sysfs tells of them: state, rate, and the addresses they go by.

Documentation/ABI/stable/sysfs-class-infiniband and .../testing/sysfs-class-infiniband of Linux.
"""

from __future__ import annotations

import os

from slurm_adapter.network.interfaces import read_value
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
ROCE_V2 = "RoCE v2"
_MAPPED = "0000:0000:0000:0000:0000:ffff:"
# A table has up to 256 slots, each of which is three files. What one machine or container uses
# stands close together; what others use before that is empty here.
_EMPTY_SLOTS = 24


@record
class Gid:
    """One slot of a port's table that is in use."""

    index: int
    value: str
    """Eight groups of four digits, as sysfs has it."""
    kind: str
    """`RoCE v2`, or `IB/RoCE v1`."""
    interface: str = ""
    """Whose address it is, empty for InfiniBand."""

    @property
    def ipv4(self) -> str | None:
        """The IPv4 address that it stands for, None where it is one of IPv6."""
        if not self.value.startswith(_MAPPED):
            return None
        digits = self.value.removeprefix(_MAPPED).replace(":", "")
        return ".".join(str(int(digits[start : start + 2], 16)) for start in range(0, 8, 2))

    @property
    def is_link_local(self) -> bool:
        """Whether it is valid on its own cable only (NET-06)."""
        return self.value[:3] in ("fe8", "fe9", "fea", "feb")

    @property
    def is_routable(self) -> bool:
        """Whether RoCE can reach another machine by it."""
        return self.kind == ROCE_V2 and not self.is_link_local

    @property
    def shown(self) -> str:
        """The address as people write it."""
        if self.ipv4 is not None:
            return self.ipv4
        import socket  # only where it is shown

        packed = bytes.fromhex(self.value.replace(":", ""))
        return socket.inet_ntop(socket.AF_INET6, packed)


@record
class Port:
    """One port of an RDMA device."""

    device: str
    """What NCCL calls it: `mlx5_0`."""
    number: int
    """Counted from 1."""
    layer: str
    """`InfiniBand` or `Ethernet` (RoCE)."""
    active: bool
    gbps: float
    """Gigabits per second; 0 where sysfs does not say."""
    interface: str = ""
    """The network interface of the same port, empty where none is seen."""
    ports: int = 1
    """How many its device has."""
    firmware: str = ""
    numa: int | None = None
    gids: tuple[Gid, ...] = ()
    """Of an active Ethernet port: what is in use of its table."""

    @property
    def shown(self) -> str:
        """Device and port."""
        return f"{self.device}:{self.number}"


def listed(ports: Iterable[Port]) -> str:
    """Return ports for a message."""
    return ", ".join(port.shown for port in ports) or "none"


def read_ports(sysfs: str = "/sys") -> tuple[Port, ...]:
    """Return all ports of all RDMA devices, in the order of their names; empty where none are."""
    folder = f"{sysfs}/class/infiniband"
    return tuple(port for name in _names(folder) for port in _ports(f"{folder}/{name}", name))


def _ports(folder: str, device: str) -> Iterator[Port]:
    numbers = [int(name) for name in _names(f"{folder}/ports") if name.isdigit()]
    firmware, numa = read_value(f"{folder}/fw_ver"), read_value(f"{folder}/device/numa_node")
    interfaces = _names(f"{folder}/device/net")
    for number in sorted(numbers):
        port = f"{folder}/ports/{number}"
        layer = read_value(f"{port}/link_layer") or INFINIBAND
        active = read_value(f"{port}/state").endswith(": ACTIVE")
        gids = tuple(_gids(port)) if active and layer == ETHERNET else ()
        of_gids = next((gid.interface for gid in gids if gid.interface), "")
        alone = interfaces[0] if len(interfaces) == len(numbers) == 1 else ""
        yield Port(
            device=device,
            number=number,
            layer=layer,
            active=active,
            gbps=_gbps(read_value(f"{port}/rate")),
            interface=of_gids or alone,
            ports=len(numbers),
            firmware=firmware,
            numa=int(numa) if numa.isdigit() else None,
            gids=gids,
        )


def _gids(port: str) -> Iterator[Gid]:
    """Yield the slots in use: a slot that is free holds zeros, or cannot be read (NET-06)."""
    found, empty = False, 0
    for index in range(len(_listing(f"{port}/gids"))):
        value = read_value(f"{port}/gids/{index}")
        kind = read_value(f"{port}/gid_attrs/types/{index}") if value.strip("0:") else ""
        if kind:
            found, empty = True, 0
            yield Gid(index, value, kind, read_value(f"{port}/gid_attrs/ndevs/{index}"))
        else:
            empty += 1
            if found and empty > _EMPTY_SLOTS:
                return


def _gbps(rate: str) -> float:
    """Return the number of `100 Gb/sec (4X EDR)`."""
    word = rate.partition(" ")[0]
    return float(word) if word.replace(".", "", 1).isdigit() else 0.0


def _names(folder: str) -> list[str]:
    """Return what a folder holds, numbers in their names counted as such: mlx5_2 before mlx5_10."""
    return sorted(_listing(folder), key=_counted)


def _listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _counted(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name

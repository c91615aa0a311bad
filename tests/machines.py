"""Machines with RDMA, as their sysfs shows them: each recorded from a public report.

A recording keeps what the report tells (devices, link layers, states, rates, GID tables); what it
does not tell is made up to fit: PCI addresses, and interfaces' names where only devices are listed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

V1, V2 = "IB/RoCE v1", "RoCE v2"
_STATES = {"ACTIVE": "4: ACTIVE", "INIT": "2: INIT", "DOWN": "1: DOWN"}
_ZEROS = ":".join(["0000"] * 8)


@dataclass(frozen=True)
class Hca:
    """One RDMA device with one port."""

    name: str
    layer: str = "InfiniBand"
    state: str = "ACTIVE"
    gbps: int = 200
    interface: str = ""
    gids: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """Slot -> (address, type)."""
    pci: str = ""
    """The path below /sys/devices, empty: behind a root port of its own."""
    numa: int = 0


def gid(address: str) -> str:
    """Return an address as sysfs writes it; IPv4 is mapped into IPv6."""
    if ":" not in address:
        numbers = [int(part) for part in address.split(".")]
        high, low = numbers[0] << 8 | numbers[1], numbers[2] << 8 | numbers[3]
        return f"0000:0000:0000:0000:0000:ffff:{high:04x}:{low:04x}"
    left, _, right = address.partition("::")
    groups = [left.split(":") if left else [], right.split(":") if right else []]
    middle = ["0"] * (8 - len(groups[0]) - len(groups[1]))
    return ":".join(part.zfill(4) for part in (*groups[0], *middle, *groups[1]))


def addresses(*given: str, start: int = 0) -> dict[int, tuple[str, str]]:
    """Return a table as drivers fill it: for each address a slot of v1, then one of v2."""
    pairs = [(address, kind) for address in given for kind in (V1, V2)]
    return dict(enumerate(pairs, start))


def build(
    root: Path, hcas: Iterable[Hca], gpus: Sequence[tuple[str, int]] = (), slots: int = 16
) -> Path:
    """Write a tree as /sys has it, return its root.

    `gpus` are (path below devices, NUMA node), `slots` what a table of GIDs has.
    """
    (root / "class/infiniband").mkdir(parents=True)
    (root / "bus/pci/devices").mkdir(parents=True)
    for number, hca in enumerate(hcas):
        card = root / "devices" / (hca.pci or f"pci0000:{number + 16:x}/0000:{number + 16:x}:00.0")
        device = card / "infiniband" / hca.name
        device.mkdir(parents=True)
        (root / "class/infiniband" / hca.name).symlink_to(device)
        (device / "device").symlink_to(card)
        _write(card / "numa_node", str(hca.numa))
        _write(device / "fw_ver", "20.31.1014")
        if hca.interface:
            (card / "net" / hca.interface).mkdir(parents=True)
        _port(device / "ports/1", hca, slots)
    for path, numa in gpus:
        card = root / "devices" / path
        card.mkdir(parents=True)
        (root / "bus/pci/devices" / card.name).symlink_to(card)
        for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("numa_node", str(numa))):
            _write(card / name, value)
    return root


def _port(port: Path, hca: Hca, slots: int) -> None:
    _write(port / "state", _STATES[hca.state])
    _write(port / "rate", f"{hca.gbps} Gb/sec (4X HDR)")
    _write(port / "link_layer", hca.layer)
    for slot in range(slots):
        address, kind = hca.gids.get(slot, ("", ""))
        _write(port / f"gids/{slot}", gid(address) if address else _ZEROS)
        (port / "gid_attrs/types").mkdir(parents=True, exist_ok=True)
        (port / "gid_attrs/ndevs").mkdir(parents=True, exist_ok=True)
        if address:
            _write(port / f"gid_attrs/types/{slot}", kind)
            _write(port / f"gid_attrs/ndevs/{slot}", hca.interface)
        else:  # reading it fails there, as reading a directory does
            (port / f"gid_attrs/types/{slot}").mkdir()
            (port / f"gid_attrs/ndevs/{slot}").mkdir()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


# NVIDIA/nccl#676: a DGX A100, of whose two storage ports one is Ethernet and takes part in NCCL's
# `NET/IB : Using [0]mlx5_9:1/RoCE`; eight InfiniBand rails beside it.
DGX_A100 = (
    *(
        Hca(
            f"mlx5_{n}",
            interface=f"ibs{n}",
            numa=n // 4,
            pci=f"pci0000:{n:02x}/0000:{n:02x}:01.0/0000:a{n}:00.0/0000:b{n}:00.0/0000:c{n}:00.0",
        )
        for n in (0, 1, 2, 3, 6, 7, 8, 11)
    ),
    Hca("mlx5_4", state="DOWN", interface="ibs4"),
    Hca(
        "mlx5_9",
        "Ethernet",
        gbps=100,
        interface="enp225s0f1",
        gids=addresses("fe80::ac0:ebff:feda:1cfb", "10.10.10.2"),
    ),
)

# NVIDIA/nccl#769: bonded RoCE; index 1 is link-local and times out, index 3 works.
ROCE_BOND = (
    Hca(
        "mlx5_bond_0",
        "Ethernet",
        gbps=100,
        interface="bond0",
        gids=addresses("fe80::ac0:ebff:feda:1cfb", "200.0.209.6"),
    ),
)

# uccl-project/uccl#803: Broadcom Thor-2 whose addresses are all IPv6, link-local and fd93::.
ROCE_IPV6 = tuple(
    Hca(
        f"bnxt_re{n}",
        "Ethernet",
        gbps=400,
        interface=f"ens{n}",
        gids=addresses(f"fe80::{n + 1}", f"fd93:16d3:59b6:{n}::2"),
    )
    for n in range(2)
)

# NVIDIA/nccl#302 and #1412: four InfiniBand ports and an Ethernet one for storage; one is down.
MIXED = (
    Hca("mlx5_0", gbps=100, interface="ib0"),
    Hca("mlx5_2", "Ethernet", gbps=25, interface="eth2", gids=addresses("fe80::2", "10.4.0.7")),
    Hca("mlx5_3", gbps=100, interface="ib1"),
    Hca("mlx5_4", gbps=100, interface="ib2"),
    Hca("mlx5_5", state="DOWN", gbps=10, interface="ib3"),
)

# NVIDIA/nccl#1573: a pod with macvlan interfaces over RoCE. Its own addresses are at slots 4 to 7,
# those before are of others, zero here, and their types cannot be read. mlx5_2 is another pod's.
POD = (
    Hca(
        "mlx5_0",
        "Ethernet",
        gbps=100,
        interface="net1",
        gids=addresses("fe80::a4ed:ccff:fe8b:1994", "10.152.0.12", start=4),
    ),
    Hca(
        "mlx5_1",
        "Ethernet",
        gbps=100,
        interface="net2",
        gids=addresses("fe80::9459:9bff:fe54:7704", "10.152.4.12", start=4),
    ),
    Hca("mlx5_2", "Ethernet", gbps=100),
)

# A machine without RDMA.
NONE: tuple[Hca, ...] = ()

# Made up: all RoCE, one slower port for the front end (NET-07's "cannot know which is storage").
ALL_ROCE = (
    *(
        Hca(
            f"mlx5_{n}",
            "Ethernet",
            gbps=200,
            interface=f"rdma{n}",
            gids=addresses(f"fe80::{n + 1}", f"192.168.{n}.7"),
        )
        for n in range(4)
    ),
    Hca("mlx5_4", "Ethernet", gbps=50, interface="eth0", gids=addresses("fe80::9", "10.0.0.7")),
)

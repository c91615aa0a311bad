"""Which GPUs are near an HCA: shown to people; NCCL finds that out by itself, and better."""

from __future__ import annotations

import os

from slurm_adapter.network.interfaces import read_value

_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""VGA, 3D, display controllers; processing accelerators."""
_GPU_VENDORS = ("0x10de", "0x1002", "0x19e5")
"""NVIDIA, AMD, Huawei."""
_SHARED_BRIDGES = 2
"""A root port alone is shared by whatever stands in one slot; a switch is one bridge more."""


def gpus_near(sysfs: str, devices: list[str]) -> dict[str, str]:
    """Return words for the GPUs beside each RDMA device; a device without any is left out.

    GPUs are counted in the order of their PCI addresses, from 0.
    """
    gpus = _gpus(sysfs)
    found = {}
    for device in devices:
        folder = f"{sysfs}/class/infiniband/{device}/device"
        path, numa = os.path.realpath(folder), read_value(f"{folder}/numa_node")
        switch = [str(at) for at, (where, _) in enumerate(gpus) if _behind_one_switch(path, where)]
        same = [str(at) for at, (_, node) in enumerate(gpus) if node == numa and numa.isdigit()]
        if switch:
            found[device] = f"GPU {', '.join(switch)} behind the same PCI switch"
        elif same:
            found[device] = f"GPU {', '.join(same)} on the same NUMA node ({numa})"
    return found


def _gpus(sysfs: str) -> list[tuple[str, str]]:
    """Return (path, NUMA node) of each GPU, by PCI address."""
    folder = f"{sysfs}/bus/pci/devices"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [
        (os.path.realpath(f"{folder}/{name}"), read_value(f"{folder}/{name}/numa_node"))
        for name in names
        if read_value(f"{folder}/{name}/vendor") in _GPU_VENDORS
        and read_value(f"{folder}/{name}/class")[:6] in _GPU_CLASSES
    ]


def _behind_one_switch(one: str, other: str) -> bool:
    """Say whether two devices' paths share more than the root port they hang from."""
    shared = os.path.commonpath([one, other]).split("/")
    bridges = [part for part in shared if part.count(":") == 2]  # noqa: PLR2004 - as 0000:16:00.0
    return len(bridges) >= _SHARED_BRIDGES

"""How many accelerators this machine has, where no scheduler says: their drivers' device files."""

from __future__ import annotations

import os

# One for each card: NVIDIA's, Ascend's.
_DEVICE_FILES = ("nvidia", "davinci")


def count_accelerators(folder: str = "/dev") -> int:
    """Return the number of GPU or NPU device files on this machine."""
    return sum(
        1
        for name in os.listdir(folder)
        for driver in _DEVICE_FILES
        if name.startswith(driver) and name[len(driver) :].isdigit()
    )

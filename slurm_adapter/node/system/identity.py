"""A process by words that no other ever has: its machine, the boot, its number, its start."""

from __future__ import annotations

import os

from slurm_adapter.paths import read_text


def identity(pid: int) -> str:
    """Return `MACHINE/BOOT PID START`; START is `-` where no such process lives."""
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    # Field 22 of proc(5): the start time in ticks since boot; a zombie does nothing any more.
    start = fields[19] if fields and fields[0] not in "ZX" else "-"
    boot = read_text("/proc/sys/kernel/random/boot_id").strip()
    return f"{os.uname().nodename}/{boot} {pid} {start}"


def machine_of(words: str) -> str:
    """Return the name of the machine of a process that such words name."""
    return words.partition("/")[0]


def pid_of(words: str) -> int:
    """Return its number there; 0 where the words are none of ours."""
    number = words.split(" ")[1:2]
    return int(number[0]) if number and number[0].isdigit() else 0


def lives(words: str) -> bool | None:
    """Say whether that process lives; None where that is another machine's to say."""
    if machine_of(words) != os.uname().nodename:
        return None
    pid = pid_of(words)
    return bool(pid) and not words.endswith(" -") and identity(pid) == words  # not after a reboot

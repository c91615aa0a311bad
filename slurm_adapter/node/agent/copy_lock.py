"""Jobs that run from a copy of their code, or a sync that changes it: never both at once.

A file beside each copy: agents hold it shared for as long as their ranks run, and a sync holds it
alone while it changes something. What stands in it differs after every such change.
"""

from __future__ import annotations

import errno
import fcntl
import os

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.system.files import as_bytes

STATE = ".slurm-adapter-sync"
"""Beside the copy: locks, files that are not whole yet, and signs of the hosts that see it."""
PREFIX = b"used-"
"""How the files of copies begin in there."""

_LONGEST_NAME = 200
_MOST_BYTES = 256


def open_use(folder: bytes) -> int:
    """Return a descriptor of a copy's file, made where it is not there yet."""
    return os.open(_path(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def version(use: int) -> str:
    """Return what stands for the copy as it is now."""
    return os.pread(use, _MOST_BYTES, 0).decode(errors="replace")


def take_alone(use: int, folder: str, new_version: str) -> None:
    """Take a copy from everybody else, to change it to a new version.

    Raises:
        ClusterUnfitError: a job runs from it.
    """
    if not try_lock(use, fcntl.LOCK_EX):
        raise ClusterUnfitError(
            f"a job runs from {folder}",
            "Wait for it, or give this one a folder of its own with --job-folder DIR.",
        )
    # Before the first change: who was told of the old version is not to run from half of the new.
    os.ftruncate(use, 0)
    os.pwrite(use, new_version.encode(), 0)


def give_back(use: int) -> None:
    """Let jobs run from a copy again."""
    try_lock(use, fcntl.LOCK_UN)


def hold(folder: str, wanted: str, host: str) -> None:
    """Keep a copy as it is for as long as this process lives, and whom it forks.

    Args:
        folder: the copy.
        wanted: the version of it that is to be run.
        host: this host's name, for errors.

    Raises:
        ClusterUnfitError: it is of that version no longer.
    """
    try:
        use = os.open(_path(as_bytes(os.path.normpath(folder))), os.O_RDONLY | os.O_CLOEXEC)
        kept = try_lock(use, fcntl.LOCK_SH) and version(use) == wanted
    except OSError as error:
        raise ClusterUnfitError(
            f"{host} cannot keep {folder} as it is: {error.strerror}",
            "Name a place on another file system with --job-folder DIR.",
        ) from error
    if not kept:
        raise ClusterUnfitError(
            f"{host}: another --sync has changed {folder} meanwhile",
            "Start this one again, or give it a folder of its own with --job-folder DIR.",
        )


def try_lock(descriptor: int, how: int) -> bool:
    """Lock or unlock a file, see flock(2); say whether that could be done without waiting."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # A file system without locks: two at once are then the user's affair.
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    return True


def _path(folder: bytes) -> bytes:
    parent, name = os.path.split(folder)
    # Two long names may share a file: then a little too much is refused, never too little.
    return parent + b"/" + as_bytes(STATE) + b"/" + PREFIX + name[:_LONGEST_NAME]

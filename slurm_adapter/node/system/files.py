"""Files by the bytes of their paths, whatever encoding a host believes in."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress

from slurm_adapter.errors import ClusterUnfitError

_CHUNK = 1 << 18
# Whose files are shown as this user's are those of root on some network file systems.
_NOBODY = 65534


def as_bytes(text: str) -> bytes:
    """Return a path as a file system has it."""
    return text.encode("utf-8", "surrogateescape")


def as_text(path: bytes) -> str:
    """Return a path as text, undecodable bytes as surrogates."""
    return path.decode("utf-8", "surrogateescape")


def facts_of(path: bytes) -> os.stat_result | None:
    """Return what is known of a path, a link not followed; None where nothing is there."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_folder(path: bytes) -> bool:
    """Say whether a directory is there, and no link to one."""
    facts = facts_of(path)
    return facts is not None and stat.S_ISDIR(facts.st_mode)


def check_ours(folder: bytes) -> None:
    """Raise `ClusterUnfitError` where a path is no directory of this user."""
    facts = os.lstat(folder)
    if not stat.S_ISDIR(facts.st_mode):
        raise ClusterUnfitError(f"{as_text(folder)} is no directory")
    if facts.st_uid not in (os.geteuid(), 0, _NOBODY):
        raise ClusterUnfitError(f"{as_text(folder)} belongs to another user (uid {facts.st_uid})")


def read(path: bytes) -> bytes:
    """Return the contents of a file."""
    with open(path, "rb") as file:  # here and below: a Path takes no bytes
        return file.read()


def digest_of(path: bytes) -> str:
    """Return the SHA-256 of a file's contents."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def settle(path: bytes, mode: int, modified_ns: int | None = None) -> None:
    """Give a file its permissions and time, as far as the file system knows such things."""
    with suppress(OSError):
        os.chmod(path, mode)
    with suppress(OSError):
        if modified_ns is not None:
            os.utime(path, ns=(modified_ns, modified_ns))


def unlink(path: bytes) -> None:
    """Take away a file or link; one that is not there is no error."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def remove(path: bytes) -> None:
    """Take away a file, a link, or a directory that is empty but for what Python keeps there."""
    if not is_folder(path):
        os.unlink(path)
        return
    cache = path + b"/__pycache__"
    if os.listdir(path) == [b"__pycache__"] and is_folder(cache):
        for name in os.listdir(cache):
            os.unlink(cache + b"/" + name)
        os.rmdir(cache)
    os.rmdir(path)

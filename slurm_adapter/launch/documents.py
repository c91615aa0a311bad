"""Small documents on disk, for their owner only.

Replaced whole, so that a reader never sees half of one; who changes what stands there locks it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCHEMA = 1


def read_document(path: Path) -> dict[str, Any] | None:
    """Return a document; None where a newer slurm-adapter wrote it."""
    data: dict[str, Any] = json.loads(path.read_text())
    return data if data.pop("schema") <= SCHEMA else None


def write_document(path: Path, data: Mapping[str, Any]) -> None:
    """Write a document in the place of what is there, for its owner only."""
    own = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps({"schema": SCHEMA, **data}, indent=2))
        own.replace(path)
    except OSError:
        with suppress(OSError):
            own.unlink()
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one who changes what is in a folder; where none can be locked, do without."""
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)

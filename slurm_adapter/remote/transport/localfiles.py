"""This machine's files behind the port that SFTP stands behind elsewhere."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from slurm_adapter.remote.transport.port import FileFacts

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


class LocalFiles:
    """Files here; relative paths start at `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def listdir(self, path: str) -> list[FileFacts]:
        """See `Files.listdir`."""
        return [_facts(entry) for entry in self._at(path).iterdir()]

    def stat(self, path: str) -> FileFacts:
        """See `Files.stat`."""
        return _facts(self._at(path))

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        return self._at(path).read_bytes()

    def put(self, source: BinaryIO, path: str, mode: int = 0o600) -> int:
        """See `Files.put`."""
        descriptor = os.open(self._at(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as target:
            shutil.copyfileobj(source, target)
            return target.tell()

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        """See `Files.mkdir`."""
        self._at(path).mkdir(mode)

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        self._at(path).unlink()

    def rmdir(self, path: str) -> None:
        """See `Files.rmdir`."""
        self._at(path).rmdir()

    def rename(self, old: str, new: str) -> None:
        """See `Files.rename`."""
        self._at(old).replace(self._at(new))

    def symlink(self, target: str, path: str) -> None:
        """See `Files.symlink`."""
        os.symlink(target, self._at(path))  # a Path would rewrite `./x`

    def readlink(self, path: str) -> str:
        """See `Files.readlink`."""
        return os.readlink(self._at(path))

    def chmod(self, path: str, mode: int) -> None:
        """See `Files.chmod`."""
        self._at(path).chmod(mode)

    def utime(self, path: str, modified_s: int) -> None:
        """See `Files.utime`."""
        os.utime(self._at(path), (modified_s, modified_s))

    def close(self) -> None:
        """See `Files.close`."""

    def _at(self, path: str) -> Path:
        return self._folder / path


def _facts(path: Path) -> FileFacts:
    found = path.lstat()
    return FileFacts(path.name, found.st_mode, found.st_size, int(found.st_mtime))

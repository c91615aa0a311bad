"""A node's files over SFTP, behind the port."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

import paramiko

from slurm_adapter.remote.transport.port import ConnectionLostError, FileFacts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_CHUNK = 32768  # what every server takes in one piece


class RemoteFiles:
    """See `Files`; the requests of one `put` do not wait for each other."""

    def __init__(self, name: str, client: paramiko.SFTPClient) -> None:
        self._name = name
        self._client = client

    def listdir(self, path: str) -> list[FileFacts]:
        """See `Files.listdir`."""
        with self._errors(path):
            return [
                _facts(entry.filename, entry) for entry in self._client.listdir_attr(_raw(path))
            ]

    def stat(self, path: str) -> FileFacts:
        """See `Files.stat`."""
        with self._errors(path):
            return _facts(path.rstrip("/").rpartition("/")[2], self._client.lstat(_raw(path)))

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        with self._errors(path), self._client.open(_raw(path), "rb") as file:
            file.prefetch()
            return bytes(file.read())

    def put(self, source: BinaryIO, path: str, mode: int = 0o600) -> int:
        """See `Files.put`."""
        written = 0
        with self._errors(path):
            with self._client.open(_raw(path), "wb") as file:
                # SFTP creates with the server's own mode: nobody may look in while it fills.
                file.chmod(mode)
                file.set_pipelined(True)
                while chunk := source.read(_CHUNK):
                    file.write(chunk)
                    written += len(chunk)
            # Errors of writes that nobody waited for would otherwise pass unseen.
            size = self._client.stat(_raw(path)).st_size
            if size != written:
                raise OSError(errno.EIO, f"{size} bytes arrived of {written}", path)
        return written

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        """See `Files.mkdir`."""
        with self._errors(path):
            self._client.mkdir(_raw(path), mode)

    def remove(self, path: str) -> None:
        """See `Files.remove`."""
        with self._errors(path):
            self._client.remove(_raw(path))

    def rmdir(self, path: str) -> None:
        """See `Files.rmdir`."""
        with self._errors(path):
            self._client.rmdir(_raw(path))

    def rename(self, old: str, new: str) -> None:
        """See `Files.rename`."""
        with self._errors(old):
            self._client.posix_rename(_raw(old), _raw(new))

    def symlink(self, target: str, path: str) -> None:
        """See `Files.symlink`."""
        with self._errors(path):
            self._client.symlink(_raw(target), _raw(path))

    def readlink(self, path: str) -> str:
        """See `Files.readlink`."""
        with self._errors(path):
            return str(self._client.readlink(_raw(path)))

    def chmod(self, path: str, mode: int) -> None:
        """See `Files.chmod`."""
        with self._errors(path):
            self._client.chmod(_raw(path), stat.S_IMODE(mode))

    def utime(self, path: str, modified_s: int) -> None:
        """See `Files.utime`."""
        with self._errors(path):
            self._client.utime(_raw(path), (modified_s, modified_s))

    def close(self) -> None:
        """See `Files.close`."""
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._client.close()

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (EOFError, paramiko.SSHException) as error:
            raise ConnectionLostError(f"{self._name}: the connection was lost") from error
        except OSError as error:
            if not self._client.get_channel().get_transport().is_active():
                raise ConnectionLostError(f"{self._name}: the connection was lost") from error
            # SFTP knows few numbers, and paramiko names no path.
            text = error.strerror or str(error)
            raise OSError(error.errno or errno.EIO, text, path) from error


def _raw(path: str) -> bytes:
    return os.fsencode(path)


def _facts(name: str, found: paramiko.SFTPAttributes) -> FileFacts:
    return FileFacts(name, found.st_mode or 0, found.st_size or 0, int(found.st_mtime or 0))

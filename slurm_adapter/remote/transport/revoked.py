"""A RevokedHostKeys file: keys that no host may show, as lines of text or as OpenSSH's KRL.

Like ssh, this refuses every host where the file cannot be read whole: what it does not understand
might be the very key that a host shows. Lines are read here; what a KRL holds, ssh-keygen says.
"""

from __future__ import annotations

import base64
import os
import subprocess
from typing import TYPE_CHECKING

from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.transport.connect_error import ConnectError
from slurm_adapter.remote.transport.known_hosts import key_blob

if TYPE_CHECKING:
    from pathlib import Path

_KRL_MAGIC = b"SSHKRL\n\0"
_LIMIT_S = 30.0


class RevokedKeys:
    """What one file revokes; it is read once, a KRL once more for each key.

    Raises:
        ConnectError: it cannot be read whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed: frozenset[bytes] = frozenset()
        try:
            data = path.read_bytes()
            self._is_krl = data.startswith(_KRL_MAGIC)
            if not self._is_krl:
                self._listed = frozenset(_keys_of(data))
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def hold(self, kind: str, blob: bytes) -> bool:
        """Say whether a key is among them.

        Args:
            kind: its type, e.g. `ssh-ed25519`.
            blob: the key as it goes over the wire.

        Raises:
            ConnectError: ssh-keygen does not say.
        """
        if not self._is_krl:
            return blob in self._listed
        try:
            return _in_krl(self._path, kind, blob)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ConnectError:
        why = error.strerror if isinstance(error, OSError) else None
        return ConnectError(
            f"the RevokedHostKeys file {self._path} cannot be read ({why or error})",
            "ssh refuses every host then. Put public keys into it, one a line, or what"
            f" `ssh-keygen -k -f {shell_words([str(self._path)])} KEY.pub...` makes; or take"
            " RevokedHostKeys out of the ssh config.",
        )


def _keys_of(data: bytes) -> list[bytes]:
    """Return the keys of a file of text, one a line."""
    blobs = []
    for number, line in enumerate(data.decode(errors="surrogateescape").split("\n"), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        blob = key_blob(fields[0], fields[1]) if len(fields) > 1 else None
        if blob is None or not _is_whole(fields[0], blob):
            raise ValueError(f"line {number} is no public key")
        blobs.append(blob)
    return blobs


def _is_whole(kind: str, blob: bytes) -> bool:
    """Say whether a key is not cut off: strings, each behind its length in four bytes.

    A certificate has more than strings in it.
    """
    place = 0
    while "-cert-" not in kind and place < len(blob):
        place += 4 + int.from_bytes(blob[place : place + 4], "big")
    return "-cert-" in kind or place == len(blob)


def _in_krl(path: Path, kind: str, blob: bytes) -> bool:
    """Ask `ssh-keygen -Q`: it ends with 0 or says that the key is revoked, unless it fails."""
    key = os.memfd_create("key")
    try:
        os.write(key, f"{kind} {base64.b64encode(blob).decode()}\n".encode())
        done = subprocess.run(
            ["ssh-keygen", "-Q", "-f", str(path), f"/proc/self/fd/{key}"],
            pass_fds=[key],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except FileNotFoundError as error:
        raise ValueError("it is a KRL, and there is no ssh-keygen here to read it") from error
    finally:
        os.close(key)
    if done.returncode == 0:
        return False
    if done.returncode == 1 and b"REVOKED" in done.stdout:
        return True
    said = done.stderr.decode(errors="replace").strip().rpartition(": ")[2]
    raise ValueError(f"ssh-keygen: {said or f'exit status {done.returncode}'}")

"""A RevokedHostKeys file: keys that no host may show, as lines of text or as OpenSSH's KRL.

Like ssh, this refuses every host where the file cannot be read whole: what it does not understand
might be the very key that a host shows. The format of a KRL is in OpenSSH's PROTOCOL.krl.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.transport.errors import ConnectError
from slurm_adapter.remote.transport.known_hosts import key_blob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC = b"SSHKRL\n\0"
_HEADER = struct.Struct(">8sIQQQ")  # magic, version of the format, of the list, date, flags
_FORMAT = 1
_CERTIFICATES, _KEYS, _SHA1, _SHA256 = 1, 2, 3, 5
"""Sections of a KRL. Host certificates are not accepted at all, revoked or not."""
_DIGEST_BYTES = {_SHA1: 20, _SHA256: 32}


@dataclass(frozen=True)
class RevokedKeys:
    """What one file revokes."""

    blobs: frozenset[bytes]
    """Keys as they go over the wire."""
    digests: frozenset[bytes] = frozenset()
    """SHA-1 or SHA-256 of such keys."""

    @classmethod
    def read(cls, path: Path) -> RevokedKeys:
        """Read a file.

        Raises:
            ConnectError: it cannot be read whole.
        """
        try:
            data = path.read_bytes()
            return cls._from_krl(data) if data.startswith(_MAGIC) else cls._from_text(data)
        except OSError as error:
            why = error.strerror or str(error)
        except ValueError as error:
            why = str(error)
        raise ConnectError(
            f"the RevokedHostKeys file {path} cannot be read ({why})",
            "ssh refuses every host then. Put public keys into it, one a line, or what"
            f" `ssh-keygen -k -f {shell_words([str(path)])} KEY.pub...` makes; or take"
            " RevokedHostKeys out of the ssh config.",
        )

    @classmethod
    def _from_text(cls, data: bytes) -> RevokedKeys:
        blobs = set()
        for number, line in enumerate(data.decode(errors="surrogateescape").split("\n"), 1):
            fields = line.split()
            if not fields or fields[0].startswith("#"):
                continue
            blob = key_blob(fields[0], fields[1]) if len(fields) > 1 else None
            if blob is None or not _is_whole(fields[0], blob):
                raise ValueError(f"line {number} is no public key")
            blobs.add(blob)
        return cls(frozenset(blobs))

    @classmethod
    def _from_krl(cls, data: bytes) -> RevokedKeys:
        try:
            _, version, *_ = _HEADER.unpack_from(data)
            rest = data[_HEADER.size :]
            if version != _FORMAT:
                raise ValueError(f"a KRL of format {version}")
            for _ in ("reserved", "comment"):
                _, rest = _string(rest)
            blobs: set[bytes] = set()
            digests: set[bytes] = set()
            while rest:
                kind = rest[0]
                section, rest = _string(rest[1:])
                if kind == _KEYS:
                    blobs.update(_strings(section))
                elif kind in _DIGEST_BYTES:
                    digests.update(_digests(section, _DIGEST_BYTES[kind]))
                elif kind != _CERTIFICATES:
                    raise ValueError(f"a KRL with a section {kind}, which is not known here")
        except struct.error as error:
            raise ValueError("a KRL that is cut off") from error
        return cls(frozenset(blobs), frozenset(digests))

    def hold(self, blob: bytes) -> bool:
        """Say whether a key is among them."""
        if blob in self.blobs:
            return True
        # The fingerprints that a KRL may hold; no other is to be chosen here.
        digests = (hashlib.sha1(blob).digest(), hashlib.sha256(blob).digest())  # noqa: S324
        return any(digest in self.digests for digest in digests)


def _digests(section: bytes, size: int) -> Iterator[bytes]:
    for digest in _strings(section):
        if len(digest) != size:
            raise ValueError(f"a KRL with a fingerprint of {len(digest)} bytes")
        yield digest


def _is_whole(kind: str, blob: bytes) -> bool:
    """Say whether a key is not cut off; a certificate has more than strings in it."""
    try:
        return "-cert-" in kind or bool(list(_strings(blob)))
    except struct.error:
        return False


def _strings(data: bytes) -> Iterator[bytes]:
    while data:
        text, data = _string(data)
        yield text


def _string(data: bytes) -> tuple[bytes, bytes]:
    """Return (a string behind its length in four bytes, what follows it)."""
    (size,) = struct.unpack_from(">I", data)
    if len(data) < 4 + size:
        raise struct.error
    return data[4 : 4 + size], data[4 + size :]

"""known_hosts files as OpenSSH reads them: which keys are known for a host, and which revoked."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.remote.transport.patterns import matches_list

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

REVOKED = "@revoked"
AUTHORITY = "@cert-authority"
_HASHED = "|1|"
_SALT_BYTES = 20
_FIELDS = 3
_RSA_FIELDS = 3
_BLANKS = re.compile("[ \t]+")


@dataclass(frozen=True)
class KnownKey:
    """One line: a key, and where it stands."""

    kind: str
    """Its type, e.g. `ssh-ed25519`."""
    blob: bytes
    marker: str
    """Empty, `@revoked` or `@cert-authority`."""
    path: Path
    line: int
    """Counted from 1."""


class KnownHosts:
    """The keys of several files, looked up by host; read once, asked for every host."""

    def __init__(self, files: Iterable[Path]) -> None:
        # A name without wildcards is found at once, the rest is tried line by line.
        self._named: dict[str, list[KnownKey]] = {}
        self._patterns: list[tuple[tuple[str, ...], KnownKey]] = []
        self._hashed: list[tuple[bytes, bytes, KnownKey]] = []
        for path in files:
            self._read(path)

    @classmethod
    def of_text(cls, text: bytes, name: Path) -> KnownHosts:
        """Return what stands in a text that is no file, and what to call it."""
        known = cls(())
        known._take(text, name)
        return known

    def keys(self, name: str) -> tuple[KnownKey, ...]:
        """Return the keys known for a host, `[host]:port` where the port is not 22."""
        # ssh, too, takes a hashed name to the letter; it asks in lower case.
        encoded = name.encode(errors="surrogateescape")
        name = name.lower()
        return (
            *self._named.get(name, ()),
            *(key for patterns, key in self._patterns if matches_list(patterns, name)),
            *(
                key
                for salt, digest, key in self._hashed
                if hmac.digest(salt, encoded, "sha1") == digest
            ),
        )

    def add(self, name: str, key: KnownKey) -> None:
        """Know one more key from now on."""
        self._named.setdefault(name.lower(), []).append(key)

    def _read(self, path: Path) -> None:
        try:
            text = path.read_bytes()
        except OSError:
            return  # a file that is not there knows nobody, as with ssh
        self._take(text, path)

    def _take(self, text: bytes, path: Path) -> None:
        lines = text.decode(errors="surrogateescape").split("\n")
        for number, line in enumerate(lines, 1):
            fields = [field.rstrip("\r") for field in _BLANKS.split(line.strip(" \t"), 4)]
            marker = fields.pop(0) if fields and fields[0] in {REVOKED, AUTHORITY} else ""
            if len(fields) < _FIELDS or fields[0].startswith(("#", "@")):
                continue
            blob = key_blob(fields[1], fields[2])
            if blob is not None:
                self._index(fields[0], KnownKey(fields[1], blob, marker, path, number))

    def _index(self, hosts: str, key: KnownKey) -> None:
        if hosts.startswith(_HASHED):
            parts = _hash_parts(hosts)
            if parts is not None:
                self._hashed.append((*parts, key))
            return
        names = tuple(name for name in hosts.lower().split(",") if name)
        if any(letter in hosts for letter in "*?!"):
            self._patterns.append((names, key))
            return
        for name in dict.fromkeys(names):
            self._named.setdefault(name, []).append(key)


def known_hosts_line(name: str, kind: str, blob: bytes, salt: bytes | None) -> str:
    """Return a line for a host, its name hashed where a salt of 20 bytes is given."""
    hosts = name
    if salt is not None:
        digest = hmac.digest(salt, name.lower().encode(), "sha1")
        hosts = f"{_HASHED}{_text(salt)}|{_text(digest)}"
    return f"{hosts} {kind} {_text(blob)}\n"


def key_blob(kind: str, text: str) -> bytes | None:
    """Return a key's bytes, None where they are not a key of that type."""
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    named = kind.encode(errors="surrogateescape")
    return blob if blob.startswith(len(named).to_bytes(4, "big") + named) else None


def fingerprint(blob: bytes, algorithm: str = "sha256") -> str:
    """Return a key's fingerprint as ssh shows it."""
    if algorithm == "md5":
        return "MD5:" + hashlib.md5(blob, usedforsecurity=False).digest().hex(":")
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def rsa_bits(blob: bytes) -> int | None:
    """Return the length of an RSA key, None for one of another type."""
    fields: list[bytes] = []
    place = 0
    while place < len(blob) and len(fields) < _RSA_FIELDS + 1:
        length = int.from_bytes(blob[place : place + 4], "big")
        fields.append(blob[place + 4 : place + 4 + length])
        place += 4 + length
    if not fields or not fields[0].startswith(b"ssh-rsa"):
        return None
    # The exponent, then the modulus; a certificate has a nonce before them.
    modulus = fields[_RSA_FIELDS if b"-cert-" in fields[0] else _RSA_FIELDS - 1 :][:1]
    return int.from_bytes(b"".join(modulus), "big").bit_length()


def _hash_parts(text: str) -> tuple[bytes, bytes] | None:
    salt, _, digest = text.removeprefix(_HASHED).partition("|")
    try:
        parts = base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    except (binascii.Error, ValueError):
        return None
    return parts if len(parts[0]) == len(parts[1]) == _SALT_BYTES else None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()

"""A key that a host has shown, and what the keys that are known say to it; pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from slurm_adapter.remote.transport.known_hosts import AUTHORITY, REVOKED, fingerprint
from slurm_adapter.remote.transport.ssh_settings import bracketed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.remote.transport.known_hosts import KnownKey
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

_KIND_NAMES = {"ssh-ed25519": "ED25519", "ssh-rsa": "RSA"}
# What means something in a known_hosts file.
_UNFIT = frozenset("@?*#[]|'\"\\")


@dataclass(frozen=True)
class KeyVerdict:
    """What is known of a key that a host has shown."""

    kind: Literal["known", "unknown", "changed", "revoked"]
    line: KnownKey | None = None
    """The line that decided, where one did."""
    authority: bool = False
    """Whether some authority's certificates would be accepted; they cannot be verified here."""


def judge(keys: Sequence[KnownKey], kind: str, blob: bytes) -> KeyVerdict:
    """Compare a key with those that are known under a name, as OpenSSH does.

    Args:
        keys: known under that name.
        kind: the key's type, e.g. `ssh-ed25519`.
        blob: the key as it goes over the wire, type included.
    """
    same = [key for key in keys if key.blob == blob]
    for key in same:
        if key.marker == REVOKED:
            return KeyVerdict("revoked", key)
    for key in same:
        if not key.marker:
            return KeyVerdict("known", key)
    plain = [key for key in keys if not key.marker]
    if plain:
        return KeyVerdict("changed", next((key for key in plain if key.kind == kind), plain[0]))
    return KeyVerdict("unknown", authority=any(key.marker == AUTHORITY for key in keys))


@dataclass(frozen=True)
class ShownKey:
    """A key that a host has shown, and where it was reached."""

    settings: SshSettings
    kind: str
    blob: bytes
    address: str | None
    """None where a jump host or a ProxyCommand leads there."""

    @property
    def words(self) -> str:
        """What is told of it."""
        name = self.settings.host_key_name
        return f"{name} shows {_kind_name(self.kind)} {fingerprint(self.blob)}"

    @property
    def is_local(self) -> bool:
        """Whether it is this very machine."""
        return self.address is not None and ipaddress.ip_address(self.address).is_loopback

    def address_name(self, port: int) -> str | None:
        """Return the name under which it is looked up by its address, None where it is not."""
        if not self.settings.check_host_ip or self.address is None or self.is_local:
            return None
        name = bracketed(self.address, port)
        return None if name == self.settings.hostname else name

    @property
    def can_be_learned(self) -> bool:
        """Whether a file may get a line with it: ssh refuses a new key that none can have."""
        return bool(self.settings.user_known_hosts) and not _UNFIT & {*self.settings.hostname}


def _kind_name(kind: str) -> str:
    return _KIND_NAMES.get(kind, "ECDSA" if kind.startswith("ecdsa-") else kind)

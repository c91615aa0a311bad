"""Which algorithms a connection may use: what the user's ssh would, as far as there is both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import paramiko

from slurm_adapter.remote.transport.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.remote.transport.known_hosts import KnownKey
    from slurm_adapter.remote.transport.ssh_settings import Settings

# What a known key of a type lets the server sign with.
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True)
class Algorithms:
    """Names as in the protocol, each kind in the order in which it is asked for."""

    key_types: tuple[str, ...]
    ciphers: tuple[str, ...]
    macs: tuple[str, ...]
    kex: tuple[str, ...]

    def ask_of(self, transport: paramiko.Transport) -> None:
        """Have a transport that has not started yet ask for these."""
        options = transport.get_security_options()
        options.key_types, options.ciphers = self.key_types, self.ciphers
        options.digests, options.kex = self.macs, self.kex


def choose_algorithms(settings: Settings, known: Sequence[KnownKey]) -> Algorithms:
    """Return what to ask a host for.

    Args:
        settings: of the host; what its config forbids is not asked for.
        known: the keys known for the host.

    Raises:
        ConnectError: the config forbids all that there is of a kind.
    """
    offered = paramiko.Transport
    ciphers = _allowed("Ciphers", offered._preferred_ciphers, settings.ciphers)  # noqa: SLF001
    kex = _allowed("KexAlgorithms", offered._preferred_kex, settings.kex_algorithms)  # noqa: SLF001
    types = offered._preferred_keys  # noqa: SLF001 - no other way to read these
    return Algorithms(
        order_key_types(types, known, settings.host_key_algorithms),
        # Those that need no MAC first: paramiko compares MACs byte by byte, in Python.
        tuple(sorted(ciphers, key=lambda name: "-gcm" not in name)),
        _allowed("MACs", offered._preferred_macs, settings.macs),  # noqa: SLF001
        kex,
    )


def order_key_types(
    offered: Sequence[str], known: Sequence[KnownKey], allowed: Sequence[str]
) -> tuple[str, ...]:
    """Return the signature types to ask the server for, those of known keys first, as ssh does.

    Args:
        offered: what the library can verify, in its order.
        known: the keys known for the host.
        allowed: HostKeyAlgorithms.

    Raises:
        ConnectError: it allows none of those offered.
    """
    kinds = {key.kind for key in known if not key.marker}
    wanted = {signature for kind in kinds for signature in _SIGNATURES.get(kind, (kind,))}
    types = [kind for kind in allowed if kind in offered]
    if not types:
        raise _nothing_left("HostKeyAlgorithms", offered)
    return tuple(sorted(types, key=lambda kind: kind not in wanted))


def _allowed(option: str, offered: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    names = tuple(name for name in offered if name in allowed)
    if not names:
        raise _nothing_left(option, offered)
    return names


def _nothing_left(option: str, offered: Sequence[str]) -> ConnectError:
    return ConnectError(
        f"{option} of the ssh config allows nothing that is available here",
        f"Add one of these to it: {','.join(offered)}",
    )

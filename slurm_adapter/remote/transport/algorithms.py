"""Which algorithms a connection may use: what the user's ssh would, as far as there is both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.remote.transport.connect_error import ConnectError
from slurm_adapter.remote.transport.patterns import matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import paramiko

    from slurm_adapter.remote.transport.known_hosts import KnownKey
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

# What a known key of a type lets the server sign with.
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
_CERTIFIED = "-cert-v01@openssh.com"


def restrict_algorithms(
    options: paramiko.transport.SecurityOptions, settings: SshSettings, known: Sequence[KnownKey]
) -> None:
    """Have a transport that has not started yet ask for nothing but what may be used.

    Args:
        options: what it would ask for.
        settings: of the host; what its config forbids is not asked for.
        known: the keys known for the host.

    Raises:
        ConnectError: the config forbids all that there is of a kind.
    """
    options.key_types = order_key_types(options.key_types, known, settings.host_key_algorithms)
    ciphers = _allowed("Ciphers", options.ciphers, settings.ciphers)
    # Those that need no MAC first: paramiko compares MACs byte by byte, in Python.
    options.ciphers = tuple(sorted(ciphers, key=lambda name: "-gcm" not in name))
    options.digests = _allowed("MACs", options.digests, settings.macs)
    options.kex = _allowed("KexAlgorithms", options.kex, settings.kex_algorithms)


def may_sign(kind: str, settings: SshSettings) -> bool:
    """Say whether a key of the user's of some type may log in."""
    return any(_accepted(name, settings) for name in _signatures(kind))


def forbidden_signatures(settings: SshSettings) -> dict[str, list[str]]:
    """Return what no key of the user's may sign with, as the library takes it."""
    names = [name for name in _SIGNATURES["ssh-rsa"] if not _accepted(name, settings)]
    return {"pubkeys": [name for name in names if not _accepted(name + _CERTIFIED, settings)]}


def _signatures(kind: str) -> list[str]:
    plain = kind.removesuffix(_CERTIFIED)
    return [name + kind[len(plain) :] for name in _SIGNATURES.get(plain, (plain,))]


def _accepted(name: str, settings: SshSettings) -> bool:
    patterns = settings.public_key_algorithms
    return not patterns or any(matches(pattern, name) for pattern in patterns)


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

"""Is this the host it should be? Judge its key as the user's ssh would (SSH-06)."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import threading
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.transport.connect_error import ConnectError, TurnedAwayError
from slurm_adapter.remote.transport.known_hosts import (
    AUTHORITY,
    REVOKED,
    KnownHosts,
    KnownKey,
    known_hosts_line,
)
from slurm_adapter.remote.transport.prompts import NoTerminalError
from slurm_adapter.remote.transport.revoked import RevokedKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurm_adapter.remote.transport.prompts import Terminal
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

_SSH_PORT = 22
_KIND_NAMES = {"ssh-ed25519": "ED25519", "ssh-rsa": "RSA"}


@dataclass(frozen=True)
class KeyVerdict:
    """What the known_hosts files say about a key that a host has shown."""

    kind: Literal["known", "unknown", "changed", "revoked"]
    line: KnownKey | None = None
    """The line that decided, where one did."""
    authority: bool = False
    """Whether some authority's certificates would be accepted; they cannot be verified here."""


def judge(known: KnownHosts, settings: SshSettings, kind: str, blob: bytes) -> KeyVerdict:
    """Compare a key with what is known of the host, as OpenSSH does.

    Args:
        known: the user's and the system's files.
        settings: of the host.
        kind: the key's type, e.g. `ssh-ed25519`.
        blob: the key as it goes over the wire, type included.
    """
    keys = known.keys(settings.host_key_name)
    verdict = _judge(keys, kind, blob)
    if verdict.kind == "unknown" and settings.host_key_alias is None and settings.port != _SSH_PORT:
        # ssh, too, takes a key that is known for the host without a port.
        other = _judge(known.keys(settings.hostname), kind, blob)
        if other.kind in {"known", "revoked"}:
            return other
    return verdict


def _judge(keys: Sequence[KnownKey], kind: str, blob: bytes) -> KeyVerdict:
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


def fingerprint(blob: bytes) -> str:
    """Return a key's fingerprint as ssh shows it."""
    return "SHA256:" + b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


class HostKeys:
    """The known_hosts files of all hosts, each read once, and the user's word on unknown keys."""

    def __init__(self, terminal: Terminal, say: Callable[[str], None]) -> None:
        self._terminal = terminal
        self._say = say
        self._lock = threading.Lock()
        self._read: dict[tuple[Path, ...], KnownHosts] = {}
        self._revoked: dict[Path, RevokedKeys] = {}

    def known(self, settings: SshSettings) -> KnownHosts:
        """Return the content of the files that count for a host."""
        files = (*settings.user_known_hosts, *settings.global_known_hosts)
        with self._lock:
            if files not in self._read:
                self._read[files] = KnownHosts(files)
            return self._read[files]

    def accept(
        self, settings: SshSettings, kind: str, blob: bytes, address: str | None = None
    ) -> bool:
        """Return whether the host may be trusted with a password; its key is accepted.

        False only where StrictHostKeyChecking is off and the key is not the known one.

        Args:
            settings: of the host.
            kind: the key's type.
            blob: the key as it goes over the wire.
            address: of the host where it is connected to directly; None where a jump host or a
                ProxyCommand leads there, whose `localhost` would be another machine.

        Raises:
            ConnectError: the key is not accepted.
        """
        name = settings.host_key_name
        shown = f"{name} shows {_kind_name(kind)} {fingerprint(blob)}"
        for path in settings.revoked_host_keys:
            if self._revoked_keys(path).hold(kind, blob):
                raise _revoked(shown, str(path))
        if (
            settings.trust_loopback
            and settings.host_key_alias is None
            and address is not None
            and ipaddress.ip_address(address).is_loopback
        ):
            return True
        verdict = judge(self.known(settings), settings, kind, blob)
        if verdict.kind == "known":
            return True
        if verdict.kind == "revoked":
            raise _revoked(shown, _place(verdict.line))
        if verdict.kind == "changed":
            if settings.strict != "no":
                raise TurnedAwayError(
                    "the host key has changed",
                    "If that is right, take the old one away with"
                    f" `{_removal(verdict.line, name)}`, connect once with `{_ssh(settings)}`"
                    " and compare; otherwise somebody may be listening in.",
                    detail=f"{shown}, not the one in {_place(verdict.line)}",
                )
            self._say(
                f"{shown}, not the one in {_place(verdict.line)}; StrictHostKeyChecking is off"
            )
            return False
        self._accept_new(settings, verdict, shown)
        self._add(settings, kind, blob)
        return True

    def _revoked_keys(self, path: Path) -> RevokedKeys:
        with self._lock:
            if path not in self._revoked:
                self._revoked[path] = RevokedKeys(path)
            return self._revoked[path]

    def _accept_new(self, settings: SshSettings, verdict: KeyVerdict, shown: str) -> None:
        if settings.strict in {"no", "accept-new"}:
            return
        if settings.strict == "ask" and not settings.batch:
            with contextlib.suppress(NoTerminalError):
                if self._confirmed(settings, shown):
                    return
                raise TurnedAwayError("you did not accept the host key", detail=shown)
        authority = (
            "; its @cert-authority line does not help: certificates cannot be verified here"
            if verdict.authority
            else ""
        )
        raise TurnedAwayError(
            "the host key is not known",
            f"Connect once with `{_ssh(settings)}` and compare the fingerprint, or add it with"
            f" `{_keyscan(settings)}` once you have.",
            detail=f"{shown}{authority}",
        )

    def _confirmed(self, settings: SshSettings, shown: str) -> bool:
        with self._terminal.turn():
            prompt = (
                f"The authenticity of {settings.name} cannot be established:\n{shown}.\n"
                "Continue connecting (yes/no/[fingerprint])? "
            )
            while True:
                answer = self._terminal.ask(prompt, echo=True).strip()
                if answer.lower() in {"yes", "no"}:
                    return answer.lower() == "yes"
                if answer.startswith("SHA256:"):
                    return answer == shown.rpartition(" ")[2]
                prompt = "Please type 'yes', 'no' or the fingerprint: "

    def _add(self, settings: SshSettings, kind: str, blob: bytes) -> None:
        if not settings.user_known_hosts:
            return
        path = settings.user_known_hosts[0]
        name = settings.host_key_name
        line = known_hosts_line(
            name, kind, blob, os.urandom(20) if settings.hash_known_hosts else None
        )
        known = self.known(settings)
        with self._lock:
            known.add(name, KnownKey(kind, blob, "", path, 0))
            try:
                _append(path, line)
            except OSError as error:
                self._say(f"cannot add the host key of {name} to {path}: {error.strerror}")


def _append(path: Path, line: str) -> None:
    if str(path) == os.devnull:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            line = line if file.read(1) == b"\n" else f"\n{line}"
        file.write(line.encode(errors="surrogateescape"))


def _kind_name(kind: str) -> str:
    return _KIND_NAMES.get(kind, "ECDSA" if kind.startswith("ecdsa-") else kind)


def _revoked(shown: str, place: str) -> ConnectError:
    return TurnedAwayError(
        "the host key is revoked",
        "Do not connect to it: ask whoever runs that machine.",
        detail=f"{shown}, see {place}",
    )


def _place(line: KnownKey | None) -> str:
    return f"{line.path}:{line.line}" if line is not None else "known_hosts"


def _ssh(settings: SshSettings) -> str:
    port = ["-p", str(settings.port)] if settings.port != _SSH_PORT else []
    return shell_words(["ssh", *port, settings.name])


def _keyscan(settings: SshSettings) -> str:
    port = ["-p", str(settings.port)] if settings.port != _SSH_PORT else []
    words = shell_words(["ssh-keyscan", *port, settings.hostname])
    file = str(settings.user_known_hosts[0]) if settings.user_known_hosts else "~/.ssh/known_hosts"
    return f"{words} >> {shell_words([file])}"


def _removal(line: KnownKey | None, name: str) -> str:
    file = ["-f", str(line.path)] if line is not None else []
    return shell_words(["ssh-keygen", *file, "-R", name])

"""Is this the host it should be? Judge its key as the user's ssh would (SSH-06)."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.transport.connect_error import ConnectError, TurnedAwayError
from slurm_adapter.remote.transport.known_hosts import (
    KnownHosts,
    KnownKey,
    fingerprint,
    known_hosts_line,
    rsa_bits,
)
from slurm_adapter.remote.transport.known_hosts_command import BY_COMMAND, keys_by_command
from slurm_adapter.remote.transport.prompts import NoTerminalError
from slurm_adapter.remote.transport.revoked import RevokedKeys
from slurm_adapter.remote.transport.shown_key import ShownKey, judge
from slurm_adapter.remote.transport.ssh_settings import bracketed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_adapter.remote.transport.known_hosts_command import Why
    from slurm_adapter.remote.transport.prompts import Terminal
    from slurm_adapter.remote.transport.shown_key import KeyVerdict
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

_SSH_PORT = 22


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

    def known_types(self, settings: SshSettings) -> tuple[KnownKey, ...]:
        """Return the keys known for a host, by whose types a server is asked for one of its."""
        return self._keys(settings, settings.host_key_name, "ORDER", None)

    def _keys(
        self, settings: SshSettings, name: str, why: Why, shown: ShownKey | None
    ) -> tuple[KnownKey, ...]:
        """Return what files, and a command, know under a name."""
        key = None if shown is None else (shown.kind, shown.blob)
        by_command = keys_by_command(settings, why, name, key, self._say)
        return (*self.known(settings).keys(name), *by_command)

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
        shown = ShownKey(settings, kind, blob, address)
        bits = rsa_bits(blob)
        if bits is not None and bits < settings.least_rsa_bits:
            raise _too_short(shown, bits)
        for path in settings.revoked_host_keys:
            if self._revoked_keys(path).hold(kind, blob):
                raise _revoked(shown, str(path))
        if settings.trust_loopback and settings.host_key_alias is None and shown.is_local:
            return True
        verdict = judge(self._keys(settings, settings.host_key_name, "HOSTNAME", shown), kind, blob)
        if verdict.kind == "revoked":
            raise _revoked(shown, _place(verdict.line))
        if verdict.kind == "changed":
            return self._accept_changed(shown, verdict)
        by_address = self._by_address(shown)
        if verdict.kind == "unknown" and not self._known_without_port(shown):
            self._accept_new(shown, verdict)
            self._add(shown, settings.host_key_name, by_address)
        elif verdict.line is not None and not _is_command(verdict.line):
            self._add(shown, None, by_address)
        self._check_address(shown, by_address)
        return True

    def _by_address(self, shown: ShownKey) -> KeyVerdict | None:
        """Return what is known of the host's address (CheckHostIP); None where it is not asked."""
        name = shown.address_name(shown.settings.port)
        if name is None:
            return None
        return judge(self._keys(shown.settings, name, "ADDRESS", shown), shown.kind, shown.blob)

    def _known_without_port(self, shown: ShownKey) -> bool:
        """Say whether a key is known for the host without a port: ssh, too, takes that one."""
        settings = shown.settings
        if settings.host_key_alias is not None or settings.port == _SSH_PORT:
            return False
        known = self.known(settings)
        verdict = judge(known.keys(settings.hostname), shown.kind, shown.blob)
        if verdict.kind == "revoked":
            raise _revoked(shown, _place(verdict.line))
        if verdict.kind != "known":
            return False
        address = shown.address_name(_SSH_PORT)
        if address is not None:
            self._check_address(shown, judge(known.keys(address), shown.kind, shown.blob))
        return True

    def _check_address(self, shown: ShownKey, by_address: KeyVerdict | None) -> None:
        """Refuse a key that is not the one known for the host's address."""
        if by_address is None or by_address.kind not in {"changed", "revoked"}:
            return
        if by_address.kind == "revoked":
            raise _revoked(shown, _place(by_address.line))
        strict = shown.settings.strict
        told = f"{shown.words}, not the one for {shown.address} in {_place(by_address.line)}"
        if strict == "no":
            self._say(f"{told}; StrictHostKeyChecking is off")
            return
        if strict == "ask" and self._confirmed(shown, f"{told}.\n"):
            return
        raise TurnedAwayError(
            "the host key is not the one of its address (CheckHostIP)",
            "If that is right, take the address's old key away with"
            f" `{_removal(by_address.line, bracketed(shown.address or '', shown.settings.port))}`;"
            " otherwise somebody may be listening in.",
            detail=told,
        )

    def _accept_changed(self, shown: ShownKey, verdict: KeyVerdict) -> bool:
        told = f"{shown.words}, not the one in {_place(verdict.line)}"
        if shown.settings.strict != "no":
            raise TurnedAwayError(
                "the host key has changed",
                "If that is right, take the old one away with"
                f" `{_removal(verdict.line, shown.settings.host_key_name)}`, connect once with"
                f" `{_ssh(shown.settings)}` and compare; otherwise somebody may be listening in.",
                detail=told,
            )
        self._say(f"{told}; StrictHostKeyChecking is off")
        return False

    def _revoked_keys(self, path: Path) -> RevokedKeys:
        with self._lock:
            if path not in self._revoked:
                self._revoked[path] = RevokedKeys(path)
            return self._revoked[path]

    def _accept_new(self, shown: ShownKey, verdict: KeyVerdict) -> None:
        settings = shown.settings
        if shown.can_be_learned:
            if settings.strict in {"no", "accept-new"}:
                return
            if settings.strict == "ask":
                question = (
                    f"The authenticity of {settings.name} cannot be established:\n{shown.words}.\n"
                )
                if self._confirmed(shown, question):
                    return
        why = "" if shown.can_be_learned else "; no known_hosts file can have it"
        if verdict.authority:
            why += "; its @cert-authority line does not help: certificates cannot be verified here"
        raise TurnedAwayError(
            "the host key is not known",
            f"Connect once with `{_ssh(settings)}` and compare the fingerprint, or add it with"
            f" `{_keyscan(settings)}` once you have.",
            detail=f"{shown.words}{why}",
        )

    def _confirmed(self, shown: ShownKey, question: str) -> bool:
        """Ask; false where nobody can be asked.

        Raises:
            ConnectError: the answer was no.
        """
        if shown.settings.batch:
            return False
        try:
            with self._terminal.turn():
                if self._answer_is_yes(shown, question):
                    return True
        except NoTerminalError:
            return False
        raise TurnedAwayError("you did not accept the host key", detail=shown.words)

    def _answer_is_yes(self, shown: ShownKey, question: str) -> bool:
        prompt = f"{question}Continue connecting (yes/no/[fingerprint])? "
        while True:
            answer = self._terminal.ask(prompt, echo=True).strip()
            if answer.lower() in {"yes", "no"}:
                return answer.lower() == "yes"
            if answer.startswith("SHA256:"):
                return answer == fingerprint(shown.blob)
            prompt = "Please type 'yes', 'no' or the fingerprint: "

    def _add(self, shown: ShownKey, name: str | None, by_address: KeyVerdict | None) -> None:
        """Learn a key under a name, and under the address where nothing is known of that."""
        names = [] if name is None else [name]
        address = shown.address_name(shown.settings.port)
        if address is not None and by_address is not None and by_address.kind == "unknown":
            names.append(address)
        if not names or not shown.can_be_learned:
            return
        path = shown.settings.user_known_hosts[0]
        hashed = shown.settings.hash_known_hosts
        known = self.known(shown.settings)
        with self._lock:
            for one in names:
                known.add(one, KnownKey(shown.kind, shown.blob, "", path, 0))
            try:
                for one in names if hashed else [",".join(names)]:
                    salt = os.urandom(20) if hashed else None
                    _append(path, known_hosts_line(one, shown.kind, shown.blob, salt))
            except OSError as error:
                self._say(f"cannot add the host key of {names[0]} to {path}: {error.strerror}")


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


def _revoked(shown: ShownKey, place: str) -> ConnectError:
    return TurnedAwayError(
        "the host key is revoked",
        "Do not connect to it: ask whoever runs that machine.",
        detail=f"{shown.words}, see {place}",
    )


def _too_short(shown: ShownKey, bits: int) -> ConnectError:
    return TurnedAwayError(
        f"the host key is too short: {bits} bits",
        "Have that machine get a longer one (ssh-keygen -A), or show another type"
        " (HostKeyAlgorithms).",
        detail=f"{shown.words}; RequiredRSASize is {shown.settings.least_rsa_bits}",
    )


def _is_command(line: KnownKey) -> bool:
    """Say whether it is none of a file's."""
    return str(line.path).startswith(BY_COMMAND)


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

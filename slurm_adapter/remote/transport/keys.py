"""The user's keys, loaded once for all hosts: in the agent, and in identity files."""

from __future__ import annotations

import base64
import copy
import os
import stat
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko

from slurm_adapter.remote.transport.algorithms import may_sign
from slurm_adapter.remote.transport.known_hosts import fingerprint, rsa_bits
from slurm_adapter.remote.transport.paramiko_hooks import SshAgent
from slurm_adapter.remote.transport.prompts import NoTerminalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_adapter.remote.transport.prompts import Terminal
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

_CERTIFICATE = "-cert.pub"
_OTHERS = 0o077
_NEW_FORMAT = b"openssh-key-v1\0"


@dataclass(frozen=True)
class Identity:
    """A key that can be tried, and what to call it in a message."""

    key: paramiko.PKey
    label: str


class KeyRing:
    """Keys by where they come from; asked by several threads at once."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._lock = threading.RLock()
        self._files: dict[Path, paramiko.PKey | str] = {}
        self._agents: list[SshAgent] = []
        self._held: dict[str, tuple[Identity, ...]] = {}

    def identities(self, settings: SshSettings, problems: list[str]) -> Iterator[Identity]:
        """Yield the keys to try for a host in ssh's order; files are opened as they come up.

        Those that its config forbids are left out.

        Agent keys that an identity file names come first, then the agent's others (unless
        IdentitiesOnly), then the files' own.

        Args:
            settings: of the host.
            problems: gets a line for each that cannot be used.
        """
        for identity in self._all(settings, problems):
            why_not = _forbidden(identity.key, settings)
            if why_not:
                problems.append(f"{identity.label} {why_not}")
            else:
                yield identity

    def _all(self, settings: SshSettings, problems: list[str]) -> Iterator[Identity]:
        held = self._held_by(settings.identity_agent)
        files = [path for path in settings.identity_files if _exists(path)]
        public = {path: _public_blob(path) for path in files} if held else {}
        by_blob = {identity.key.asbytes(): identity for identity in held}
        named = [by_blob[blob] for blob in public.values() if blob in by_blob]
        yield from named
        if not settings.identities_only:
            yield from (identity for identity in held if identity not in named)
        for path in files:
            if public.get(path) in by_blob:
                continue
            key = self._load(path, settings)
            if isinstance(key, str):
                problems.append(key)
                continue
            yield from _with_certificates(key, path, settings.certificate_files)

    def close(self) -> None:
        """Let go of the agents; keys in files stay usable."""
        with self._lock:
            while self._agents:
                self._agents.pop().close()
            self._held.clear()

    def _held_by(self, agent: str | None) -> tuple[Identity, ...]:
        if agent is None:
            return ()
        with self._lock:
            if agent not in self._held:
                self._held[agent] = self._ask_agent(agent)
            return self._held[agent]

    def _ask_agent(self, path: str) -> tuple[Identity, ...]:
        try:
            agent = SshAgent(path)
        except (OSError, paramiko.SSHException):
            return ()  # ssh goes on without it, too
        self._agents.append(agent)
        return tuple(
            Identity(key, f"{key.comment or key.get_name()} (agent, {fingerprint(key.asbytes())})")
            for key in agent.get_keys()
        )

    def _load(self, path: Path, settings: SshSettings) -> paramiko.PKey | str:
        """Return the key in a file, or why there is none to be had."""
        with self._lock:
            if path not in self._files:
                self._files[path] = self._open(path, settings)
            return self._files[path]

    def _open(self, path: Path, settings: SshSettings) -> paramiko.PKey | str:
        try:
            found = path.stat()
            if found.st_uid == os.getuid() and found.st_mode & _OTHERS:
                mode = stat.S_IMODE(found.st_mode)
                return f"{path} is open to others (mode {mode:03o}): chmod 600 it"
            return paramiko.PKey.from_path(path)
        except (TypeError, paramiko.PasswordRequiredException):
            return self._unlock(path, settings)
        except (OSError, ValueError, paramiko.SSHException, paramiko.UnknownKeyType) as error:
            return _unusable(path, error)

    def _unlock(self, path: Path, settings: SshSettings) -> paramiko.PKey | str:
        if settings.batch:
            return f"{path} is encrypted, and BatchMode forbids to ask (use ssh-add)"
        try:
            with self._terminal.turn():
                for _ in range(max(1, settings.password_prompts)):
                    word = self._terminal.ask(f"Passphrase for {path}: ", echo=False)
                    try:
                        return paramiko.PKey.from_path(path, word.encode())
                    except (ValueError, TypeError, paramiko.SSHException):
                        continue  # a wrong one
        except NoTerminalError:
            return f"{path} is encrypted, and there is no terminal to ask at (use ssh-add)"
        return f"{path} is encrypted, and no passphrase given opened it"


def _forbidden(key: paramiko.PKey, settings: SshSettings) -> str:
    """Return why the ssh config does not let a key be used, empty where it does."""
    bits = rsa_bits(key.asbytes())
    if bits is not None and bits < settings.least_rsa_bits:
        return f"has {bits} bits, and RequiredRSASize is {settings.least_rsa_bits}"
    kind = key.get_name() if key.public_blob is None else key.public_blob.key_type
    if not may_sign(kind, settings):
        return f"is {kind}, which PubkeyAcceptedAlgorithms does not have"
    return ""


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _public_blob(path: Path) -> bytes | None:
    """Return the public half of a key file without opening the private one, None if hidden."""
    try:
        text = Path(f"{path}.pub").read_text(errors="replace")
        return base64.b64decode(text.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        lines = path.read_bytes().split(b"\n")
        data = base64.b64decode(b"".join(line for line in lines if not line.startswith(b"-")))
        return _public_part(data) if data.startswith(_NEW_FORMAT) else None
    except (OSError, ValueError, struct.error):
        return None


def _public_part(data: bytes) -> bytes:
    """Read over cipher, its parameters and the count of keys: the public key is in the clear."""
    place = len(_NEW_FORMAT)
    for _ in range(3):
        place += 4 + struct.unpack_from(">I", data, place)[0]
    (length,) = struct.unpack_from(">I", data, place + 4)
    return data[place + 8 : place + 8 + length]


def _with_certificates(
    key: paramiko.PKey, path: Path, certificates: tuple[Path, ...]
) -> Iterator[Identity]:
    bare = copy.copy(key)
    bare.public_blob = None
    for certificate in (Path(f"{path}{_CERTIFICATE}"), *certificates):
        certified = copy.copy(bare)
        try:
            certified.load_certificate(str(certificate))
        except (OSError, ValueError, paramiko.SSHException):
            continue
        # A certificate carries the public key it was made for.
        if bare.asbytes()[-32:] in certified.public_blob.key_blob:
            yield Identity(certified, str(certificate))
    yield Identity(bare, str(path))


def _unusable(path: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{path} cannot be read: {error.strerror}"
    return f"{path} cannot be used here (add it to ssh-agent with ssh-add)"

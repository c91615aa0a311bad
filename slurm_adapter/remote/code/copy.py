"""One host's copy of the code, step by step: `sync` takes all hosts through the steps."""

from __future__ import annotations

import hashlib
import os
import posixpath
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError, printable
from slurm_adapter.node.agent.code_copy import END
from slurm_adapter.node.agent.copy_lock import STATE
from slurm_adapter.remote.code import rsync
from slurm_adapter.remote.code.files import amount
from slurm_adapter.remote.code.receiver import Receiver
from slurm_adapter.remote.conversation import ToldError, request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from slurm_adapter.remote.code.files import Code, Entry
    from slurm_adapter.remote.transport.port import Connection

_CHUNK = 1 << 18
_NAMED = 3
_SEEN_LATER_S = 75.0  # network file systems show what others did after a minute at the latest
_AGAIN_S = 0.5


@dataclass(frozen=True)
class Target:
    """A host that is to have the code."""

    connection: Connection
    python: str = "python3"
    """The interpreter there: a path, or a name in its PATH."""

    @property
    def name(self) -> str:
        """The host's name."""
        return self.connection.node.name


@dataclass(frozen=True)
class HostCopy:
    """What it took to have the code on one host."""

    host: str
    changed: int = 0
    """Files whose contents were sent."""
    removed: int = 0
    """Files and directories of an earlier copy that went."""
    sent: int = 0
    """Bytes sent, everything included."""
    seconds: float = 0.0
    same_as: str | None = None
    """The host whose copy this one sees as well: it was sent none of its own."""
    version: str = ""
    """What stands for the copy as it is now: by it a host knows whether it was changed since."""

    def line(self) -> str:
        """Return this as a line for people."""
        if self.same_as is not None:
            return f"{self.host}: has the directory of {self.same_as}"
        removed = f", {self.removed:,} removed" if self.removed else ""
        sent = f"{self.changed:,} changed{removed}, {amount(self.sent)} sent"
        return f"{self.host}: {sent}, {self.seconds:.1f} s"


@dataclass(frozen=True)
class Settings:
    """What all hosts have in common."""

    destination: str
    """The copy's directory."""
    delta_from: int
    """Bytes; of larger files that a host has in another version rsync sends the differences."""
    patience_s: float
    """How long a host may say nothing before it counts as hanging."""
    seeded: bool = False
    """Whether a new copy begins with an earlier one beside it: see `node.seed`."""


@dataclass(frozen=True)
class Findings:
    """What of the code a host has, files by their numbers."""

    same: list[int]
    """Right, but for the time."""
    missing: list[int]
    older: list[int]
    """There in another version."""
    others: int
    """How many directories and links are not there."""

    @property
    def changed(self) -> bool:
        """Whether the copy has to be changed."""
        return bool(self.missing or self.older or self.others)

    @property
    def wrong(self) -> list[int]:
        """Whose contents it lacks."""
        return sorted({*self.missing, *self.older})


class Source:
    """The code as it is sent; read by several threads."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self._digests: dict[int, str] = {}

    @cached_property
    def comparison(self) -> bytes:
        """The request that tells a host everything that is to be there; the same for all."""
        return request("compare", entries=[_on_the_wire(entry) for entry in self.code.entries])

    def judge(self, answer: dict[str, Any]) -> Findings:
        """Return what an answer to the comparison comes to."""
        doubtful: list[tuple[int, str]] = answer["doubtful"]
        same = [number for number, digest in doubtful if self._digest(number) == digest]
        older = [*answer["older"], *(number for number, _ in doubtful if number not in set(same))]
        return Findings(same, sorted(answer["missing"]), sorted(older), answer["others"])

    def contents(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Yield files as the receiving end reads them, in pieces that are worth a packet.

        Raises:
            BadValueError: a file cannot be read, or is not what it was when the code was found:
                hosts would get different ones.
        """
        packed = bytearray()
        for number in numbers:
            packed += number.to_bytes(4, "big")
            for chunk in self._read(number):
                packed += len(chunk).to_bytes(4, "big") + chunk
                if len(packed) >= _CHUNK:
                    yield bytes(packed)
                    packed.clear()
            packed += bytes(4)
        yield bytes(packed) + END.to_bytes(4, "big")

    def _digest(self, number: int) -> str:
        if number not in self._digests:
            digest = hashlib.sha256()
            for chunk in self._read(number):
                digest.update(chunk)
            self._digests[number] = digest.hexdigest()
        return self._digests[number]

    def _read(self, number: int) -> Iterator[bytes]:
        entry = self.code.entries[number]
        path = self.code.source(entry)
        try:
            with open(path, "rb", buffering=0) as file:  # unbuffered
                while chunk := file.read(_CHUNK):
                    yield chunk
                facts = os.fstat(file.fileno())
        except OSError as error:
            raise BadValueError(f"{path} cannot be read: {error.strerror}") from error
        if (facts.st_size, facts.st_mtime_ns) != (entry.size, entry.modified_ns):
            raise BadValueError(f"{path} was changed while it was being copied", "Try again.")


class HostCopying:
    """One host on its way to a copy. Steps raise `ToldError`, or what a connection raises."""

    def __init__(self, target: Target, source: Source, settings: Settings) -> None:
        self.target = target
        self.same_as: HostCopying | None = None
        self.seen: list[int] = []
        """Numbers of the hosts that see the same directory, its own included."""
        self.nowhere: list[str] = []
        """Links of the code that lead nowhere on this host."""
        self.done = HostCopy(target.name)
        self._source = source
        self._settings = settings
        self._cancelled = False
        self._has_rsync = False
        self._receiver: Receiver | None = None

    @property
    def receiver(self) -> Receiver:
        """Its receiving end."""
        if self._receiver is None:
            raise ToldError("its receiving end did not start")
        return self._receiver

    def begin(self) -> None:
        """Start the receiving end."""
        settings, target = self._settings, self.target
        self._receiver = Receiver(
            target.connection, target.python, settings.destination, settings.patience_s
        )
        self._receiver.start()
        self._has_rsync = self._receiver.ask("begin")["rsync"]

    def look(self, everyone: Sequence[HostCopying]) -> None:
        """Find out which hosts share its directory."""
        tokens = [host.receiver.token for host in everyone]
        self.seen = self.receiver.ask("look", tokens=tokens)["seen"]

    def copy(self) -> None:
        """Bring the copy up to date."""
        started = time.monotonic()
        receiver = self.receiver
        receiver.ask("claim")
        if self._settings.seeded:
            receiver.ask("seed")
        found = self._compare()
        changed = len(found.wrong)
        removed = receiver.ask("prepare", changed=found.changed)["removed"]
        deltas = self._send_deltas(found)
        if deltas:
            found = self._compare()  # whatever rsync says: what it left undone is sent now
        if found.wrong:
            receiver.fill(self._source.contents(found.wrong))
        finished = receiver.ask("finish", same=found.same)
        self.nowhere = finished["nowhere"]
        took, sent = time.monotonic() - started, receiver.sent + deltas
        version = finished["version"]
        self.done = HostCopy(self.target.name, changed, removed, sent, took, version=version)

    def check(self) -> None:
        """Wait until the copy that another host got is seen here whole."""
        started = time.monotonic()
        deadline = started + _SEEN_LATER_S
        other, version = None, ""
        if self.same_as is not None:
            other, version = self.same_as.target.name, self.same_as.done.version
        while True:
            found = self._compare()
            if not found.changed:
                break
            if time.monotonic() > deadline:
                entries = self._source.code.entries
                named = ", ".join(
                    printable(entries[number].path) for number in found.wrong[:_NAMED]
                )
                raise ToldError(f"does not see what {other} got into the same directory: {named}")
            time.sleep(_AGAIN_S)
        took = time.monotonic() - started
        self.done = HostCopy(self.target.name, 0, 0, self.receiver.sent, took, other, version)

    def _compare(self) -> Findings:
        self.receiver.write(self._source.comparison)
        return self._source.judge(self.receiver.answer())

    def _send_deltas(self, found: Findings) -> int:
        """Let rsync bring large files up to date; return the bytes sent."""
        code, settings = self._source.code, self._settings
        entries = [code.entries[number] for number in found.older]
        large = [entry.path for entry in entries if entry.size >= settings.delta_from]
        if not large or not self._has_rsync or not rsync.installed():
            return 0
        return rsync.rsync(
            self.target.connection,
            code.folder,
            large,
            settings.destination,
            f"{posixpath.dirname(settings.destination)}/{STATE}",
            patience_s=settings.patience_s,
            wanted=lambda: not self._cancelled,
        )

    def cancel(self) -> None:
        """Have a step that is being taken fail soon."""
        self._cancelled = True
        if self._receiver:
            self._receiver.cancel()

    def close(self) -> None:
        """Let the receiving end go."""
        if self._receiver:
            self._receiver.close()


def _on_the_wire(entry: Entry) -> list[object]:
    texts = (
        os.fsencode(text).decode("utf-8", "surrogateescape") for text in (entry.path, entry.target)
    )
    return [entry.kind, entry.mode, entry.size, entry.modified_ns, *texts]

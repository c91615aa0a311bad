"""One host's copy of the code, step by step: `sync` takes all hosts through the steps."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import uuid4

from slurm_adapter.errors import BadValueError, printable
from slurm_adapter.node.protocol.copy_messages import (
    ArrangeCopy,
    Arranged,
    BeginCopy,
    ClaimCopy,
    CloseCopy,
    Compare,
    Differences,
    FillFiles,
    FindSigns,
    FinishCopy,
    Finished,
    Signs,
    pack_entries,
)
from slurm_adapter.node.protocol.messages import Data, RequestDone
from slurm_adapter.remote.code.files import amount
from slurm_adapter.remote.requests import NoReplyError, RequestError, Requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurm_adapter.node.protocol.messages import Request
    from slurm_adapter.remote.agent import Agent
    from slurm_adapter.remote.code.files import Code

_CHUNK = 1 << 18
_NAMED = 3
_SEEN_LATER_S = 75.0  # network file systems show what others did after a minute at the latest
_AGAIN_S = 0.5


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
class CopySettings:
    """What all hosts have in common."""

    destination: str
    """The copy's directory."""
    patience_s: float
    """How long a host may say nothing before it counts as hanging."""
    with_basis: bool = False
    """Whether a new copy begins with an earlier one beside it: see `node.agent.basis`."""


@dataclass(frozen=True)
class Findings:
    """What of the code a host has, files by their numbers."""

    same: tuple[int, ...]
    """Right, but for the time."""
    wrong: list[int]
    """Whose contents it lacks, or has in another version."""
    others: int
    """How many directories and links are not there."""

    @property
    def changed(self) -> bool:
        """Whether the copy has to be changed."""
        return bool(self.wrong or self.others)


class Source:
    """The code as it is sent; read by several threads."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self._digests: dict[int, str] = {}

    @cached_property
    def comparison(self) -> Compare:
        """The request that tells a host everything that is to be there; the same for all."""
        return Compare(
            pack_entries(
                (
                    entry.kind,
                    entry.mode,
                    entry.size,
                    entry.modified_ns,
                    os.fsencode(entry.path),
                    os.fsencode(entry.target),
                )
                for entry in self.code.entries
            )
        )

    def judge(self, answer: Differences) -> Findings:
        """Return what an answer to the comparison comes to."""
        numbers = [*answer.missing, *answer.older, *(number for number, _ in answer.doubtful)]
        if not set(numbers) <= self._files:
            raise NoReplyError("what it sends makes no sense")
        same = {number for number, digest in answer.doubtful if self._digest(number) == digest}
        older = {*answer.older, *(number for number, _ in answer.doubtful)} - same
        wrong = sorted({*answer.missing, *older})
        return Findings(tuple(sorted(same)), wrong, answer.others)

    @cached_property
    def _files(self) -> frozenset[int]:
        """The numbers of the files among the entries."""
        entries = enumerate(self.code.entries)
        return frozenset(number for number, entry in entries if entry.kind == "file")

    def contents(self, numbers: Sequence[int]) -> Iterator[Request]:
        """Yield what has files written, with all that is in them.

        Raises:
            BadValueError: a file cannot be read, or is not what it was when the code was found:
                hosts would get different ones.
        """
        yield FillFiles(tuple(numbers))
        for number in numbers:
            for chunk in self._read(number):
                yield Data(number, chunk)
            yield Data(number, b"")

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
    """One host on its way to a copy. Steps raise `RequestError`, or what a connection raises."""

    def __init__(self, agent: Agent, source: Source, settings: CopySettings) -> None:
        self.name = agent.name
        self.token = uuid4().hex
        """What its sign is called by."""
        self.same_as: HostCopying | None = None
        self.seen: tuple[int, ...] = ()
        """Numbers of the hosts that see the same directory, its own included."""
        self.nowhere: tuple[str, ...] = ()
        """Links of the code that lead nowhere on this host."""
        self.done = HostCopy(self.name)
        self._agent = agent
        self._source = source
        self._settings = settings
        self._requests = Requests(agent, settings.patience_s)

    def begin(self) -> None:
        """Make what the copy lies in, and leave a sign there."""
        folder = os.fsencode(self._settings.destination)
        self._requests.ask(BeginCopy(folder, self.token), RequestDone)

    def look(self, everyone: Sequence[HostCopying]) -> None:
        """Find out which hosts share its directory."""
        signs = self._requests.ask(FindSigns(tuple(host.token for host in everyone)), Signs)
        if not set(signs.seen) <= set(range(len(everyone))):
            raise NoReplyError("what it sends makes no sense")
        self.seen = signs.seen

    def copy(self) -> None:
        """Bring the copy up to date."""
        started, sent = time.monotonic(), self._agent.sent
        ask = self._requests.ask
        ask(ClaimCopy(self._settings.with_basis), RequestDone)
        found = self._compare()
        removed = ask(ArrangeCopy(found.changed), Arranged).removed
        if found.wrong:
            self._requests.send_all(self._source.contents(found.wrong))
            self._requests.take(RequestDone)
        finished = ask(FinishCopy(found.same), Finished)
        self.nowhere = finished.nowhere
        self.done = HostCopy(
            self.name,
            len(found.wrong),
            removed,
            self._agent.sent - sent,
            time.monotonic() - started,
            version=finished.version,
        )

    def check(self) -> None:
        """Wait until the copy that another host got is seen here whole."""
        started, sent = time.monotonic(), self._agent.sent
        deadline = started + _SEEN_LATER_S
        other, version = None, ""
        if self.same_as is not None:
            other, version = self.same_as.name, self.same_as.done.version
        while True:
            found = self._compare()
            if not found.changed:
                break
            if time.monotonic() > deadline:
                entries = self._source.code.entries
                named = ", ".join(
                    printable(entries[number].path) for number in found.wrong[:_NAMED]
                )
                reason = f"does not see what {other} got into the same directory: {named}"
                raise RequestError(reason)
            time.sleep(_AGAIN_S)
        seconds = time.monotonic() - started
        self.done = HostCopy(self.name, 0, 0, self._agent.sent - sent, seconds, other, version)

    def _compare(self) -> Findings:
        return self._source.judge(self._requests.ask(self._source.comparison, Differences))

    def cancel(self) -> None:
        """Have a step that is being taken fail soon."""
        self._requests.cancel()

    def close(self) -> None:
        """Have the host let go of the copy, as soon as it gets to that."""
        self._agent.send(CloseCopy())

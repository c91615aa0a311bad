"""A copy of the code on a host, step by step: what the head asks, and what its agent answers.

Files, directories and links are known by their numbers: their places in the list of `Compare`.
"""

from __future__ import annotations

import marshal
import zlib

from slurm_adapter.node.protocol.messages import AgentMessage, Request
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    PackedEntry = tuple[str, int, int, int, bytes, bytes]
    """Kind (`file`, `folder`, `link`), permissions, size, time of the last change in ns, path in
    the copy, and where a link leads."""


class CopyRequest(Request):
    """A step of it; `Refused` is an answer to each."""


@record
class BeginCopy(CopyRequest):
    """Take a directory for the copy, and leave a sign there; answered by `RequestDone`."""

    folder: bytes
    """Absolute."""
    token: str
    """What the sign is called by; no other host's is the same."""


@record
class FindSigns(CopyRequest):
    """Look for the signs of all hosts; answered by `Signs`."""

    tokens: tuple[str, ...]


@record
class ClaimCopy(CopyRequest):
    """Take the directory for this sync alone; answered by `RequestDone`."""

    with_basis: bool
    """Whether a new copy is to begin with an earlier one beside it."""


@record
class Compare(CopyRequest):
    """Say what is not as it is to be; answered by `Differences`."""

    listing: bytes
    """What `pack_entries` has made of all that is to be there."""


@record
class ArrangeCopy(CopyRequest):
    """Take away what is no longer wanted, make directories and links; answered by `Arranged`."""

    changed: bool
    """Whether anything was found to be missing or another."""


@record
class FillFiles(CopyRequest):
    """Write files whose contents follow as `Data`; answered by `RequestDone`."""

    numbers: tuple[int, ...]
    """In the order in which they come."""


@record
class FinishCopy(CopyRequest):
    """Give the right times and permissions; answered by `Finished`."""

    same: tuple[int, ...]
    """Files that turned out to be right but for the time."""


@record
class CloseCopy(CopyRequest):
    """Leave nothing behind but the copy; not answered."""


@record
class Signs(AgentMessage):
    """Which of the tokens' signs stand in this host's directory, by their places."""

    seen: tuple[int, ...]


@record
class Differences(AgentMessage):
    """What of the code this host has not, or not so."""

    missing: tuple[int, ...]
    older: tuple[int, ...]
    """Of another size."""
    doubtful: tuple[tuple[int, str], ...]
    """Of the right size and another time: with the SHA-256 of what is there."""
    others: int
    """How many directories and links are not there."""


@record
class Arranged(AgentMessage):
    """How many files and directories of an earlier copy went."""

    removed: int


@record
class Finished(AgentMessage):
    """The copy is as it is to be."""

    nowhere: tuple[str, ...]
    """Links that lead nowhere on this host."""
    version: str
    """What stands for the copy as it is now: by it a host knows whether it was changed since."""


def pack_entries(entries: Iterable[PackedEntry]) -> bytes:
    """Return all that is to be there as bytes: there may be 100,000 of them."""
    return zlib.compress(marshal.dumps(list(entries)), 1)


def unpack_entries(listing: bytes) -> list[PackedEntry]:
    """Return what was packed, which has come from the head."""
    entries: list[PackedEntry] = marshal.loads(zlib.decompress(listing))  # noqa: S302
    return entries

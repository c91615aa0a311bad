"""A login node's part in submitting jobs: what the head asks there, and what its agent answers."""

from __future__ import annotations

from slurm_adapter.node.protocol.messages import AgentMessage, Request
from slurm_adapter.record import record


class LoginRequest(Request):
    """One of them; `Refused` is an answer to each."""


@record
class OpenLogin(LoginRequest):
    """The first: find the environment that has Slurm's commands; answered by `LoginOpened`."""


@record
class FindProgram(LoginRequest):
    """Answered by `Found`."""

    program: str


@record
class RunProgram(LoginRequest):
    """Run a program to its end; answered by `Data` (0: its output, 1: errors), then `Ran`."""

    words: tuple[bytes, ...]
    more: dict[str, bytes]
    """Variables on top of those that are set there."""
    without: tuple[str, ...]
    """Variables that it is not to inherit."""
    data: bytes | None
    """Its input."""
    limit_s: float | None
    """After so long it is killed."""


@record
class MakeFolder(LoginRequest):
    """With those above it, for their owner only; answered by `RequestDone`."""

    path: bytes


@record
class WriteFile(LoginRequest):
    """For its owner only, at one stroke; answered by `RequestDone`."""

    path: bytes
    data: bytes


@record
class ReadFiles(LoginRequest):
    """Answered by `Data` for each of them that has something new, then `FilesRead`."""

    places: tuple[tuple[bytes, int], ...]
    """Paths, and the offsets from which on."""


@record
class FindPath(LoginRequest):
    """Answered by `Found`."""

    path: bytes


@record
class RemoveFolder(LoginRequest):
    """With all that is in it, as far as that can be; answered by `RequestDone`."""

    path: bytes


@record
class LoginOpened(AgentMessage):
    """Where one is there."""

    home: str
    python: str
    """The interpreter that the agent runs in."""


@record
class Found(AgentMessage):
    """Whether it is there."""

    found: bool


@record
class Ran(AgentMessage):
    """A program has ended, or did not begin."""

    how: str
    """`ended`; `missing`: there is none; `late`: it took too long, and was killed."""
    status: int


@record
class FilesRead(AgentMessage):
    """What was read of files."""

    offsets: tuple[int, ...]
    """Where each one's piece really begins."""

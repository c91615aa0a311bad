"""Where Slurm's commands are run and a job's files lie: this machine, or a login node.

Whatever submits, follows, lists or stops jobs of Slurm does it through one, and does not know
which it is.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.agent.submit_actions import changed, has, read_all, run, write
from slurm_adapter.node.job_files import make_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Done:
    """A program that has ended."""

    status: int
    out: str
    err: str


class SubmitHost(Protocol):
    """Methods raise `AdapterError` where the submit host itself cannot be reached."""

    @property
    def login(self) -> str:
        """The login node as the user names it; empty for this machine."""

    @property
    def home(self) -> str:
        """The user's home directory there."""

    @property
    def python(self) -> str:
        """An interpreter that every node has too, absolute; empty where nobody needs to know."""

    def has(self, program: str) -> bool:
        """Say whether there is such a program."""

    def run(
        self,
        words: Sequence[str],
        more: Mapping[str, str] = NOTHING,
        without: Collection[str] = (),
        data: bytes | None = None,
        limit_s: float | None = None,
    ) -> Done:
        """Run a program to its end.

        Args:
            words: the program and its arguments.
            more: variables on top of those that are set there.
            without: variables that it is not to inherit.
            data: its input.
            limit_s: after so long it is killed.

        Raises:
            FileNotFoundError: there is no such program.
            TimeoutError: it took too long.
        """

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, readable by their owner only.

        Raises:
            ClusterUnfitError: it cannot be made.
        """

    def write(self, path: str, data: bytes) -> None:
        """Write a file for its owner only; a reader never sees half of it.

        Raises:
            ClusterUnfitError: it cannot be written.
        """

    def read(self, places: Sequence[tuple[str, int]]) -> list[tuple[int, bytes]]:
        """Return of each (path, offset) what stands there, with the offset it really begins at.

        See `node.agent.submit_actions.read_all`.
        """

    def exists(self, path: str) -> bool:
        """Say whether anything is there."""

    def remove(self, path: str) -> None:
        """Take a folder away with all that is in it, as far as that can be."""

    def close(self) -> None:
        """Let go of it."""


class LocalHost:
    """This machine."""

    login = ""
    python = ""

    @property
    def home(self) -> str:
        """See `SubmitHost.home`."""
        return str(Path.home())

    def has(self, program: str) -> bool:
        """See `SubmitHost.has`."""
        return has(program, os.environ)

    def run(
        self,
        words: Sequence[str],
        more: Mapping[str, str] = NOTHING,
        without: Collection[str] = (),
        data: bytes | None = None,
        limit_s: float | None = None,
    ) -> Done:
        """See `SubmitHost.run`."""
        environment = changed(os.environ, more, without)
        status, out, error = run(words, environment, data, limit_s, _nothing)
        return Done(status, out.decode(errors="replace"), error.decode(errors="replace"))

    def make_folder(self, path: str) -> None:
        """See `SubmitHost.make_folder`."""
        make_folder(path)

    def write(self, path: str, data: bytes) -> None:
        """See `SubmitHost.write`; a pipe or a device is written to, not replaced."""
        place = Path(path)
        try:
            if place.exists() and not place.is_file():
                place.write_bytes(data)
            else:
                write(os.fsencode(path), data)
        except OSError as error:
            raise ClusterUnfitError(
                f"{path} cannot be written: {error.strerror}",
                "Choose another place; --job-folder DIR names that of a job's own files.",
            ) from error

    def read(self, places: Sequence[tuple[str, int]]) -> list[tuple[int, bytes]]:
        """See `SubmitHost.read`."""
        return read_all((os.fsencode(path), offset) for path, offset in places)

    def exists(self, path: str) -> bool:
        """See `SubmitHost.exists`."""
        return Path(path).exists()

    def remove(self, path: str) -> None:
        """See `SubmitHost.remove`."""
        shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Nothing is held."""


def place_of(submit_host: SubmitHost) -> str:
    """Return which machine a submit host is at, for people."""
    return submit_host.login or "this machine"


def owner(submit_host: SubmitHost) -> str:
    """Return whose a submit host's PATH is, for people."""
    return f"{submit_host.login}'s" if submit_host.login else "this machine's"


def _nothing() -> None:
    return

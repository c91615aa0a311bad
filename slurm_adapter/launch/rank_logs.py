"""One file for each rank's output: written while it runs here, and read again."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.launch.observer import Chunk
from slurm_adapter.node.ranks.events import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from slurm_adapter.node.ranks.events import Event

_MOST_AT_ONCE = 1 << 18


class RankLogs:
    """Takes the events of ranks and keeps their output, for its owner only."""

    def __init__(self, file_of: Callable[[int], Path], ranks: int) -> None:
        """Make the files; `file_of` names that of a rank."""
        self._files: list[int] = []
        try:
            for rank in range(ranks):
                path = file_of(rank)
                self._files.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        except OSError as error:
            self.close()
            raise ClusterUnfitError(
                f"{file_of(0).parent} cannot hold the ranks' output: {error.strerror}",
                "Name another place with XDG_STATE_HOME.",
            ) from error

    def take(self, event: Event) -> None:
        """Write lines of a rank; `OSError` where the disk is full."""
        if isinstance(event, Output):
            data = event.lines
            while data:
                data = data[os.write(self._files[event.rank], data) :]

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            os.close(file)
        self._files.clear()


class RankReader:
    """Reads such files as they grow; each rank's lines are whole."""

    def __init__(self, file_of: Callable[[int], Path], ranks: int) -> None:
        """Open the files.

        Raises:
            ClusterUnfitError: where one cannot be.
        """
        self._stack = ExitStack()
        try:
            self._files = [
                self._stack.enter_context(file_of(rank).open("rb")) for rank in range(ranks)
            ]
        except OSError as error:
            self._stack.close()
            raise ClusterUnfitError(f"{error.filename}: {error.strerror}") from error

    def chunks(self) -> Iterator[Chunk]:
        """Yield what has come since the last time, rank by rank."""
        for rank, file in enumerate(self._files):
            while lines := file.read(_MOST_AT_ONCE):
                yield Chunk(rank, _whole(lines, file.readline()))

    def close(self) -> None:
        """Let go of the files."""
        self._stack.close()


def _whole(lines: bytes, rest: bytes) -> bytes:
    """Complete a read's last line; who writes the file writes whole ones."""
    data = lines + rest if not lines.endswith(b"\n") else lines
    return data if data.endswith(b"\n") else data + b"\n"

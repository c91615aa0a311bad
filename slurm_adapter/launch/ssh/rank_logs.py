"""One file for each rank's output, in the job's record."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.ranks.events import Output

if TYPE_CHECKING:
    from slurm_adapter.launch.ssh.records import Record
    from slurm_adapter.node.ranks.events import Event


class RankLogs:
    """Takes the events of ranks and keeps their output, for its owner only."""

    def __init__(self, record: Record, ranks: int) -> None:
        self._files: list[int] = []
        try:
            for rank in range(ranks):
                path = record.rank_file(rank)
                self._files.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        except OSError as error:
            self.close()
            raise ClusterUnfitError(
                f"{record.folder} cannot hold the ranks' output: {error.strerror}",
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

"""One log file for each node, named as ModelArts' console names them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from slurm_adapter.node.job_files import cannot_make
from slurm_adapter.node.ranks.events import Ended, Output

if TYPE_CHECKING:
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.plan import Plan


class NodeLogs:
    """Takes the events of ranks, one rank on each node."""

    def __init__(self, plan: Plan) -> None:
        self._workers = plan.workers
        self._files: list[BinaryIO] = []
        self._ended: dict[int, int] = {}
        for index in range(len(plan.cluster.nodes)):
            path = Path(plan.job.log_folder) / plan.workers.log_name(index)
            try:
                self._files.append(path.open("ab", buffering=0))
            except OSError as error:
                self.close()
                raise cannot_make(str(path), error) from error

    def take(self, event: Event) -> None:
        """Write lines of a rank, or note how it ended; `OSError` where the disk is full."""
        if isinstance(event, Ended):
            self._ended[event.rank] = event.status
        elif isinstance(event, Output):
            self._files[event.rank].write(event.lines)

    def close(self) -> None:
        """Let go of the files; only now is nobody left who could write behind the last line."""
        for index, file in enumerate(self._files):
            with file:
                if index in self._ended:
                    file.write(self._workers.last_line(index, self._ended[index]).encode())

"""Following a detached run on a node: its files are read to the head as they grow.

The run does not notice: its own agent watches it, and is told by a signal to end it.
"""

from __future__ import annotations

import os
import select
import time

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node import frames, leftovers, signals
from slurm_adapter.node.events import LineSplitter
from slurm_adapter.node.frames import FrameReader, frame
from slurm_adapter.node.runs import RunFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_READ_BYTES = 1 << 18
_LOOK_S = 0.2
"""Between two looks at the files."""


def follow(request: Mapping[str, Any]) -> int:
    """Send what ranks have written and how they ended; go on until all has ended, or stdin does.

    Args:
        request: `run`, `index`, `ranks` (their numbers), `stay`: whether to go on.

    Raises:
        ClusterUnfitError: where this node knows nothing of the run.
    """
    folder = RunFolder(request["run"], request["index"])
    if not folder.holds(request["ranks"]):
        raise ClusterUnfitError(
            f"{os.uname().nodename} knows nothing of run {folder.run}",
            "It may have been removed there.",
        )
    follower = _Follower(folder, request["ranks"])
    # Its clock's moment, without which the ends of ranks on two machines have no order.
    follower.send(frame(frames.FACTS, repr(time.monotonic()).encode()))
    return follower.stay() if request["stay"] else follower.look_once()


class _Follower:
    def __init__(self, folder: RunFolder, ranks: tuple[int, ...]) -> None:
        self._folder = folder
        self._files = {rank: open(folder.output(rank), "rb", buffering=0) for rank in ranks}  # noqa: PTH123, SIM115
        self._splitters = {rank: LineSplitter() for rank in ranks}
        self._reader = FrameReader()

    def look_once(self) -> int:
        """Send everything that is there now."""
        watched = self._folder.agent() is not None
        self._look()
        if not watched:
            self._close()
        self.send(frame(frames.READY))
        return 0

    def stay(self) -> int:
        """Send until all has ended; obey meanwhile."""
        while True:
            watched = self._folder.agent() is not None  # before the last look, not after it
            more = self._look()
            if not watched:
                return self._close()
            if not self._listen(0.0 if more else _LOOK_S):
                return 0

    def _look(self) -> bool:
        """Send what is new; say whether there may be more at once."""
        more = False
        for rank in list(self._files):
            ended = self._folder.end_of(rank)
            data = self._files[rank].read(_READ_BYTES) or b""
            if lines := self._splitters[rank].feed(data):
                self.send(frames.output_frame(rank, lines, is_error=False))
            more = more or len(data) == _READ_BYTES
            if ended is not None and not data:
                self._end(rank, *ended)
        return more

    def _end(self, rank: int, status: int, at_s: float) -> None:
        self._files.pop(rank).close()
        if lines := self._splitters[rank].finish():
            self.send(frames.output_frame(rank, lines, is_error=False))
        self.send(frames.ended_frame(rank, status, at_s))

    def _close(self) -> int:
        """The run's agent is gone: say how that came."""
        while self._look():
            continue
        left = self._folder.gone()
        if left is None:
            count = leftovers.end_run(self._folder.run)
            with_it = f", and {count} process(es) it had left were ended" if count else ""
            raise ClusterUnfitError(f"the run's agent was killed{with_it}")
        self.send(frame(frames.GONE, left.encode()))
        return 0

    def _listen(self, limit_s: float) -> bool:
        """Obey the head; say whether it is still there."""
        if not select.select([0], [], [], limit_s)[0]:
            return True
        data = os.read(0, _READ_BYTES)
        for kind, _ in self._reader.feed(data):
            self._obey(kind)
        return bool(data)

    def _obey(self, kind: bytes) -> None:
        pid = self._folder.agent()
        if pid is None:
            return
        if kind == frames.STOP:
            os.kill(pid, signals.SIGTERM)
        elif kind == frames.KILL:
            os.kill(pid, signals.SIGKILL)
        elif kind == frames.BEAT:
            self.send(frame(frames.BEAT))

    def send(self, data: bytes) -> None:
        """Send, however long the head takes: nobody but it waits."""
        while data:
            data = data[os.write(1, data) :]

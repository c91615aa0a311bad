"""Following a detached run on a node: its files are read to the head as they grow.

The run does not notice: its own agent watches it, and is told by a signal to end it.
"""

from __future__ import annotations

import os
import time

from slurm_adapter import signals
from slurm_adapter.errors import CLUSTER_UNFIT, ClusterUnfitError
from slurm_adapter.node.agent import leftovers
from slurm_adapter.node.agent.run_folder import RunFolder
from slurm_adapter.node.protocol.messages import (
    Following,
    Gone,
    Kill,
    RankEnded,
    RankOutput,
    Stop,
    Unfit,
    UpToDate,
)
from slurm_adapter.node.ranks.events import LineSplitter
from slurm_adapter.node.system.poll import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.node.agent.head_channel import HeadChannel
    from slurm_adapter.node.protocol.messages import Follow, Request

_READ_BYTES = 1 << 18
_LOOK_S = 0.2
"""Between two looks at the files."""


def follow(request: Follow, channel: HeadChannel) -> int:
    """Send what ranks have written and how they ended; go on until all has ended.

    It ends sooner where the head is gone, or silent for too long.

    Raises:
        ClusterUnfitError: where this node knows nothing of the run.
    """
    folder = RunFolder(request.run, request.index)
    if not folder.holds(request.ranks):
        raise ClusterUnfitError(
            f"knows nothing of run {folder.run}", "It may have been removed there."
        )
    channel.join(Watch(), request.link_s)
    follower = _Follower(folder, request.ranks, channel, reads=request.output)
    return follower.stay() if request.stay else follower.look_once()


class _Follower:
    def __init__(
        self, folder: RunFolder, ranks: tuple[int, ...], channel: HeadChannel, *, reads: bool
    ) -> None:
        self._folder, self._channel, self._reads = folder, channel, reads
        self._files = {rank: open(folder.output(rank), "rb", buffering=0) for rank in ranks}  # noqa: SIM115
        self._splitters = {rank: LineSplitter() for rank in ranks}
        # Its clock's moment, without which the ends of ranks on two machines have no order.
        self._channel.tell(Following(time.monotonic()))

    def look_once(self) -> int:
        """Send everything that is there now."""
        watched = self._folder.agent() is not None
        sizes = {rank: os.stat(file.fileno()).st_size for rank, file in self._files.items()}
        while self._look() and self._is_behind(sizes) and not self._channel.lost:
            self._turn(more=True)
        if not watched:
            return self._close()
        self._channel.tell(UpToDate())
        self._channel.finish()
        return 0

    def _is_behind(self, sizes: Mapping[int, int]) -> bool:
        """Say so; whoever writes faster than this reads must not keep it for ever."""
        return any(file.tell() < sizes[rank] for rank, file in self._files.items())

    def stay(self) -> int:
        """Send until all has ended; obey meanwhile."""
        while not self._channel.lost:
            watched = self._folder.agent() is not None  # before the last look, not after it
            more = self._look()
            if not (watched or more):
                return self._close()
            self._turn(more=more)
        return 0

    def _look(self) -> bool:
        """Send what is new, as far as there is room; say whether there may be more at once."""
        if self._channel.full:
            return True
        more = False
        for rank in list(self._files):
            ended = self._folder.end_of(rank)
            data = (self._files[rank].read(_READ_BYTES) or b"") if self._reads else b""
            if lines := self._splitters[rank].feed(data):
                self._channel.tell(RankOutput(rank, lines, is_error=False))
            more = more or len(data) == _READ_BYTES
            if ended is not None and not data:
                self._end(rank, *ended)
        return more

    def _end(self, rank: int, status: int, at_s: float) -> None:
        self._files.pop(rank).close()
        if lines := self._splitters[rank].finish():
            self._channel.tell(RankOutput(rank, lines, is_error=False))
        self._channel.tell(RankEnded(rank, status, at_s))

    def _close(self) -> int:
        """The run's agent is gone: say how that came."""
        while self._look() and not self._channel.lost:
            self._turn(more=True)
        left = self._folder.gone()
        status = 0
        if left is None:
            status = CLUSTER_UNFIT
            count = leftovers.end_run(self._folder.run)
            with_it = f", and {count} process(es) it had left were ended" if count else ""
            self._channel.tell(Unfit(status, f"the run's agent was killed{with_it}", ""))
        else:
            self._channel.tell(Gone(left))
        self._channel.finish()
        return status

    def _turn(self, *, more: bool) -> None:
        """Obey the head and give it what it has room for; wait where nothing has to be read."""
        self._channel.wait(0.0 if more and not self._channel.full else _LOOK_S)
        for request in self._channel.listen():
            self._obey(request)
        self._channel.heed_time(time.monotonic())
        self._channel.flush()

    def _obey(self, request: Request) -> None:
        numbers = {Stop: signals.SIGTERM, Kill: signals.SIGKILL}
        pid = self._folder.agent() if type(request) in numbers else None
        if pid is None:
            return
        try:
            os.kill(pid, numbers[type(request)])
        except ProcessLookupError:  # it has ended by itself meanwhile
            return

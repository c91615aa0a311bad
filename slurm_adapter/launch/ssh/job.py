"""A job over SSH as its record tells it: how it is, what its ranks have written, its end.

Of an attached one the head keeps the output, and it ends with the head. Of a detached one the
hosts keep it, and whoever follows it may end it: see `detached`.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from slurm_adapter.errors import (
    NODE_LOST,
    AdapterError,
    BadValueError,
    ClusterUnfitError,
    signal_status,
)
from slurm_adapter.launch.handle import JobHandle, JobState, StopNotConfirmedError, unheard
from slurm_adapter.launch.rank_logs import RankReader
from slurm_adapter.launch.records import HEAD_KILLED, NOT_STARTED, End
from slurm_adapter.launch.ssh import detached
from slurm_adapter.node.ranks.supervise import STOP_DETACHED
from slurm_adapter.node.system.identity import lives, machine_of, pid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slurm_adapter.launch.handle import Say, StateWord
    from slurm_adapter.launch.observer import Chunk
    from slurm_adapter.launch.records import SshRecord
    from slurm_adapter.launch.store import SshEntry

LOOK_S = 0.2
_STOPPED = End(signal_status(signal.SIGTERM), "stopped by you", stopped=True)
_CONFIRM_S = 15.0
"""What ending a job may take beyond its grace and its time-out for links."""


class SshJob(JobHandle):
    """A job that there is a record of."""

    def __init__(self, entry: SshEntry) -> None:
        """Read the record.

        Raises:
            BadValueError: it cannot be read.
        """
        self._entry = entry
        try:
            record = entry.read()
        except AdapterError as error:
            raise BadValueError(f"{entry.job_id}: {error.found}", error.remedy) from error
        if record is None:
            raise BadValueError(
                f"{entry.job_id} is only being started, or never was: see {entry.folder}"
            )
        self._record = record

    @property
    def id(self) -> str:
        """See `JobHandle.id`."""
        return self._entry.job_id

    @property
    def nodes(self) -> Sequence[tuple[str, range]]:
        """See `JobHandle.nodes`."""
        return [(host.name, host.its_ranks) for host in self._record.hosts]

    @property
    def has_ended(self) -> bool:
        """See `JobHandle.has_ended`."""
        return self._entry.ended() is not None

    def state(self) -> JobState:
        """See `JobHandle.state`."""
        return state_of(self._entry, self._record)

    def wait(self) -> int:
        """See `JobHandle.wait`."""
        if self._record.detached:
            return detached.follow(self._entry, self._record, None, unheard, heed_signals=False)
        while (end := self._end_or_none(unheard)) is None:
            time.sleep(LOOK_S)
        return end.status

    def stream(self, show: Callable[[Chunk], None], say: Say, *, heed_signals: bool = False) -> int:
        """See `JobHandle.stream`."""
        ended = self._entry.ended()
        if ended is not None and ended.words == NOT_STARTED:
            say(f"{self.id}: {NOT_STARTED}")
            return ended.status
        if self._record.detached:
            return detached.follow(self._entry, self._record, show, say, heed_signals=heed_signals)
        with closing(self._reader()) as reader:
            while True:
                # In this order: a head that is gone by now has written all that it ever will.
                end = self._end_or_none(say)
                for chunk in reader.chunks():
                    show(chunk)
                if end is not None:
                    return self._told(end, say)
                time.sleep(LOOK_S)

    def chunks(self, say: Say) -> Iterator[Chunk]:
        """See `JobHandle.chunks`."""
        ended = self._entry.ended()
        if ended is not None and ended.words == NOT_STARTED:
            say(f"{self.id}: {NOT_STARTED}")
        elif self._record.detached:
            yield from detached.output(self._entry, self._record, say)
        else:
            with closing(self._reader()) as reader:
                yield from reader.chunks()

    def stop(self, say: Say | None = None) -> JobState:
        """See `JobHandle.stop`."""
        tell = say or unheard
        ended = self._entry.ended()
        if ended is not None:
            tell(f"{self.id} has ended already: {ended.words}")
            return self.state()
        left = self._stop(tell)
        for words in left:
            tell(f"not confirmed: {words}")
        tell(f"{self.id} was told to stop" if left else f"{self.id} was stopped")
        if left:
            raise StopNotConfirmedError(self.id, left)
        return self.state()

    def close(self) -> None:
        """See `JobHandle.close`: nothing is held."""

    def _reader(self) -> RankReader:
        return RankReader(self._entry.rank_file, self._record.ranks)

    def _end_or_none(self, say: Say) -> End | None:
        """Return how an attached job ended, also where its head was killed; None: it goes on."""
        alive = lives(self._record.head)
        ended = self._entry.ended()
        if ended is None and alive is False:
            self._entry.end_if_killed(say)
            ended = self._entry.ended() or End(NODE_LOST, HEAD_KILLED)
        return ended

    def _told(self, end: End, say: Say) -> int:
        """Say how a job ended badly; return its status."""
        words = end.words
        if words == HEAD_KILLED:
            words += ": its hosts end its ranks, and nobody knows how they ended"
        if end.status != 0:
            say(f"{self.id}: {words}")
        return end.status

    def _stop(self, say: Say) -> list[str]:
        """End it; return words for each host where that is not confirmed."""
        record, alive = self._record, lives(self._record.head)
        if alive:
            self._stop_head()
            if self._entry.ended() is not None:
                return []
            # It is gone, and has left alone what it could not reach: that may be possible now.
            alive = False
        if not record.detached:
            machine = machine_of(record.head)
            raise ClusterUnfitError(
                f"{self.id} cannot be stopped from here",
                f"It was started on {machine}: stop it there."
                if alive is None
                else "Its head was killed: its hosts have ended it, or will within"
                f" {record.link_s + record.grace_s:g} s.",
            )
        left = detached.stop(record, say)
        if not left:
            self._entry.end(_STOPPED, say)
        return left

    def _stop_head(self) -> None:
        """Tell a job's head to end it, and wait until it has ended itself."""
        record = self._record
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid_of(record.head), STOP_DETACHED if record.detached else signal.SIGTERM)
        deadline = time.monotonic() + record.grace_s + record.link_s + _CONFIRM_S
        while self._entry.ended() is None and lives(record.head):
            if time.monotonic() > deadline:
                raise ClusterUnfitError(f"{self.id} has not ended yet", "Try once more.")
            time.sleep(LOOK_S)


def state_of(entry: SshEntry, record: SshRecord) -> JobState:
    """Return how a job is, as far as its record and its head tell."""
    alive, end = lives(record.head), entry.ended()
    if end is not None and end.words != HEAD_KILLED:
        return JobState(_word(end), end.status, end.words)
    if alive is None and end is None:
        return JobState("running", detail=f"watched from {machine_of(record.head)}")
    if alive:
        return JobState("running")
    if record.detached:
        return JobState("running", detail="its head is gone: logs -f takes it over")
    return JobState("lost", NODE_LOST, HEAD_KILLED)


def _word(end: End) -> StateWord:
    if end.stopped:
        return "stopped"
    if end.status == 0:
        return "done"
    return "lost" if end.status == NODE_LOST else "failed"

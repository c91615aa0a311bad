"""A job that was submitted to Slurm: asked for, followed to its end, cancelled."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurm_adapter.errors import ClusterUnfitError, printable
from slurm_adapter.launch.batch import states
from slurm_adapter.launch.batch.follower import Follower, words_for
from slurm_adapter.launch.batch.hosts import keep_open
from slurm_adapter.launch.batch.states import AwayError, BatchState
from slurm_adapter.launch.handle import JobHandle, JobState, StopNotConfirmedError, unheard
from slurm_adapter.remote.submit_host import owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slurm_adapter.launch.handle import Say, StateWord
    from slurm_adapter.launch.observer import Chunk
    from slurm_adapter.launch.records import SlurmRecord
    from slurm_adapter.launch.store import Store
    from slurm_adapter.remote.submit_host import SubmitHost

_UNKNOWN_STATUS = 1
_CONFIRM_S, _LOOK_S = 120.0, 0.5
_SCANCEL_S = 60.0
DONE = "COMPLETED"
_CONTINUED = ("TIMEOUT", "NODE_FAIL", "PREEMPTED")
"""How a job may end whose next one goes on."""
_WORDS: dict[str, StateWord] = {
    DONE: "done",
    "CANCELLED": "stopped",
    "REVOKED": "stopped",
    "NODE_FAIL": "lost",
    "BOOT_FAIL": "lost",
    "UNKNOWN": "unknown",
}


class SlurmJob(JobHandle):
    """A job that there is a record of.

    Where one runs into its time limit and another goes on after it, this is the other one from
    then on.
    """

    def __init__(
        self, record: SlurmRecord, store: Store, submit_host: SubmitHost | None = None
    ) -> None:
        """Know a job.

        Args:
            record: what is kept of it.
            store: where that is.
            submit_host: where it was submitted, should that be open already.
        """
        self._record, self._store, self._submit_host = record, store, submit_host
        self._kept_open: SubmitHost | None = None
        self._say: Say = unheard

    @property
    def id(self) -> str:
        """See `JobHandle.id`."""
        return self._record.key

    @property
    def record(self) -> SlurmRecord:
        """What is kept of it."""
        return self._record

    @property
    def nodes(self) -> Sequence[tuple[str, range]]:
        """See `JobHandle.nodes`."""
        return [("", range(index, index + 1)) for index in range(self._record.nodes)]

    @property
    def node_logs(self) -> bool:
        """See `JobHandle.node_logs`."""
        return self._record.node_logs

    @property
    def has_ended(self) -> bool:
        """See `JobHandle.has_ended`."""
        return bool(self._record.state)

    def state(self) -> JobState:
        """See `JobHandle.state`."""
        while True:
            if self._record.state:
                state = self._noted
            else:
                asked = state_of(self._host(unheard), self._record.job_id)
                if asked is None:
                    return JobState("unknown", detail="Slurm does not answer")
                state = asked
                if state.ended:
                    self._note(state, unheard)
            if not self._go_on(state):
                return _public(state)

    def wait(self) -> int:
        """See `JobHandle.wait`."""
        return self._follow(_unseen, unheard)

    def stream(self, show: Callable[[Chunk], None], say: Say, *, heed_signals: bool = False) -> int:
        """See `JobHandle.stream`."""
        del heed_signals  # a signal may end it at any time: nobody's ranks are in its hands
        if not self._record.state:
            return self._follow(show, say)
        for chunk in self.chunks(say):
            show(chunk)
        return _end(self._noted, (), say)

    def chunks(self, say: Say) -> Iterator[Chunk]:
        """See `JobHandle.chunks`."""
        found: list[Chunk] = []
        follower = Follower(self._host(say), self._record, found.append, say)
        while follower.look():
            yield from found
            found.clear()
        follower.look(last=bool(self._record.state))
        yield from found

    def stop(self, say: Say | None = None) -> JobState:
        """See `JobHandle.stop`."""
        tell, job_id = say or unheard, self._record.job_id
        if self._record.state:
            tell(f"job {job_id} has ended: {self._record.state}")
            return _public(self._noted)
        submit_host = self._host(tell)
        _cancel(submit_host, [job_id, *self._record.then])
        deadline = time.monotonic() + _CONFIRM_S
        while time.monotonic() < deadline:
            state = state_of(submit_host, job_id)
            if state is not None and state.ended:
                self._note(state, tell)
                tell(f"job {job_id} was stopped")
                return _public(state)
            time.sleep(_LOOK_S)
        tell(f"job {job_id} was told to stop; Slurm has not confirmed it")
        raise StopNotConfirmedError(f"job {job_id}", ["Slurm has not confirmed it"])

    def close(self) -> None:
        """Let go of the login node; the job goes on."""
        for host in (self._kept_open, self._submit_host):
            if host is not None:
                host.close()
        self._kept_open = self._submit_host = None

    @property
    def _noted(self) -> BatchState:
        return BatchState(self._record.job_id, self._record.state, status=self._record.status)

    def _host(self, say: Say) -> SubmitHost:
        self._say = say
        if self._kept_open is None:
            # Whoever asks later is told of what happens then.
            self._kept_open = keep_open(self._record, self._tell, self._submit_host)
            self._submit_host = None
        return self._kept_open

    def _tell(self, text: str) -> None:
        self._say(text)

    def _follow(self, show: Callable[[Chunk], None], say: Say) -> int:
        while True:
            follower = Follower(self._host(say), self._record, show, say)
            state = follower.run()
            self._note(state, say)
            before = self._record.job_id
            if not self._go_on(state):
                return _end(state, follower.lost, say)
            say(f"job {before} ended: {state.state}; job {self._record.job_id} goes on")

    def _note(self, state: BatchState, say: Say) -> None:
        self._record = self._store.note_end(self._record, state.state, state.status, say)

    def _go_on(self, state: BatchState) -> bool:
        """Become the job that goes on after this one; say whether there is one."""
        if state.state not in _CONTINUED or not self._record.then:
            return False
        self._record = self._store.find_slurm(self._record.next_key)
        return True


def _unseen(chunk: Chunk) -> None:
    del chunk


def _public(state: BatchState) -> JobState:
    if state.waits:
        return JobState("waiting", detail=words_for(state))
    if not state.ended:
        return JobState("running", detail=words_for(state))
    return JobState(_WORDS.get(state.state, "failed"), state.status, state.state)


def _end(state: BatchState, lost: Sequence[str], say: Say) -> int:
    """Say how a job ended, and return its exit status; `lost` are nodes that its log names."""
    if state.state == DONE:
        say(f"job {state.job_id} is done")
    else:
        nodes = f"; lost: {', '.join(dict.fromkeys(map(printable, lost)))}" if lost else ""
        code = "" if state.status is None else f", exit status {state.status}"
        say(f"job {state.job_id} ended: {state.state}{code}{nodes}")
    return _UNKNOWN_STATUS if state.status is None else state.status


def _cancel(submit_host: SubmitHost, job_ids: Sequence[str]) -> None:
    job_id = job_ids[0]
    try:
        done = submit_host.run(["scancel", *job_ids], limit_s=_SCANCEL_S)
    except FileNotFoundError as error:
        raise ClusterUnfitError(
            f"scancel is not on {owner(submit_host)} PATH", "Run it on a login node of the cluster."
        ) from error
    except TimeoutError as error:
        raise ClusterUnfitError(f"Slurm does not answer; job {job_id} goes on", "") from error
    if done.status != 0 and "Invalid job id" not in done.err:
        said = done.err.strip().removeprefix("scancel: error: ")
        raise ClusterUnfitError(f"Slurm does not stop job {job_id}: {said}", "")


def state_of(submit_host: SubmitHost, job_id: str) -> BatchState | None:
    """Return how a job is now; None where Slurm does not answer. Forgotten is ended, too."""
    try:
        state = states.ask(submit_host, [job_id]).get(job_id)
        if state is None or state.ended:
            return (
                states.how_it_ended(submit_host, job_id) or state or BatchState(job_id, "UNKNOWN")
            )
    except AwayError:
        return None
    return state

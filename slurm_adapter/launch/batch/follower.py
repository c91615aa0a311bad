"""One job of Slurm followed to its end: what it waits for, what its ranks write, how it ends.

A hundred followers must not hurt a controller: it is asked less and less often, and at once only
where the job's own log says that something has happened.
"""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING

from slurm_adapter.contracts.place import NODE_LOGS
from slurm_adapter.launch.batch import states
from slurm_adapter.launch.batch.states import AwayError, BatchState
from slurm_adapter.launch.batch.tail import Tail
from slurm_adapter.launch.observer import Chunk
from slurm_adapter.node.step.finish import START

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_adapter.launch.records import SlurmRecord
    from slurm_adapter.remote.submit_host import SubmitHost

_LOOK_S = 0.25
"""How often files are looked at."""
_FIRST_ASK_S, _GROWTH, _LONGEST_ASK_S = 1.0, 1.5, 30.0
_DRAIN_S = 2.0
"""How long after the job's end its files may still grow on a network file system."""
_NODE_LOG = re.compile(re.escape(NODE_LOGS).encode() + rb" (.*)-worker-0\.log\n")
_NODE_LOST = re.compile(rb"^srun: error: Node failure on ([^\s,]+)", re.MULTILINE)
_ENDED = re.compile(rb"^slurm-adapter: worker-\d+ ended, return code", re.MULTILINE)


class Follower:
    """Follows one job.

    Args:
        submit_host: where its files lie and Slurm is asked.
        record: the job.
        show: gets lines of a node's own file, its index as rank, and of the job's log.
        say: gets what is to be told, a line each.
    """

    def __init__(
        self,
        submit_host: SubmitHost,
        record: SlurmRecord,
        show: Callable[[Chunk], None],
        say: Callable[[str], None],
    ) -> None:
        self._submit_host, self._record, self._show, self._say = submit_host, record, show, say
        self.lost: list[str] = []
        """Nodes that were lost, as srun tells in the job's log."""
        self._log = Tail(record.log) if record.log else None
        self._nodes: dict[int | None, Tail] = {}
        self._said = ""
        self._away = False
        self._due_s = 0.0
        self._interval_s = _FIRST_ASK_S

    def run(self) -> BatchState:
        """Stay until the job has ended; return how."""
        while True:
            grew = self.look()
            now = time.monotonic()
            state = self._ask() if now >= self._due_s else None
            if state is not None and state.ended:
                self._drain()
                return state
            if not grew:
                time.sleep(_LOOK_S)

    def look(self, *, last: bool = False) -> bool:
        """Show what has come since the last look; say whether anything has."""
        # The job's log comes last: what it tells may be that the others are those of an old run.
        tails = dict(self._nodes)
        if self._log is not None:
            tails[None] = self._log
        found = self._read(tails, last=last)
        for index, lines in found:
            if index is None:
                self._heed(lines)
            elif _ENDED.search(lines):
                self._soon()
            self._show(Chunk(index, lines))
        return bool(found)

    def _read(
        self, tails: Mapping[int | None, Tail], *, last: bool
    ) -> list[tuple[int | None, bytes]]:
        """Return the new lines of files, all of which are asked for at once."""
        pieces = self._submit_host.read([tail.place for tail in tails.values()])
        lines = [
            (index, tail.lines(piece, last=last))
            for (index, tail), piece in zip(tails.items(), pieces, strict=True)
        ]
        return [one for one in lines if one[1]]

    def _heed(self, lines: bytes) -> None:
        """Find out from the job's log where its nodes write, and that Slurm has news."""
        if lines.startswith(START.encode()) or b"\n" + START.encode() in lines:
            self._soon()
            self.lost.clear()
        self.lost += [name.decode(errors="replace") for name in _NODE_LOST.findall(lines)]
        for stem in _NODE_LOG.findall(lines):
            self._leave_nodes()
            path = stem.decode(errors="surrogateescape")
            self._nodes = {
                index: Tail(f"{path}-worker-{index}.log") for index in range(self._record.nodes)
            }

    def _leave_nodes(self) -> None:
        """Show what a run before the one that has begun has left."""
        while rest := self._read(self._nodes, last=True):
            for index, lines in rest:
                self._show(Chunk(index, lines))

    def _soon(self) -> None:
        self._interval_s, self._due_s = _FIRST_ASK_S, time.monotonic() + _LOOK_S

    def _ask(self) -> BatchState | None:
        """Ask Slurm, and tell what is new; None where it does not answer."""
        scattered = self._interval_s * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        self._due_s = time.monotonic() + scattered
        self._interval_s = min(_LONGEST_ASK_S, self._interval_s * _GROWTH)
        job_id = self._record.job_id
        try:
            state = states.ask(self._submit_host, [job_id]).get(job_id)
            if state is None or state.ended:
                state = states.how_it_ended(self._submit_host, job_id) or state
        except AwayError as away:
            if not self._away:
                self._say(f"Slurm does not answer ({away}); job {job_id} goes on, waiting")
                self._away = True
            return None
        if self._away:
            self._say("Slurm answers again")
            self._away = False
        if state is None:  # forgotten: it ended while nobody asked
            return BatchState(job_id, self._record.state or "UNKNOWN", status=self._record.status)
        self._tell(state)
        return state

    def _tell(self, state: BatchState) -> None:
        words = words_for(state)
        if words and words != self._said:
            self._said = words
            self._interval_s = _FIRST_ASK_S
            self._say(words)

    def _drain(self) -> None:
        """Show the rest, which may come a moment behind the end."""
        deadline = time.monotonic() + _DRAIN_S
        quiet_since = time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - quiet_since < 2 * _LOOK_S:
            if self.look():
                quiet_since = time.monotonic()
            else:
                time.sleep(_LOOK_S / 2)
        self.look(last=True)


def words_for(state: BatchState) -> str:
    """Return words for how a job is; empty for what nobody needs to be told."""
    if state.waits:
        why = f": {state.reason}" if state.reason else ""
        start = f"; expected to start {state.start.replace('T', ' ')}" if state.start else ""
        return f"job {state.job_id} is waiting{why}{start}"
    if state.state == "RUNNING":
        return f"job {state.job_id} runs on {state.nodes}"
    if state.ended or state.state in ("COMPLETING", "CONFIGURING"):
        return ""
    return f"job {state.job_id} is {state.state.lower()}"

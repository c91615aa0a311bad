"""Jobs of Slurm from the head again: followed, shown, stopped, listed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_adapter.cli.report import say
from slurm_adapter.errors import NODE_LOST, AdapterError, ClusterUnfitError, printable
from slurm_adapter.launch.batch import states
from slurm_adapter.launch.batch.follower import Follower, told
from slurm_adapter.launch.batch.records import (
    all_batch_records,
    find_batch_record,
    note_end,
    remove_old,
    state_folder,
)
from slurm_adapter.launch.batch.states import AwayError, BatchState
from slurm_adapter.show.lines import LinePrinter, own_streams, write_all

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slurm_adapter.launch.batch.records import BatchRecord

_UNKNOWN_STATUS = 1
_CONFIRM_S, _LOOK_S = 120.0, 0.5
_DONE = "COMPLETED"
_CONTINUED = ("TIMEOUT", "NODE_FAIL", "PREEMPTED")
"""How a job may end whose next one goes on."""


def follow(record: BatchRecord, *, output: bool = True) -> int:
    """Stay with a job, and with those that continue it, until the end; return its exit status.

    Args:
        record: the job.
        output: whether its ranks' output is shown.
    """
    try:
        while True:
            shown = _Shown(record)
            follower = Follower(record, shown.show if output else _nothing, say)
            state = follower.run()
            note_end(_folder(), record, state.state, state.status, say)
            if state.state not in _CONTINUED or not record.then:
                return _end(state, follower.lost)
            say(f"job {record.job_id} ended: {state.state}; job {record.then[0]} goes on")
            record = find_batch_record(_folder(), record.then[0])
    except KeyboardInterrupt:
        say(f"job {record.job_id} goes on; slurm-adapter stop {record.job_id} ends it")
        raise
    except BrokenPipeError:  # whoever read it has seen enough
        return 128 + signal.SIGPIPE


def _nothing(index: int | None, lines: bytes) -> None:
    del index, lines


def _end(state: BatchState, lost: Sequence[str] = ()) -> int:
    """Say how a job ended, and return its exit status; `lost` are nodes that its log names."""
    if state.state == _DONE:
        say(f"job {state.job_id} is done")
    else:
        nodes = f"; lost: {', '.join(dict.fromkeys(map(printable, lost)))}" if lost else ""
        code = "" if state.status is None else f", exit status {state.status}"
        say(f"job {state.job_id} ended: {state.state}{code}{nodes}")
    return _UNKNOWN_STATUS if state.status is None else state.status


class _Shown:
    """Writes a job's output: of the nodes to stdout, of the script to stderr where they differ."""

    def __init__(self, record: BatchRecord) -> None:
        self._own = record.node_logs
        self._printer = LinePrinter([str(index) for index in range(record.nodes)])
        self._streams = own_streams()

    def show(self, index: int | None, lines: bytes) -> None:
        if index is None:
            write_all(self._streams[self._own], lines)
        else:
            write_all(self._streams[0], self._printer.prefixed(index, lines, is_error=False))


def show_logs(job_id: str, *, stay: bool) -> int:
    """Print what a job's ranks have written; with `stay` until it ends: its exit status then."""
    record = find_batch_record(_folder(), job_id)
    if stay and not record.state:
        return follow(record)
    shown = _Shown(record)
    follower = Follower(record, shown.show, say)
    try:
        while follower.look():
            continue
        follower.look(last=not stay and bool(record.state))
    except BrokenPipeError:
        return 0
    if not stay:
        return 0
    return _end(BatchState(job_id, record.state, status=record.status))


def stop_job(job_id: str) -> int:
    """Have Slurm cancel a job, and stay until it has; return 0, or 4 where that is not known."""
    record = find_batch_record(_folder(), job_id)
    if record.state:
        say(f"job {job_id} has ended: {record.state}")
        return 0
    words = ["scancel", job_id, *record.then]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60.0)
    except FileNotFoundError as error:
        raise ClusterUnfitError(
            "scancel is not on this machine's PATH", "Run it on a login node of the cluster."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ClusterUnfitError(f"Slurm does not answer; job {job_id} goes on", "") from error
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        said = done.stderr.strip().removeprefix("scancel: error: ")
        raise ClusterUnfitError(f"Slurm does not stop job {job_id}: {said}", "")
    deadline = time.monotonic() + _CONFIRM_S
    while time.monotonic() < deadline:
        state = _state_of(job_id)
        if state is not None and state.ended:
            note_end(_folder(), record, state.state, state.status, say)
            say(f"job {job_id} was stopped")
            return 0
        time.sleep(_LOOK_S)
    say(f"job {job_id} was told to stop; Slurm has not confirmed it")
    return NODE_LOST


def _state_of(job_id: str) -> BatchState | None:
    """Return how a job is now; None where Slurm does not answer. Forgotten is ended, too."""
    try:
        state = states.ask([job_id]).get(job_id)
        if state is None or state.ended:
            return states.how_it_ended(job_id) or state or BatchState(job_id, "UNKNOWN")
    except AwayError:
        return None
    return state


def remove_snapshots() -> int:
    """Remove the code's copies of jobs that have ended; say which, and which are kept."""
    folder = _folder()
    records = [one for one in all_batch_records(folder) if one.snapshot]
    rows(everybody=False)  # finds out which have ended meanwhile
    ended = {one.job_id: one.state for one in all_batch_records(folder)}
    kept = {one.snapshot for one in records if not ended[one.job_id]}
    for path in dict.fromkeys(one.snapshot for one in records):
        jobs = ", ".join(one.job_id for one in records if one.snapshot == path)
        if path in kept:
            say(f"kept, as job {jobs} has not ended: {path}")
        elif os.path.isdir(path):  # noqa: PTH112
            shutil.rmtree(path, ignore_errors=True)
            say(f"removed, of job {jobs}: {path}")
    if not records:
        say("there are no snapshots")
    return 0


def rows(*, everybody: bool) -> list[tuple[str, ...]]:
    """Return a row for each job that was submitted from here: as `cli.jobs` shows them.

    Args:
        everybody: whether the user's other jobs of Slurm are listed, too.
    """
    folder = _folder()
    remove_old(folder)
    records = list(all_batch_records(folder))
    try:
        found = states.ask([one.job_id for one in records if not one.state]) if records else {}
        others = states.all_of_user() if everybody else []
    except (AwayError, AdapterError) as error:
        if everybody or any(not one.state for one in records):
            say(f"warning: {error}; states are as they were last known")
        found, others = {}, []
    shown = [_row(_updated(folder, one, found.get(one.job_id)), found) for one in records]
    known = {one.job_id for one in records}
    return shown + [
        (one.job_id, one.name, "-", "-", _words(one), one.nodes)
        for one in others
        if one.job_id not in known
    ]


def _updated(folder: Path, record: BatchRecord, state: BatchState | None) -> BatchRecord:
    """Return a record that knows of a job's end, should it have ended meanwhile."""
    if record.state or (state is not None and not state.ended):
        return record
    try:
        ended = states.how_it_ended(record.job_id)
    except (AwayError, AdapterError):
        return record
    if ended is None or not ended.ended:
        return record if state is None else note_end(folder, record, state.state, None, say)
    return note_end(folder, record, ended.state, ended.status, say)


def _row(record: BatchRecord, found: dict[str, BatchState]) -> tuple[str, ...]:
    submitted = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.submitted_s))
    state = found.get(record.job_id)
    if record.state:
        ended = replace(BatchState(record.job_id, record.state), status=record.status)
        words = _words(ended)
    else:
        words = "not known" if state is None else _words(state)
    ranks = "-" if record.ranks is None else str(record.ranks)
    nodes = state.nodes if state is not None and not state.waits else f"{record.nodes} nodes"
    return record.job_id, record.name, submitted, ranks, words, nodes


def _words(state: BatchState) -> str:
    if state.ended:
        return "done" if state.state == _DONE else f"ended {state.status}: {state.state}"
    words = told(state).removeprefix(f"job {state.job_id} ").removeprefix("is ")
    return words if state.waits else "running" if state.state == "RUNNING" else state.state.lower()


def _folder() -> Path:
    return state_folder(os.environ)

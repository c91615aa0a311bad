"""Jobs of Slurm from the head again: followed, shown, stopped, listed."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import closing
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
from slurm_adapter.remote.submit_host import LocalHost, owner
from slurm_adapter.show.lines import LinePrinter, own_streams, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from slurm_adapter.launch.batch.records import BatchRecord
    from slurm_adapter.remote.submit_host import SubmitHost

_UNKNOWN_STATUS = 1
_CONFIRM_S, _LOOK_S = 120.0, 0.5
_DONE = "COMPLETED"
_NAME = re.compile(r"[0-9]+(@.+)?")
_CONTINUED = ("TIMEOUT", "NODE_FAIL", "PREEMPTED")
"""How a job may end whose next one goes on."""


def is_batch(job: str) -> bool:
    """Say whether a job's name is one of Slurm's: a number, a login node behind it perhaps."""
    return _NAME.fullmatch(job) is not None


def submit_host_of(record: BatchRecord, submit_host: SubmitHost | None = None) -> SubmitHost:
    """Return the submit host of a job, opened where it was submitted through a login node.

    Args:
        record: the job.
        submit_host: its submit host, where that is open already.
    """
    if not record.login:
        return LocalHost()
    from slurm_adapter.remote.reconnecting import ReconnectingHost  # connects

    def again() -> SubmitHost:
        return _opened(record)

    return ReconnectingHost(submit_host or again(), again, say, f"job {record.job_id}")


def follow(
    record: BatchRecord, submit_host: SubmitHost | None = None, *, output: bool = True
) -> int:
    """Stay with a job, and with those that continue it, until the end; return its exit status.

    Args:
        record: the job.
        submit_host: where it was submitted, should that be open already.
        output: whether its ranks' output is shown.
    """
    with closing(submit_host_of(record, submit_host)) as found:
        return _follow(record, found, output=output)


def _follow(record: BatchRecord, submit_host: SubmitHost, *, output: bool) -> int:
    try:
        while True:
            shown = _Shown(record)
            follower = Follower(submit_host, record, shown.show if output else _nothing, say)
            state = follower.run()
            note_end(_folder(), record, state.state, state.status, say)
            if state.state not in _CONTINUED or not record.then:
                return _end(state, follower.lost)
            say(f"job {record.job_id} ended: {state.state}; job {record.then[0]} goes on")
            record = find_batch_record(_folder(), record.next_key)
    except KeyboardInterrupt:
        say(f"job {record.job_id} goes on; slurm-adapter stop {record.key} ends it")
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
    try:
        with closing(submit_host_of(record)) as submit_host:
            follower = Follower(submit_host, record, shown.show, say)
            while follower.look():
                continue
            follower.look(last=not stay and bool(record.state))
    except BrokenPipeError:
        return 0
    if not stay:
        return 0
    return _end(BatchState(record.job_id, record.state, status=record.status))


def stop_job(job: str) -> int:
    """Have Slurm cancel a job, and stay until it has; return 0, or 4 where that is not known."""
    record = find_batch_record(_folder(), job)
    if record.state:
        say(f"job {record.job_id} has ended: {record.state}")
        return 0
    with closing(submit_host_of(record)) as submit_host:
        return _stop(record, submit_host)


def _stop(record: BatchRecord, submit_host: SubmitHost) -> int:
    job_id = record.job_id
    try:
        done = submit_host.run(["scancel", job_id, *record.then], limit_s=60.0)
    except FileNotFoundError as error:
        raise ClusterUnfitError(
            f"scancel is not on {owner(submit_host)} PATH", "Run it on a login node of the cluster."
        ) from error
    except TimeoutError as error:
        raise ClusterUnfitError(f"Slurm does not answer; job {job_id} goes on", "") from error
    if done.status != 0 and "Invalid job id" not in done.err:
        said = done.err.strip().removeprefix("scancel: error: ")
        raise ClusterUnfitError(f"Slurm does not stop job {job_id}: {said}", "")
    deadline = time.monotonic() + _CONFIRM_S
    while time.monotonic() < deadline:
        state = _state_of(submit_host, job_id)
        if state is not None and state.ended:
            note_end(_folder(), record, state.state, state.status, say)
            say(f"job {job_id} was stopped")
            return 0
        time.sleep(_LOOK_S)
    say(f"job {job_id} was told to stop; Slurm has not confirmed it")
    return NODE_LOST


def _state_of(submit_host: SubmitHost, job_id: str) -> BatchState | None:
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


def remove_snapshots() -> int:
    """Remove the code's copies of jobs that have ended; say which, and which are kept."""
    folder = _folder()
    records = [one for one in all_batch_records(folder) if one.snapshot]
    rows(everybody=False)  # finds out which have ended meanwhile
    ended = {one.key: one.state for one in all_batch_records(folder)}
    for login in dict.fromkeys(one.login for one in records):
        there = [one for one in records if one.login == login]
        kept = {one.snapshot for one in there if not ended[one.key]}
        for path in kept:
            jobs = ", ".join(one.job_id for one in there if one.snapshot == path)
            say(f"kept, as job {jobs} has not ended: {path}")
        if gone := [one for one in there if one.snapshot not in kept]:
            _remove(gone)
    if not records:
        say("there are no snapshots")
    return 0


def _remove(records: Sequence[BatchRecord]) -> None:
    """Remove the snapshots of jobs of one cluster, should they be there still."""
    try:
        with closing(_opened(records[0])) as submit_host:
            for path in dict.fromkeys(one.snapshot for one in records):
                jobs = ", ".join(one.job_id for one in records if one.snapshot == path)
                if submit_host.exists(path):
                    submit_host.remove(path)
                    say(f"removed, of job {jobs}: {path}")
    except AdapterError as error:
        say(f"warning: {error.found}; snapshots there are kept")


def rows(*, everybody: bool) -> list[tuple[str, ...]]:
    """Return a row for each job that was submitted from here: as `cli.jobs` shows them.

    Args:
        everybody: whether the user's other jobs of Slurm are listed, too.
    """
    folder = _folder()
    remove_old(folder)
    records = list(all_batch_records(folder))
    logins = dict.fromkeys(one.login for one in records)
    if everybody and ("" in logins or not logins or LocalHost().has("squeue")):
        logins.setdefault("")
    shown, more = {}, []
    for login in logins:
        there = [one for one in records if one.login == login]
        for record, row in _rows_of(folder, there, login, everybody=everybody):
            if record is None:
                more.append(row)
            else:
                shown[record.key] = row
    return [*(shown[one.key] for one in records), *more]


def _rows_of(
    folder: Path, records: Sequence[BatchRecord], login: str, *, everybody: bool
) -> Iterator[tuple[BatchRecord | None, tuple[str, ...]]]:
    """Yield a row for each job of one cluster, all of which are asked for at once."""
    open_ones = [one.job_id for one in records if not one.state]
    found: dict[str, BatchState] = {}
    others: list[BatchState] = []
    updated = list(records)
    if open_ones or everybody:
        try:
            with closing(_opened(records[0]) if login else LocalHost()) as submit_host:
                found = states.ask(submit_host, open_ones) if open_ones else {}
                others = states.all_of_user(submit_host) if everybody else []
                updated = [
                    _updated(submit_host, folder, one, found.get(one.job_id)) for one in records
                ]
        except (AwayError, AdapterError) as error:
            said = error.found if isinstance(error, AdapterError) else str(error)
            said = " ".join(line.strip() for line in said.splitlines())
            say(f"warning: {said}; states are as they were last known")
            found, others = {}, []
    known = {one.job_id for one in records}
    yield from ((one, _row(one, found)) for one in updated)
    for one in others:
        if one.job_id not in known:
            name = f"{one.job_id}@{login}" if login else one.job_id
            yield None, (name, one.name, "-", "-", _words(one), one.nodes)


def _opened(record: BatchRecord) -> SubmitHost:
    """Return the submit host of a job, which is given up where it cannot be reached."""
    if not record.login:
        return LocalHost()
    from slurm_adapter.remote.login_host import open_login  # connects

    return open_login(record.login, say, record.python)


def _updated(
    submit_host: SubmitHost, folder: Path, record: BatchRecord, state: BatchState | None
) -> BatchRecord:
    """Return a record that knows of a job's end, should it have ended meanwhile."""
    if record.state or (state is not None and not state.ended):
        return record
    try:
        ended = states.how_it_ended(submit_host, record.job_id)
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
    count = "1 node" if record.nodes == 1 else f"{record.nodes} nodes"
    # One that was cancelled while it waited has had none: their number stands there then.
    has_some = state is not None and not state.waits and not state.nodes.isdecimal()
    nodes = state.nodes if state is not None and has_some else count
    return record.key, record.name, submitted, ranks, words, nodes


def _words(state: BatchState) -> str:
    if state.ended:
        return "done" if state.state == _DONE else f"ended {state.status}: {state.state}"
    words = told(state).removeprefix(f"job {state.job_id} ").removeprefix("is ")
    return words if state.waits else "running" if state.state == "RUNNING" else state.state.lower()


def _folder() -> Path:
    return state_folder(os.environ)

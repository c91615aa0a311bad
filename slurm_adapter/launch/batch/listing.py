"""All jobs of Slurm that were submitted from here: how they are, and their snapshots."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_adapter.errors import AdapterError
from slurm_adapter.launch.batch import states
from slurm_adapter.launch.batch.follower import words_for
from slurm_adapter.launch.batch.hosts import open_host
from slurm_adapter.launch.batch.job import DONE
from slurm_adapter.launch.batch.states import AwayError, BatchState
from slurm_adapter.launch.summary import JobSummary
from slurm_adapter.remote.submit_host import LocalHost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurm_adapter.launch.handle import Say
    from slurm_adapter.launch.records import SlurmRecord
    from slurm_adapter.launch.store import Store
    from slurm_adapter.remote.submit_host import SubmitHost


def summaries(store: Store, say: Say, *, everybody: bool) -> list[JobSummary]:
    """Return each job that was submitted from here, in the order of submission.

    Args:
        store: where the records are.
        say: gets warnings.
        everybody: whether the user's other jobs of Slurm are listed, too.
    """
    store.remove_old_slurm()
    records = store.slurm_records()
    logins = dict.fromkeys(one.login for one in records)
    if everybody and ("" in logins or not logins or LocalHost().has("squeue")):
        logins.setdefault("")
    shown: dict[str, JobSummary] = {}
    more: list[JobSummary] = []
    for login in logins:
        there = [one for one in records if one.login == login]
        for record, summary in _of_cluster(store, there, login, say, everybody=everybody):
            if record is None:
                more.append(summary)
            else:
                shown[record.key] = summary
    return [*(shown[one.key] for one in records), *more]


def _of_cluster(
    store: Store, records: Sequence[SlurmRecord], login: str, say: Say, *, everybody: bool
) -> Iterator[tuple[SlurmRecord | None, JobSummary]]:
    """Yield each job of one cluster, all of which are asked for at once."""
    open_ones = [one.job_id for one in records if not one.state]
    found: dict[str, BatchState] = {}
    others: list[BatchState] = []
    updated = list(records)
    if open_ones or everybody:
        try:
            with closing(open_host(records[0], say) if login else LocalHost()) as submit_host:
                found = states.ask(submit_host, open_ones) if open_ones else {}
                others = states.all_of_user(submit_host) if everybody else []
                updated = [
                    _updated(submit_host, store, one, found.get(one.job_id), say) for one in records
                ]
        except (AwayError, AdapterError) as error:
            said = error.found if isinstance(error, AdapterError) else str(error)
            said = " ".join(line.strip() for line in said.splitlines())
            say(f"warning: {said}; states are as they were last known")
            found, others = {}, []
    known = {one.job_id for one in records}
    yield from ((one, _summary(one, found)) for one in updated)
    for one in others:
        if one.job_id not in known:
            name = f"{one.job_id}@{login}" if login else one.job_id
            yield None, JobSummary(name, one.name, state=_words(one), hosts=one.nodes)


def _updated(
    submit_host: SubmitHost,
    store: Store,
    record: SlurmRecord,
    state: BatchState | None,
    say: Say,
) -> SlurmRecord:
    """Return a record that knows of a job's end, should it have ended meanwhile."""
    if record.state or (state is not None and not state.ended):
        return record
    try:
        ended = states.how_it_ended(submit_host, record.job_id)
    except (AwayError, AdapterError):
        return record
    if ended is None or not ended.ended:
        return record if state is None else store.note_end(record, state.state, None, say)
    return store.note_end(record, ended.state, ended.status, say)


def _summary(record: SlurmRecord, found: dict[str, BatchState]) -> JobSummary:
    state = found.get(record.job_id)
    if record.state:
        ended = replace(BatchState(record.job_id, record.state), status=record.status)
        words = _words(ended)
    else:
        words = "not known" if state is None else _words(state)
    count = "1 node" if record.nodes == 1 else f"{record.nodes} nodes"
    # One that was cancelled while it waited has had none: their number stands there then.
    has_some = state is not None and not state.waits and not state.nodes.isdecimal()
    nodes = state.nodes if state is not None and has_some else count
    return JobSummary(record.key, record.name, record.submitted_s, record.ranks, words, nodes)


def _words(state: BatchState) -> str:
    if state.ended:
        return "done" if state.state == DONE else f"ended {state.status}: {state.state}"
    words = words_for(state).removeprefix(f"job {state.job_id} ").removeprefix("is ")
    return words if state.waits else "running" if state.state == "RUNNING" else state.state.lower()


def remove_snapshots(store: Store, say: Say) -> None:
    """Remove the code's copies of jobs that have ended; say which, and which are kept."""
    records = [one for one in store.slurm_records() if one.snapshot]
    summaries(store, say, everybody=False)  # finds out which have ended meanwhile
    ended = {one.key: one.state for one in store.slurm_records()}
    for login in dict.fromkeys(one.login for one in records):
        there = [one for one in records if one.login == login]
        kept = {one.snapshot for one in there if not ended[one.key]}
        for path in kept:
            jobs = ", ".join(one.job_id for one in there if one.snapshot == path)
            say(f"kept, as job {jobs} has not ended: {path}")
        if gone := [one for one in there if one.snapshot not in kept]:
            _remove(gone, say)
    if not records:
        say("there are no snapshots")


def _remove(records: Sequence[SlurmRecord], say: Say) -> None:
    """Remove the snapshots of jobs of one cluster, should they be there still."""
    try:
        with closing(open_host(records[0], say)) as submit_host:
            for path in dict.fromkeys(one.snapshot for one in records):
                jobs = ", ".join(one.job_id for one in records if one.snapshot == path)
                if submit_host.exists(path):
                    submit_host.remove(path)
                    say(f"removed, of job {jobs}: {path}")
    except AdapterError as error:
        say(f"warning: {error.found}; snapshots there are kept")

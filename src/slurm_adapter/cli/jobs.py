"""`jobs`, `logs` and `stop`: what was started from here, seen and ended again.

Jobs of Slurm have a number, with a login node behind it perhaps, and are in `cli.batch`; those
over SSH are called ssh-N.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from slurm_adapter.cli import batch
from slurm_adapter.cli.report import say
from slurm_adapter.cluster.cluster import Node
from slurm_adapter.cluster.hostlist import fold_hostlist
from slurm_adapter.errors import NODE_LOST, AdapterError, BadValueError, ClusterUnfitError
from slurm_adapter.launch.ssh import follow
from slurm_adapter.launch.ssh.agents import AgentFleet, Timing
from slurm_adapter.launch.ssh.begin import begin_agents
from slurm_adapter.launch.ssh.records import (
    HEAD_KILLED,
    NOT_STARTED,
    all_records,
    find_record,
    head_host,
    head_lives,
    head_pid,
    state_folder,
)
from slurm_adapter.node.events import Lost, Output
from slurm_adapter.node.supervise import STOP_DETACHED, LeftError, Supervisor
from slurm_adapter.output import write_stdout
from slurm_adapter.show.lines import LinePrinter, rank_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_adapter.launch.ssh.records import JobRecord, Record
    from slurm_adapter.node.events import Event

_CONNECT_S = 60.0
_LOOK_S = 0.2
_STOPPED = 128 + signal.SIGTERM
_MOST_SHOWN = 5
_CONFIRM_S = 15.0
"""What ending a job may take beyond its grace and its time-out for links."""
_NOTED_S = 5.0
"""What a head may take, once all is gone, to keep how the job ended."""


def list_jobs(*, everybody: bool) -> int:
    """Print a line for each job there is a record of; with `everybody` for others of Slurm, too."""
    lines = [line for record in all_records(_folder()) if (line := _line(record))]
    lines += batch.rows(everybody=everybody)
    if lines:
        header = ("JOB", "NAME", "STARTED", "RANKS", "STATE", "HOSTS")
        rows = [header, *lines]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header) - 1)]
        write_stdout("".join(_row(row, widths) for row in rows))
    else:
        say("no jobs were started from here")
    return 0


def _row(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return "  ".join([*cells, row[-1]]) + "\n"


def _line(record: Record) -> tuple[str, ...] | None:
    """Return what is shown of a job; None where its record is still being made."""
    try:
        job = record.read()
    except AdapterError as error:
        return record.job_id, "-", "-", "-", error.found, "-"
    if job is None:
        return None
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.started_s))
    ranks = sum(host.ranks for host in job.hosts)
    hosts = fold_hostlist([host.name for host in job.hosts])
    return record.job_id, job.name, started, str(ranks), _state(record, job), hosts


def _state(record: Record, job: JobRecord) -> str:
    lives = head_lives(job.head)
    ended = record.ended()
    if ended is not None and ended[1] != HEAD_KILLED:
        return "done" if ended[0] == 0 else f"ended {ended[0]}"
    kind = "detached" if job.detached else "running"
    if lives is None and ended is None:
        return f"{kind}, watched from {head_host(job.head)}"
    if lives:
        return kind
    if job.detached:
        return "detached, its head is gone: logs -f takes it over"
    return HEAD_KILLED


def show_logs(job_id: str, *, stay: bool) -> int:
    """Print what a job's ranks have written; with `stay` until it ends: its exit status then."""
    if batch.is_batch(job_id):
        return batch.show_logs(job_id, stay=stay)
    record, job = _find(job_id)
    ended = record.ended()
    if ended is not None and ended[1] == NOT_STARTED:
        say(f"{job_id}: {NOT_STARTED}")
        return ended[0] if stay else 0
    ranks = [range(host.first_rank, host.first_rank + host.ranks) for host in job.hosts]
    printer = LinePrinter(rank_names([host.name for host in job.hosts], ranks))

    def show(event: Event) -> None:
        if isinstance(event, Output):
            printer.show(event)

    try:
        if job.detached:
            return _from_hosts(record, job, show, stay=stay)
        return _from_record(record, job, show, stay=stay)
    except KeyboardInterrupt:
        _say_it_goes_on(record)
        raise
    except LeftError as leaving:
        _say_it_goes_on(record)
        return leaving.status
    except BrokenPipeError:  # whoever read it has seen enough
        return 128 + signal.SIGPIPE if stay else 0
    except OSError as error:
        raise AdapterError(f"the output cannot be shown: {error.strerror}") from error


def _say_it_goes_on(record: Record) -> None:
    if record.ended() is None:
        say(f"{record.job_id} goes on; slurm-adapter stop {record.job_id} ends it")


def _from_hosts(
    record: Record, job: JobRecord, show: Callable[[Event], None], *, stay: bool
) -> int:
    """Show what the hosts of a detached job have kept."""
    fleet, without = _connect(job)
    try:
        without += follow.attach(job, fleet, stay=stay)
        for words in without:
            say(f"warning: without {words}")
        if stay:
            return _follow(record, job, fleet, show, without)
        _note_if_ended(record, job, fleet, show)
        return 0
    finally:
        fleet.close()


def _follow(
    record: Record,
    job: JobRecord,
    fleet: AgentFleet,
    show: Callable[[Event], None],
    without: list[str],
) -> int:
    """Show a detached job until it ends, and end the others where one fails, as its head does.

    Both may: a node that is told twice to end its ranks ends them once.
    """
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        say(text)

    status = Supervisor(
        fleet,
        show=show,
        say=tell,
        name=_names(job),
        # The runs' own agents keep to the job's: only one that does not is killed from here.
        grace_s=job.grace_s + follow.PATIENCE_S,
        node=[host.name for host in job.hosts].__getitem__,
        ends=(),
    ).run()
    ended = _noted(record, job)
    if ended is not None:
        if ended[0] != 0 and ended[1] not in said:
            say(f"{record.job_id}: {ended[1]}")
        return ended[0]
    if fleet.left_alone or without:
        left = "; ".join([*without, *fleet.left])
        say(f"{record.job_id} goes on where it could not be reached: {left}")
        return status or NODE_LOST
    for words in fleet.left:
        say(f"not confirmed: {words}")
    if not head_lives(job.head):
        record.end(status, said[0] if said else "done", say)
    return status


def _noted(record: Record, job: JobRecord) -> tuple[int, str] | None:
    """Return how a job ended of which all is gone, once its head has kept that; None: it has not.

    A head that lost sight of some ranks has left them to whoever follows.
    """
    deadline = time.monotonic() + _NOTED_S
    while True:
        lives = head_lives(job.head)
        ended = record.ended()
        if ended is not None or lives is False or time.monotonic() > deadline:
            return ended
        time.sleep(_LOOK_S)


def _names(job: JobRecord) -> Callable[[int], str]:
    """Return what names a rank, as its head does."""
    node_of = {
        rank: host.name
        for host in job.hosts
        for rank in range(host.first_rank, host.first_rank + host.ranks)
    }
    return lambda rank: f"{job.starts} {rank} on {node_of[rank]}"


def _note_if_ended(
    record: Record, job: JobRecord, fleet: AgentFleet, show: Callable[[Event], None]
) -> None:
    """Show what there is, and keep how a job ended whose head did not live to see it."""
    blame, over = follow.collect(fleet, show)
    if head_lives(job.head) is not False or record.ended() is not None:
        return
    if len(over) < sum(host.ranks for host in job.hosts):
        return
    if not blame.failed:
        record.end(0, "done", say)
        return
    first = blame.first()
    if isinstance(first, Lost):
        what = f"{job.hosts[first.node_index].name} was lost: {first.why}"
    else:
        what = f"{_names(job)(first.rank)} failed first: {first.how}"
    record.end(first.status, what, say)


def _from_record(
    record: Record, job: JobRecord, show: Callable[[Event], None], *, stay: bool
) -> int:
    """Show the files that the head of an attached job writes."""
    ranks = sum(host.ranks for host in job.hosts)
    try:
        files = [record.rank_file(rank).open("rb") for rank in range(ranks)]
    except OSError as error:
        raise ClusterUnfitError(f"{error.filename}: {error.strerror}") from error
    try:
        while True:
            # In this order: a head that is gone by now has kept the end, or never will.
            lives = head_lives(job.head)
            ended = record.ended()
            for rank, file in enumerate(files):
                while lines := file.read(1 << 18):
                    show(Output(rank, _whole(lines, file.readline()), is_error=False))
            if not stay:
                return 0
            if ended is not None:
                return _told(record, ended)
            if lives is False:
                record.end(NODE_LOST, HEAD_KILLED, say)
                return _told(record, (NODE_LOST, HEAD_KILLED))
            time.sleep(_LOOK_S)
    finally:
        for file in files:
            file.close()


def _told(record: Record, ended: tuple[int, str]) -> int:
    """Say how a job ended badly; return its status."""
    status, words = ended
    if words == HEAD_KILLED:
        words += ": its hosts end its ranks, and nobody knows how they ended"
    if status != 0:
        say(f"{record.job_id}: {words}")
    return status


def _whole(lines: bytes, rest: bytes) -> bytes:
    """Complete a read's last line; the head writes whole ones."""
    data = lines + rest if not lines.endswith(b"\n") else lines
    return data if data.endswith(b"\n") else data + b"\n"


def stop_job(job_id: str) -> int:
    """End a job on all its hosts, and return 0 once that is confirmed."""
    if batch.is_batch(job_id):
        return batch.stop_job(job_id)
    record, job = _find(job_id)
    ended = record.ended()
    if ended is not None:
        say(f"{job_id} has ended already: {ended[1]}")
        return 0
    lives = head_lives(job.head)
    if lives:
        _stop_head(record, job)
        if record.ended() is not None:
            return _confirmed(job_id, [])
        # It is gone, and has left alone what it could not reach: that may be possible now.
        lives = False
    if not job.detached:
        machine = head_host(job.head)
        raise ClusterUnfitError(
            f"{job_id} cannot be stopped from here",
            f"It was started on {machine}: stop it there."
            if lives is None
            else "Its head was killed: its hosts have ended it, or will within"
            f" {job.link_s + job.grace_s:g} s.",
        )
    fleet, left = _connect(job)
    try:
        left += follow.attach(job, fleet, stay=True, output=False)
        left += follow.end(fleet)
    finally:
        fleet.close()
    if not left:
        record.end(_STOPPED, "stopped by you", say)
    return _confirmed(job_id, left)


def _stop_head(record: Record, job: JobRecord) -> None:
    """Tell a job's head to end it, and wait until it has ended itself."""
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(head_pid(job.head), STOP_DETACHED if job.detached else signal.SIGTERM)
    deadline = time.monotonic() + job.grace_s + job.link_s + _CONFIRM_S
    while record.ended() is None and head_lives(job.head):
        if time.monotonic() > deadline:
            raise ClusterUnfitError(f"{record.job_id} has not ended yet", "Try once more.")
        time.sleep(_LOOK_S)


def _confirmed(job_id: str, left: list[str]) -> int:
    for words in left:
        say(f"not confirmed: {words}")
    say(f"{job_id} was stopped" if not left else f"{job_id} was told to stop")
    return NODE_LOST if left else 0


def _connect(job: JobRecord) -> tuple[AgentFleet, list[str]]:
    """Return an agent on each node that can be reached, and words for each that cannot.

    Raises:
        ClusterUnfitError: none can.
    """
    nodes = [
        Node(host.name, address=host.address, user=host.user, port=host.port, python=host.python)
        for host in job.hosts
    ]
    # Each host's own interpreter is in the record.
    dialed = begin_agents(nodes, "", job.run, _CONNECT_S, say)
    unreached = [f"{failure.node.name}: {failure.reason}" for failure in dialed.failures]
    agents = dialed.at_least(0)
    if not agents:
        raise ClusterUnfitError(
            "no host of the job can be reached\n" + "\n".join(unreached[:_MOST_SHOWN]),
            "What runs there goes on.",
        )
    return AgentFleet(agents, Timing(job.grace_s, job.link_s, detached=True), say), unreached


def _find(job_id: str) -> tuple[Record, JobRecord]:
    record = find_record(_folder(), job_id)
    try:
        job = record.read()
    except AdapterError as error:
        raise BadValueError(f"{job_id}: {error.found}", error.remedy) from error
    if job is None:
        raise BadValueError(f"{job_id} is only being started, or never was: see {record.folder}")
    return record, job


def _folder() -> Path:
    return state_folder(os.environ)

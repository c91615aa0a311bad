"""`jobs`, `logs` and `stop`: what was started over SSH, seen and ended from the head again."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from slurm_adapter.cli.report import say
from slurm_adapter.cluster.cluster import Node
from slurm_adapter.cluster.hostlist import fold_hostlist
from slurm_adapter.connect.dial import dial
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.launch import follow
from slurm_adapter.launch.agent import Agent
from slurm_adapter.launch.agents import AgentFleet, Timing
from slurm_adapter.launch.records import (
    NOT_STARTED,
    all_records,
    find_record,
    head_host,
    head_lives,
    state_folder,
)
from slurm_adapter.node.events import Ended, Output
from slurm_adapter.output import write_stdout
from slurm_adapter.show.lines import LinePrinter, rank_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_adapter.connect.port import Connection
    from slurm_adapter.launch.records import JobRecord, Record
    from slurm_adapter.node.events import Event

_CONNECT_S = 60.0
_LOOK_S = 0.2
_STOPPED = 128 + signal.SIGTERM
_MOST_SHOWN = 5
_CONFIRM_S = 15.0
"""What ending a job may take beyond its grace and its time-out for links."""


def list_jobs() -> int:
    """Print a line for each job there is a record of."""
    lines = [_line(record, job) for record in all_records(_folder()) if (job := record.read())]
    if lines:
        header = ("JOB", "NAME", "STARTED", "RANKS", "STATE", "HOSTS")
        rows = [header, *lines]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header) - 1)]
        write_stdout("".join(_row(row, widths) for row in rows))
    else:
        say("no jobs were started over SSH from here")
    return 0


def _row(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return "  ".join([*cells, row[-1]]) + "\n"


def _line(record: Record, job: JobRecord) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.started_s))
    ranks = sum(host.ranks for host in job.hosts)
    hosts = fold_hostlist([host.name for host in job.hosts])
    return record.job_id, job.name, started, str(ranks), _state(record, job), hosts


def _state(record: Record, job: JobRecord) -> str:
    ended = record.ended()
    if ended is not None:
        return "done" if ended[0] == 0 else f"ended {ended[0]}"
    lives = head_lives(job.head)
    kind = "detached" if job.detached else "running"
    if lives is None:
        return f"{kind}, watched from {head_host(job.head)}"
    if lives:
        return kind
    if job.detached:
        return "detached, its head is gone: logs -f takes it over"
    return "its head was killed"


def show_logs(job_id: str, *, stay: bool) -> int:
    """Print what a job's ranks have written; with `stay` until it ends: its exit status then."""
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

    if not job.detached:
        return _from_record(record, job, show, stay=stay)
    fleet, unreached = _connect(job)
    try:
        for words in unreached:
            say(f"warning: without {words}")
        follow.attach(job, fleet, stay=stay)
        if stay:
            return _follow(record, job, fleet, show, unreached)
        return _note_if_ended(record, job, follow.collect(fleet, show))
    except KeyboardInterrupt:
        if record.ended() is None:
            say(f"{job_id} goes on; slurm-adapter stop {job_id} ends it")
        raise
    finally:
        fleet.close()


def _follow(
    record: Record,
    job: JobRecord,
    fleet: AgentFleet,
    show: Callable[[Event], None],
    unreached: list[str],
) -> int:
    """Show a detached job until it ends, in place of its head where that is gone."""
    in_charge = head_lives(job.head) is False and record.ended() is None
    status, words = follow.Following(fleet, show, say).run(in_charge=in_charge)
    ended = record.ended()
    if ended is not None:
        if ended[0] != 0:
            say(f"{record.job_id}: {ended[1]}")
        return ended[0]
    if fleet.left_alone or unreached:
        left = "; ".join([*unreached, *fleet.left])
        say(f"{record.job_id} goes on where it could not be reached: {left}")
    elif in_charge or head_lives(job.head) is False:  # it may have lost sight of some ranks
        record.end(status, words)
    return status


def _note_if_ended(record: Record, job: JobRecord, found: dict[int, Ended]) -> int:
    """Keep how a job ended whose head did not live to see it; return 0: its output was shown."""
    ranks = sum(host.ranks for host in job.hosts)
    if record.ended() is None and not head_lives(job.head) and len(found) == ranks:
        failed = min(
            (one for one in found.values() if one.status), key=lambda one: one.at_s, default=None
        )
        if failed is None:
            record.end(0, "done")
        else:
            record.end(failed.status, f"rank {failed.rank} failed: {failed.how}")
    return 0


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
            going_on = stay and record.ended() is None and head_lives(job.head)
            for rank, file in enumerate(files):
                while lines := file.read(1 << 18):
                    show(Output(rank, _whole(lines, file.readline()), is_error=False))
            if not going_on:
                ended = record.ended()
                return ended[0] if stay and ended is not None else 0
            time.sleep(_LOOK_S)
    finally:
        for file in files:
            file.close()


def _whole(lines: bytes, rest: bytes) -> bytes:
    """Complete a read's last line; the head writes whole ones."""
    data = lines + rest if not lines.endswith(b"\n") else lines
    return data if data.endswith(b"\n") else data + b"\n"


def stop_job(job_id: str) -> int:
    """End a job on all its hosts, and return 0 once that is confirmed."""
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
    fleet, unreached = _connect(job)
    try:
        follow.attach(job, fleet, stay=True)
        follow.end(fleet)
    finally:
        fleet.close()
    left = [*unreached, *fleet.left]
    if not left:
        record.end(_STOPPED, "stopped by you")
    return _confirmed(job_id, left)


def _stop_head(record: Record, job: JobRecord) -> None:
    """Tell a job's head to end it, and wait until it has ended itself."""
    os.kill(int(job.head.split(" ")[1]), signal.SIGTERM)
    deadline = time.monotonic() + job.grace_s + job.link_s + _CONFIRM_S
    while record.ended() is None and head_lives(job.head):
        if time.monotonic() > deadline:
            raise ClusterUnfitError(f"{record.job_id} has not ended yet", "Try once more.")
        time.sleep(_LOOK_S)


def _confirmed(job_id: str, left: list[str]) -> int:
    for words in left:
        say(f"not confirmed: {words}")
    say(f"{job_id} was stopped" if not left else f"{job_id} was told to stop")
    return 4 if left else 0


def _connect(job: JobRecord) -> tuple[AgentFleet, list[str]]:
    """Return an agent on each node that can be reached, and words for each that cannot.

    Raises:
        ClusterUnfitError: none can.
    """
    nodes = [
        Node(host.name, address=host.address, user=host.user, port=host.port, python=host.python)
        for host in job.hosts
    ]

    def begin(connection: Connection, index: int) -> Agent:
        agent = Agent(connection, index, job.hosts[index].python, job.run)
        agent.begin(_CONNECT_S)
        return agent

    dialed = dial(nodes, begin, retry_s=_CONNECT_S, say=say)
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
    job = record.read()
    if job is None:
        raise BadValueError(f"the record of {job_id} in {record.folder} cannot be read")
    return record, job


def _folder() -> Path:
    return state_folder(os.environ)

"""Jobs over SSH that were started from here: how they are, and what their ranks have written."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from slurm_adapter.cli.report import say
from slurm_adapter.cluster import Node
from slurm_adapter.cluster.hostlist import fold_hostlist
from slurm_adapter.errors import (
    NODE_LOST,
    AdapterError,
    BadValueError,
    ClusterUnfitError,
    signal_status,
)
from slurm_adapter.launch.ssh import follow
from slurm_adapter.launch.ssh.fleet import AgentFleet, Timing
from slurm_adapter.launch.ssh.records import (
    HEAD_KILLED,
    NOT_STARTED,
    all_records,
    find_record,
    head_host,
    head_lives,
    state_folder,
)
from slurm_adapter.node.ranks.events import Lost, Output
from slurm_adapter.node.ranks.supervise import LeftError, Supervisor
from slurm_adapter.remote.start_agents import begin_agents
from slurm_adapter.show.lines import LinePrinter, rank_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_adapter.launch.ssh.records import JobRecord, Record
    from slurm_adapter.node.ranks.events import Event

_CONNECT_S = 60.0
LOOK_S = 0.2
_MOST_SHOWN = 5
_NOTED_S = 5.0
"""What a head may take, once all is gone, to keep how the job ended."""


def rows() -> list[tuple[str, ...]]:
    """Return what is shown of each job that there is a record of."""
    return [row for record in all_records(_folder()) if (row := _row(record))]


def _row(record: Record) -> tuple[str, ...] | None:
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
    record, job = find(job_id)
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
        return signal_status(signal.SIGPIPE) if stay else 0
    except OSError as error:
        raise AdapterError(f"the output cannot be shown: {error.strerror}") from error


def _say_it_goes_on(record: Record) -> None:
    if record.ended() is None:
        say(f"{record.job_id} goes on; slurm-adapter stop {record.job_id} ends it")


def _from_hosts(
    record: Record, job: JobRecord, show: Callable[[Event], None], *, stay: bool
) -> int:
    """Show what the hosts of a detached job have kept."""
    fleet, without = connect(job)
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
        time.sleep(LOOK_S)


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
    first_failure, over = follow.collect(fleet, show)
    if head_lives(job.head) is not False or record.ended() is not None:
        return
    if len(over) < sum(host.ranks for host in job.hosts):
        return
    if not first_failure.failed:
        record.end(0, "done", say)
        return
    first = first_failure.first()
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
            time.sleep(LOOK_S)
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


def connect(job: JobRecord) -> tuple[AgentFleet, list[str]]:
    """Return an agent on each node that can be reached, and words for each that cannot.

    Raises:
        ClusterUnfitError: none can.
    """
    nodes = [
        Node(host.name, address=host.address, user=host.user, port=host.port, python=host.python)
        for host in job.hosts
    ]
    # Each host's own interpreter is in the record.
    connected = begin_agents(nodes, "", job.run, _CONNECT_S, say)
    unreached = [f"{failure.node.name}: {failure.reason}" for failure in connected.failures]
    agents = connected.at_least(0)
    if not agents:
        raise ClusterUnfitError(
            "no host of the job can be reached\n" + "\n".join(unreached[:_MOST_SHOWN]),
            "What runs there goes on.",
        )
    return AgentFleet(agents, Timing(job.grace_s, job.link_s, detached=True), say), unreached


def find(job_id: str) -> tuple[Record, JobRecord]:
    """Return a job's record, and what stands in it.

    Raises:
        BadValueError: there is none, or it cannot be read.
    """
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

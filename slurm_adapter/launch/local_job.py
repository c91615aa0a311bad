"""A job on this machine: started, shown and watched until nothing of it remains.

`run_local` does it in this process, which the command line's may be; `launch_local` has a head do
it, because a program's own process is no place for that: all its orphans would become ours.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.launch.boot_files import boot_warnings
from slurm_adapter.launch.exit_signals import exiting_when_stopped, run_without_leftovers
from slurm_adapter.launch.handle import JobHandle, JobState
from slurm_adapter.launch.head import start_head
from slurm_adapter.launch.local import install_packages, prepare_local, start_here
from slurm_adapter.launch.node_logs import NodeLogs
from slurm_adapter.launch.observer import Observer
from slurm_adapter.launch.rank_logs import RankLogs, RankReader
from slurm_adapter.launch.records import End
from slurm_adapter.launch.request import GRACE_S, LocalRequest
from slurm_adapter.node.job_files import make_folder, make_referenced_directories
from slurm_adapter.node.ranks.supervise import Supervisor
from slurm_adapter.node.system.processes import raise_descriptor_limit
from slurm_adapter.node.view.directories import remove_run
from slurm_adapter.output import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slurm_adapter.errors import AdapterError
    from slurm_adapter.job.job import Job
    from slurm_adapter.launch.handle import Say
    from slurm_adapter.launch.head import Head
    from slurm_adapter.launch.local import LocalRun
    from slurm_adapter.launch.observer import Chunk
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.plan import Plan

_LOOK_S = 0.1
_DONE = "done"


@dataclass(frozen=True)
class HeadRequest:
    """What a head is asked for."""

    local: LocalRequest
    folder: str
    """Where the ranks' output is kept, absolute."""


def run_local(
    request: LocalRequest,
    observer: Observer,
    refused: Callable[[AdapterError], int] = complain,
    folder: str | None = None,
) -> int:
    """Start a job as what this process is for, and stay; return its exit status.

    Signals and the terminal's keys end it, and nothing of it outlives this process.

    Args:
        request: the job.
        observer: told of all that happens.
        refused: told why nothing was started; returns the exit status.
        folder: where a file for each rank's output is made; None: nowhere.
    """
    raise_descriptor_limit()
    return run_without_leftovers(lambda: _start(request, observer, folder), refused)


def run_in_head(
    request: HeadRequest, observer: Observer, refused: Callable[[AdapterError], int]
) -> int:
    """Do so in a head, whose starter reads the output from files."""
    return run_local(request.local, observer, refused, request.folder)


def _start(request: LocalRequest, observer: Observer, folder: str | None) -> int:
    job = request.job
    with exiting_when_stopped(), ExitStack() as stack:
        run = prepare_local(job, os.environ)
        stack.callback(remove_run, job.folder, run.plan.workers)
        stack.callback(run.close)
        for warning in (*run.warnings, *boot_warnings(run.plan)):
            observer.warn(warning)
        observer.planned(run.plan)
        make_referenced_directories(run.plan.job, run.plan.first_rank.referenced_directories)
        make_folder(job.log_folder, job.folder)
        install_packages(run.plan, os.environ)
        return _run(run, request.grace_s, observer, list(_logs(run.plan, folder, stack)))


def _run(
    run: LocalRun, grace_s: float, observer: Observer, logs: Sequence[NodeLogs | RankLogs]
) -> int:
    plan, what, said = run.plan, run.plan.contract.starts, [_DONE]

    def take(event: Event) -> None:
        for log in logs:
            log.take(event)
        observer.show(event)

    def say(text: str) -> None:
        said.append(text)
        observer.say(text)

    fleet = start_here(run, os.environ)
    with observer.running(plan, ""):
        observer.detail(f"{plan.world_size} {what}s started, rendezvous port {plan.run.port}")
        supervisor = Supervisor(
            fleet,
            show=take,
            say=say,
            name=lambda rank: f"{what} {rank}",
            grace_s=grace_s,
        )
        status = supervisor.run()
    # The first thing that was said is why it ended.
    observer.ended(End(status, said[1] if said[1:] else _DONE, stopped=supervisor.stopped))
    return status


def _logs(plan: Plan, folder: str | None, stack: ExitStack) -> Iterator[NodeLogs | RankLogs]:
    """Yield what keeps output in files: the nodes', where a contract has one rank on each node."""
    if plan.contract.names_workers:
        yield stack.enter_context(closing(NodeLogs(plan)))
    if folder is not None:
        yield stack.enter_context(closing(RankLogs(_rank_file(folder), plan.world_size)))


def _rank_file(folder: str) -> Callable[[int], Path]:
    return lambda rank: Path(folder) / f"rank-{rank}.log"


def launch_local(
    job: Job, *, grace_s: float = GRACE_S, observer: Observer | None = None
) -> JobHandle:
    """Start a job on this machine, N nodes simulated; return when all its ranks run.

    The job ends with this process. What its ranks write is kept as long as the handle.

    Args:
        job: what to run.
        grace_s: seconds from SIGTERM to SIGKILL when ranks are ended.
        observer: told what people should know, by a thread of this process; None: the standard
            library's logging is, as `slurm_adapter`.

    Raises:
        AdapterError: nothing runs then.
    """
    request = LocalRequest(job, grace_s)
    folder = tempfile.mkdtemp(prefix="slurm-adapter-")
    try:
        head = start_head("local", HeadRequest(request, folder), observer or Observer())
        ranks = int(head.begun())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return LocalJob(head, folder, ranks)


class LocalJob(JobHandle):
    """A job here, watched by a head that ends with this process."""

    def __init__(self, head: Head, folder: str, ranks: int) -> None:
        """Take over what was started."""
        self._head, self._folder, self._ranks = head, folder, ranks
        self._status = 1
        self._thread = threading.Thread(target=self._attend, name=self.id, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _attend(self) -> None:
        self._status = self._head.attend()

    @property
    def id(self) -> str:
        """Its name; `find_job` knows none that runs here."""
        return f"local-{self._head.pid}"

    @property
    def nodes(self) -> Sequence[tuple[str, range]]:
        """See `JobHandle.nodes`."""
        return [("", range(rank, rank + 1)) for rank in range(self._ranks)]

    def state(self) -> JobState:
        """See `JobHandle.state`."""
        if self._thread.is_alive():
            return JobState("running")
        end = self._head.end or End(self._status, "its head was killed")
        if end.stopped:
            return JobState("stopped", end.status, end.words)
        if self._head.end is None:
            return JobState("lost", end.status, end.words)
        return JobState("failed" if end.status else "done", end.status, end.words)

    def wait(self) -> int:
        """See `JobHandle.wait`."""
        self._thread.join()
        return self._status

    def stream(self, show: Callable[[Chunk], None], say: Say, *, heed_signals: bool = False) -> int:
        """See `JobHandle.stream`; its observer hears what is to be told."""
        del say, heed_signals
        with closing(self._reader()) as reader:
            while True:
                # In this order: once it has ended, all has been written.
                over = not self._thread.is_alive()
                for chunk in reader.chunks():
                    show(chunk)
                if over:
                    return self.wait()
                time.sleep(_LOOK_S)

    def chunks(self, say: Say) -> Iterator[Chunk]:
        """See `JobHandle.chunks`."""
        del say
        with closing(self._reader()) as reader:
            yield from reader.chunks()

    def stop(self, say: Say | None = None) -> JobState:
        """See `JobHandle.stop`."""
        del say
        if self._thread.is_alive():
            self._head.let_end()
            self._thread.join()
        return self.state()

    def close(self) -> None:
        """End it, should it run still, and let go of its output."""
        self.stop()
        self._head.leave()
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.close)

    def _reader(self) -> RankReader:
        return RankReader(_rank_file(self._folder), self._ranks)

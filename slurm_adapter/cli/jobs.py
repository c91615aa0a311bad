"""`jobs`, `logs` and `stop`: what was started from here, seen and ended again."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from slurm_adapter.errors import AdapterError, printable, signal_status
from slurm_adapter.launch import jobs
from slurm_adapter.launch.handle import StopNotConfirmedError
from slurm_adapter.launch.store import Store, is_slurm
from slurm_adapter.node.ranks.supervise import LeftError
from slurm_adapter.output import say, write_stdout
from slurm_adapter.show.observers import OutputPrinter

if TYPE_CHECKING:
    from slurm_adapter.launch.handle import JobHandle
    from slurm_adapter.launch.summary import JobSummary

_HEADER = ("JOB", "NAME", "STARTED", "RANKS", "STATE", "HOSTS")


def list_jobs(*, everybody: bool) -> int:
    """Print a line for each job there is a record of; with `everybody` for others of Slurm, too."""
    found = jobs.list_jobs(say, everybody=everybody)
    if found:
        rows = [_HEADER, *map(_cells, found)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER) - 1)]
        write_stdout("".join(_row(row, widths) for row in rows))
    else:
        say("no jobs were started from here")
    return 0


def _cells(job: JobSummary) -> tuple[str, ...]:
    started = job.started_s
    when = "-" if started is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(started))
    ranks = "-" if job.ranks is None else str(job.ranks)
    cells = (job.id, job.name, when, ranks, job.state, job.hosts)
    return tuple(map(printable, cells))


def _row(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    return "  ".join([*cells, row[-1]]) + "\n"


def remove_snapshots() -> int:
    """Remove the code's copies of jobs of Slurm that have ended."""
    from slurm_adapter.launch.batch.listing import remove_snapshots

    remove_snapshots(Store(), say)
    return 0


def show_logs(job_id: str, *, stay: bool, raw: bool = False) -> int:
    """Print what a job's ranks have written; with `stay` until it ends: its exit status then."""
    with jobs.find_job(job_id) as job:
        if stay:
            return follow(job, raw=raw)
        show = _printer(job, raw=raw).show
        try:
            for chunk in job.chunks(say):
                show(chunk)
        except BrokenPipeError:  # whoever read it has seen enough
            pass
        except OSError as error:
            raise _cannot_show(error) from error
    return 0


def follow(job: JobHandle, *, output: bool = True, raw: bool = False) -> int:
    """Stay with a job until it ends, and print its output; return its exit status."""
    show = _printer(job, raw=raw).show if output else _nothing
    try:
        return job.stream(show, say, heed_signals=True)
    except KeyboardInterrupt:
        _say_it_goes_on(job)
        raise
    except LeftError as left:
        _say_it_goes_on(job)
        return left.status
    except BrokenPipeError:  # whoever read it has seen enough
        return signal_status(signal.SIGPIPE)
    except OSError as error:
        raise _cannot_show(error) from error


def _nothing(chunk: object) -> None:
    del chunk


def _printer(job: JobHandle, *, raw: bool) -> OutputPrinter:
    return OutputPrinter(job.nodes, own_log=job.node_logs, raw=raw)


def _say_it_goes_on(job: JobHandle) -> None:
    if not job.has_ended:
        name = f"job {job.id.partition('@')[0]}" if is_slurm(job.id) else job.id
        say(f"{name} goes on; slurm-adapter stop {job.id} ends it")


def _cannot_show(error: OSError) -> AdapterError:
    return AdapterError(f"the output cannot be shown: {error.strerror}")


def stop_job(job_id: str) -> int:
    """End a job on all its nodes, and return 0 once that is confirmed."""
    with jobs.find_job(job_id) as job:
        try:
            job.stop(say)
        except StopNotConfirmedError as error:  # it has been said what is not
            return error.exit_status
    return 0

"""`jobs`, `logs` and `stop`: what was started from here, seen and ended again.

Jobs of Slurm have a number, with a login node behind it perhaps, and are in `cli.batch`; those
over SSH are called ssh-N, and are in `cli.sshjobs`.
"""

from __future__ import annotations

from slurm_adapter.cli import slurm_jobs, ssh_jobs, ssh_stop
from slurm_adapter.cli.report import say
from slurm_adapter.output import write_stdout


def list_jobs(*, everybody: bool) -> int:
    """Print a line for each job there is a record of; with `everybody` for others of Slurm, too."""
    lines = [*ssh_jobs.rows(), *slurm_jobs.rows(everybody=everybody)]
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


def show_logs(job_id: str, *, stay: bool) -> int:
    """Print what a job's ranks have written; with `stay` until it ends: its exit status then."""
    if slurm_jobs.is_batch(job_id):
        return slurm_jobs.show_logs(job_id, stay=stay)
    return ssh_jobs.show_logs(job_id, stay=stay)


def stop_job(job_id: str) -> int:
    """End a job on all its nodes, and return 0 once that is confirmed."""
    if slurm_jobs.is_batch(job_id):
        return slurm_jobs.stop_job(job_id)
    return ssh_stop.stop_job(job_id)

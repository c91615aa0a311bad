"""The jobs that were started from here, found again by any process of their user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.cluster.hostlist import fold_hostlist
from slurm_adapter.errors import AdapterError
from slurm_adapter.launch.records import HEAD_KILLED
from slurm_adapter.launch.store import Store, is_slurm
from slurm_adapter.launch.summary import JobSummary
from slurm_adapter.node.system.identity import lives, machine_of

if TYPE_CHECKING:
    from slurm_adapter.launch.handle import JobHandle, Say
    from slurm_adapter.launch.records import SshRecord
    from slurm_adapter.launch.store import SshEntry


def find_job(job_id: str) -> JobHandle:
    """Return a job that was started from here.

    Args:
        job_id: as `slurm-adapter jobs` lists it: `ssh-3`, `4711`, or `4711@LOGIN` where another
            cluster has a job of that number.

    Raises:
        AdapterError: there is no record of such a job, or it cannot be read.
    """
    store = Store()
    if is_slurm(job_id):
        from slurm_adapter.launch.batch.job import SlurmJob

        return SlurmJob(store.find_slurm(job_id), store)
    from slurm_adapter.launch.ssh.job import SshJob  # loads what connects

    return SshJob(store.find_ssh(job_id))


def list_jobs(say: Say, *, everybody: bool) -> list[JobSummary]:
    """Return each job there is a record of; with `everybody` the user's others of Slurm, too."""
    from slurm_adapter.launch.batch.listing import summaries

    store = Store()
    over_ssh = [one for entry in store.ssh_entries() if (one := _over_ssh(entry))]
    return [*over_ssh, *summaries(store, say, everybody=everybody)]


def _over_ssh(entry: SshEntry) -> JobSummary | None:
    """Return what is shown of a job; None where its record is still being made."""
    try:
        job = entry.read()
    except AdapterError as error:
        return JobSummary(entry.job_id, "-", state=error.found)
    if job is None:
        return None
    hosts = fold_hostlist(job.host_names)
    return JobSummary(entry.job_id, job.name, job.started_s, job.ranks, _state(entry, job), hosts)


def _state(entry: SshEntry, job: SshRecord) -> str:
    alive, ended = lives(job.head), entry.ended()
    if ended is not None and ended.words != HEAD_KILLED:
        return "done" if ended.status == 0 else f"ended {ended.status}"
    kind = "detached" if job.detached else "running"
    if alive is None and ended is None:
        return f"{kind}, watched from {machine_of(job.head)}"
    if alive:
        return kind
    if job.detached:
        return "detached, its head is gone: logs -f takes it over"
    return HEAD_KILLED

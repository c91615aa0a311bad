"""Where a job of Slurm is asked for: here, or on the login node it was submitted through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.remote.submit_host import LocalHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_adapter.launch.records import SlurmRecord
    from slurm_adapter.remote.submit_host import SubmitHost

    Say = Callable[[str], None]


def open_host(record: SlurmRecord, say: Say) -> SubmitHost:
    """Return the submit host of a job, which is given up where it cannot be reached."""
    if not record.login:
        return LocalHost()
    from slurm_adapter.remote.login_host import open_login  # connects

    return open_login(record.login, say, record.python)


def keep_open(record: SlurmRecord, say: Say, submit_host: SubmitHost | None = None) -> SubmitHost:
    """Return the submit host of a job, which is opened again where it is lost.

    Args:
        record: the job.
        say: gets what is to be told.
        submit_host: its submit host, where that is open already.
    """
    if not record.login:
        return LocalHost()
    from slurm_adapter.remote.reconnecting import ReconnectingHost  # connects

    def again() -> SubmitHost:
        return open_host(record, say)

    return ReconnectingHost(submit_host or again(), again, say, f"job {record.job_id}")

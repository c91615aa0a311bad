"""A request to a login node: paths that lie there, code that lies here, one connection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_adapter.launch import slurm
from slurm_adapter.launch.batch import login_job
from slurm_adapter.launch.batch.request import SubmitRequest, UploadResult, zipapp_path
from slurm_adapter.launch.container_runtime import in_container
from slurm_adapter.launch.script.environment import check_syntax
from slurm_adapter.launch.script.zipapp import write_zipapp, zipapp_words
from slurm_adapter.launch.snapshot import folder_of, planned
from slurm_adapter.launch.ssh.start import crossing
from slurm_adapter.record import replace
from slurm_adapter.remote.login_host import open_login, read_login

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_adapter.job.job import Job
    from slurm_adapter.remote.code import Code
    from slurm_adapter.remote.login_host import LoginHost

_NOT_KNOWN = "/<home>"
"""The home directory of a login node that has not been asked."""


def request_at_login_host(
    login: str, job: Job, say: Callable[[str], None], *, connect: bool
) -> SubmitRequest:
    """Return what to submit through a login node.

    Args:
        login: `[user@]host`.
        job: its code lies here, every other place there; `remote_paths.HOME` or `~` stands for
            the home directory there.
        say: gets warnings.
        connect: whether the login node is connected to.

    Raises:
        AdapterError: for what cannot be meant, or reached.
    """
    read_login(login)
    check_syntax(job.prologue)
    job.check_kept(os.environ)
    kept = {name: os.environ[name] for name in job.keep}
    job = replace(job, env={**kept, **job.env}, keep=())
    found = login_job.code_of(job)
    more = {item.name: item.value for item in crossing(os.environ) if item.name not in job.env}
    if not connect:
        return _there(job, found, login, None, more)
    # An image's interpreter is none of the login node's.
    wanted = job.python if "/" in job.python and job.container is None else ""
    submit_host = open_login(login, say, wanted)
    try:
        slurm.check_there(submit_host)
        return _there(job, found, login, submit_host, more)
    except BaseException:
        submit_host.close()
        raise


def _there(
    job: Job, found: Code, login: str, submit_host: LoginHost | None, more: Mapping[str, str]
) -> SubmitRequest:
    """Return the request of a job whose paths lie there, its code here."""
    home, python = (
        (_NOT_KNOWN, "python3") if submit_host is None else (submit_host.home, submit_host.python)
    )
    program, copied = job.program, f"{found.told}, from {found.folder} to {login}"
    if submit_host is None:
        copied += f", where {_NOT_KNOWN} is your home directory"
    job = in_container(login_job.rebased(planned(job), home), submit_host)
    return SubmitRequest(
        job,
        program,
        submit_host,
        zipapp_words(python, zipapp_path(job)),
        home,
        lambda: _upload(found, job, submit_host),
        snapshot=folder_of(job),
        warnings=(
            *found.warnings,
            *(login_job.missing(job, submit_host) if submit_host is not None else ()),
        ),
        login=login,
        files=(zipapp_path(job), f"{job.code}/"),
        copied=copied,
        more=more,
    )


def _upload(found: Code, job: Job, submit_host: LoginHost | None) -> UploadResult:
    """Have the code, and what makes ranks of tasks, where the nodes of the cluster find them."""
    if submit_host is None:
        return UploadResult()
    write_zipapp(submit_host, job.folder)
    synced = login_job.copy(found, job, submit_host)
    # The first of its warnings are those of the code, which have been told.
    copied = synced.hosts[0]
    told = (
        f"{found.told}, on {submit_host.login} in {synced.seconds:.1f} s: {copied.changed:,} sent"
    )
    return UploadResult(synced.warnings[len(found.warnings) :], f"code: {told}")

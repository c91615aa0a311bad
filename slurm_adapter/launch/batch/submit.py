"""`submit`: a job becomes a script, and Slurm's. What is shown of it is what is submitted."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from slurm_adapter.errors import AdapterError, BadValueError
from slurm_adapter.launch import slurm
from slurm_adapter.launch.batch.job import SlurmJob
from slurm_adapter.launch.batch.preview import preview, preview_run
from slurm_adapter.launch.batch.request import SubmitRequest, request_here
from slurm_adapter.launch.boot_files import boot_warnings
from slurm_adapter.launch.handle import unheard
from slurm_adapter.launch.observer import Observer
from slurm_adapter.launch.records import SlurmRecord
from slurm_adapter.launch.script import sbatch
from slurm_adapter.launch.script.log_path import log_file
from slurm_adapter.launch.script.sbatch import HEADER, Script
from slurm_adapter.launch.script.time_and_failures import CHAIN
from slurm_adapter.launch.script.zipapp import PLAIN_NAME, zipapp_name
from slurm_adapter.launch.store import Store
from slurm_adapter.plan import Plan, make_plan
from slurm_adapter.remote.submit_host import LocalHost
from slurm_adapter.remote.transport.port import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slurm_adapter.job.job import Job
    from slurm_adapter.launch.handle import JobHandle
    from slurm_adapter.launch.slurm import Submission
    from slurm_adapter.remote.submit_host import SubmitHost

_HEAD_BYTES = 200


def submit(
    job: Job, *, login: str = "", snapshot: bool = False, observer: Observer | None = None
) -> JobHandle:
    """Submit a job to Slurm; return when Slurm has taken it.

    Args:
        job: what to run.
        login: `[user@]host` of a cluster's login node that it is submitted through: the job's code
            lies here and is copied there; all its other paths are meant there, and may begin with
            `~/`. Empty: this machine has Slurm's commands.
        snapshot: whether the job gets a copy of its code, which later edits do not reach; through
            a login node it always does.
        observer: told what people should know; None: the standard library's logging is, as
            `slurm_adapter`.

    Raises:
        AdapterError: Slurm has not taken it.
    """
    observer = observer or Observer()
    request = make_request(job, observer.warn, login=login, snapshot=snapshot)
    try:
        job.check_kept(os.environ)
        return PreparedJob.of(request).submit(observer)[0]
    except BaseException:
        request.close()
        raise


def make_script(job: Job) -> Script:
    """Return the script that `submit` would give to Slurm, which need not be here.

    Raises:
        AdapterError: for what cannot be meant.
    """
    return PreparedJob.of(make_request(job, unheard)).script


def make_request(
    job: Job,
    say: Callable[[str], None],
    *,
    login: str = "",
    snapshot: bool = False,
    connect: bool = True,
) -> SubmitRequest:
    """Return what to submit where; the arguments are those of `submit`.

    Args:
        job: what to run.
        say: gets warnings of what is connected to.
        login: a login node.
        snapshot: whether the job gets a copy of its code.
        connect: whether a login node is connected to.

    Raises:
        AdapterError: for what cannot be meant, or reached.
    """
    if not login:
        return request_here(job, snapshot=snapshot)
    from slurm_adapter.launch.batch.login import request_at_login_host  # SSH, pathspec

    return request_at_login_host(login, job, say, connect=connect)


@dataclass(frozen=True)
class PreparedJob:
    """A job with all that Slurm is to be given."""

    request: SubmitRequest
    plan: Plan
    """As far as it is known before Slurm has chosen nodes."""
    script: Script
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, request: SubmitRequest, preview_nodes: str | None = None) -> PreparedJob:
        """Return a request's plan and script; `preview_nodes` are names for nodes to come."""
        job, host = request.job, request.submit_host
        site = frozenset() if host is None else slurm.site_options(host)
        # Its name is that of its content, which is made for it.
        zipapp = zipapp_name() if job.container is not None else PLAIN_NAME
        made = sbatch.make_script(job, request.adapter, request.base, site, zipapp)
        plan = make_plan(job, preview(job, preview_nodes), preview_run(job))
        boot = boot_warnings(plan, request.program)
        return cls(request, plan, made, (*plan.warnings, *made.warnings, *boot, *request.warnings))

    @property
    def path(self) -> Path:
        """Where the script is written."""
        return Path(self.request.job.folder) / f"{self.request.job.file_stem}.sbatch"

    @property
    def files(self) -> tuple[str, ...]:
        """What is made before it is submitted, absolute; folders end in `/`."""
        folders = (f"{folder}/" for folder in self.script.folders)
        return (*folders, str(self.path), *self.request.files)

    def tested(self) -> tuple[bool, str] | None:
        """Return whether Slurm would take it, and what it says; None where there is no Slurm."""
        host = self.request.submit_host
        if host is None or not slurm.have_sbatch(host):
            return None
        return slurm.test_only(host, self.script)

    def submit(self, observer: Observer) -> tuple[SlurmJob, Submission]:
        """Have all there that the job needs, and submit it; a copy for nothing goes again.

        Returns:
            The job, which has the submit host from now on, and what sbatch said.
        """
        request, host = self.request, self.request.submit_host
        if host is None:
            raise BadValueError("a login node that was not connected to takes no job")
        submissions: list[Submission] = []
        self.warn(observer)
        with _undone(host, request.snapshot, submissions, observer.say):
            self.upload(observer)
            slurm.make_folders(host, self.script)
            slurm.write_script(host, self.script, self.path)
            submissions.extend(self._submitted(host))
        records = list(self._records(submissions))
        store = Store()
        for record in records:
            store.keep(record, observer.say)
        return SlurmJob(records[0], store, host), submissions[0]

    def warn(self, observer: Observer) -> None:
        """Tell what may be wrong with it."""
        for warning in self.warnings:
            observer.warn(warning)

    def upload(self, observer: Observer) -> None:
        """Have all there that the job takes along."""
        uploaded = self.request.upload()
        for warning in uploaded.warnings:
            observer.warn(warning)
        if uploaded.done:
            observer.note(uploaded.done)

    def write(self, file: str) -> None:
        """Write the script to a file that the user names; nothing else is overwritten.

        Raises:
            AdapterError: it is no place for a script.
        """
        slurm.make_folders(LocalHost(), self.script)
        slurm.write_script(LocalHost(), self.script, _script_path(file))

    def _submitted(self, host: SubmitHost) -> Iterator[Submission]:
        """Submit it, and after it those jobs that may have to go on where it has to stop."""
        made = self.script
        more = {**self.request.more, **({CHAIN: uuid4().hex} if made.resubmissions else {})}
        submission = slurm.submit(host, made, self.path, more)
        yield submission
        for _ in range(made.resubmissions):
            submission = slurm.submit(host, made, self.path, more, after=submission.job_id)
            yield submission

    def _records(self, submissions: Sequence[Submission]) -> Iterator[SlurmRecord]:
        request, job, summary = self.request, self.plan.job, self.script.summary
        base = str(Path(request.base) / (summary.get("chdir") or ""))
        ids = [one.job_id for one in submissions]
        for position, one in enumerate(submissions, 1):
            yield SlurmRecord(
                job_id=one.job_id,
                cluster=one.cluster,
                name=job.name,
                folder=job.folder,
                log=log_file(summary["output"] or "", base, one.job_id),
                nodes=job.all_nodes,
                ranks=self.plan.script_world_size,
                node_logs=self.plan.contract.names_workers,
                submitted_s=time.time(),
                then=tuple(ids[position:]),
                snapshot=request.snapshot,
                login=request.login,
                python=request.submit_host.python if request.submit_host is not None else "",
            )


@contextmanager
def _undone(
    host: SubmitHost,
    snapshot: str,
    submissions: Sequence[Submission],
    say: Callable[[str], None],
) -> Iterator[None]:
    """Take the copy of the code away where no job came of it; say where one has."""

    def tell() -> None:
        for one in submissions:
            say(f"job {one.job_id} was submitted before that; scancel {one.job_id} ends it")

    try:
        yield
    except ConnectionLostError:  # there may be a job
        tell()
        raise
    except AdapterError:
        tell()
        if snapshot and not submissions:
            with suppress(AdapterError):
                host.remove(snapshot)
        raise


def _script_path(file: str) -> Path:
    """Return where to write a script that the user names; nothing else is overwritten."""
    path = Path(os.path.realpath(file))
    if not file or path.is_dir() or not path.parent.is_dir():
        raise BadValueError(
            f"{file!r} cannot be the script's file: its folder is not there, or it is one",
            "Give a file in an existing folder, as in --script train.sbatch.",
        )
    if path.is_file() and HEADER not in path.read_bytes()[:_HEAD_BYTES]:
        raise BadValueError(
            f"{file} is there and was not written by slurm-adapter",
            "Take it away first, or give another file with --script.",
        )
    return path

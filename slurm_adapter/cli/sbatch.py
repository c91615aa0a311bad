"""`slurm-adapter sbatch`: write the script, submit it."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from slurm_adapter.cli.preview import preview, preview_run
from slurm_adapter.cli.report import boot_warnings, check_format, print_dry_run, say, warn
from slurm_adapter.cli.submit_request import make_submit_request
from slurm_adapter.errors import AdapterError, BadValueError
from slurm_adapter.launch import slurm
from slurm_adapter.launch.batch.records import BatchRecord, keep, state_folder
from slurm_adapter.launch.script.log_path import log_file
from slurm_adapter.launch.script.sbatch import HEADER, Script, make_script
from slurm_adapter.launch.script.time_and_failures import CHAIN
from slurm_adapter.launch.script.zipapp import PLAIN_NAME, zipapp_name
from slurm_adapter.output import write_stdout
from slurm_adapter.plan import Plan, make_plan
from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.submit_host import LocalHost
from slurm_adapter.remote.transport.port import ConnectionLostError
from slurm_adapter.show.dry_run import DryRun, SlurmAnswer, made_on_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurm_adapter.cli.options import Given
    from slurm_adapter.cli.submit_request import SubmitRequest
    from slurm_adapter.job.options import RunOptions, SbatchOptions
    from slurm_adapter.remote.submit_host import SubmitHost

_HEAD_BYTES = 200


def run_sbatch(given: Given, run: RunOptions, own: SbatchOptions) -> int:
    """Write the script, submit it, and return the exit status."""
    check_format(run.format)
    check_probe(probe=run.probe, dry_run=run.dry_run)
    connect = run.probe or not run.dry_run
    request = make_submit_request(
        given, snapshot=own.snapshot, connect=connect, only_write=own.script is not None
    )
    quiet = run.quiet
    with nullcontext() if request.submit_host is None else closing(request.submit_host):
        if own.script is None:
            request.job.check_kept(os.environ)
        plan, made, warnings = _made(request, own.preview_nodes)
        path = Path(request.job.folder) / f"{request.job.file_stem}.sbatch"
        if run.dry_run or request.submit_host is None:
            print_dry_run(_dry_run(plan, made, path, warnings, request), run.format)
            return 0
        if not quiet:
            warn(warnings)
        if own.script is not None:
            _deliver(request, quiet=quiet)
            return _only_write(made, own.script, quiet=quiet)
        submissions = _bring(request, request.submit_host, made, path, quiet=quiet)
        sys.stderr.write(submissions[0].said)
        sys.stderr.flush()
        write_stdout(f"{submissions[0].job_id if own.parsable else submissions[0].line}\n")
        if not quiet:
            _tell(plan, made, submissions[0], path if run.verbose else None)
        records = _keep(plan, made, submissions, request)
        if not (own.follow or own.wait):
            return submissions[0].status
        from slurm_adapter.cli.slurm_jobs import follow  # most do not stay

        return follow(records[0], request.submit_host, output=own.follow)


def _made(
    request: SubmitRequest, preview_nodes: str | None
) -> tuple[Plan, Script, tuple[str, ...]]:
    """Return the plan, the script, and what there is to warn of."""
    job = request.job
    site = frozenset() if request.submit_host is None else slurm.site_options(request.submit_host)
    # Its name is that of its content, which is made for it.
    zipapp = zipapp_name() if job.container is not None else PLAIN_NAME
    made = make_script(job, request.adapter, request.base, site, zipapp)
    plan = make_plan(job, preview(job, preview_nodes), preview_run(job))
    boot = boot_warnings(plan, request.program)
    return plan, made, (*plan.warnings, *made.warnings, *boot, *request.warnings)


def _bring(
    request: SubmitRequest, submit_host: SubmitHost, made: Script, path: Path, *, quiet: bool
) -> list[slurm.Submission]:
    """Have all there that the job needs, and submit it; a copy for nothing goes again."""
    submissions: list[slurm.Submission] = []
    with _undone(submit_host, request.snapshot, submissions):
        _deliver(request, quiet=quiet)
        slurm.make_folders(submit_host, made)
        slurm.write_script(submit_host, made, path)
        submissions.extend(_submit(request, submit_host, made, path))
    return submissions


def check_probe(*, probe: bool, dry_run: bool) -> None:
    """Refuse a look around that would start the job."""
    if probe and not dry_run:
        raise BadValueError(
            "--probe looks around for a dry run, and would start the job without one",
            "Give --dry-run with it, or leave it out.",
        )


def _deliver(request: SubmitRequest, *, quiet: bool) -> None:
    delivered = request.deliver()
    if not quiet:
        warn(delivered.warnings)
        if delivered.done:
            say(delivered.done)


@contextmanager
def _undone(
    submit_host: SubmitHost, snapshot: str, submissions: Sequence[slurm.Submission]
) -> Iterator[None]:
    """Take the copy of the code away where no job came of it; say where one has."""
    try:
        yield
    except ConnectionLostError:  # there may be a job
        _tell_of(submissions)
        raise
    except AdapterError:
        _tell_of(submissions)
        if snapshot and not submissions:
            with suppress(AdapterError):
                submit_host.remove(snapshot)
        raise


def _tell_of(submissions: Sequence[slurm.Submission]) -> None:
    for one in submissions:
        say(f"job {one.job_id} was submitted before that; scancel {one.job_id} ends it")


def _tell(plan: Plan, made: Script, submission: slurm.Submission, path: Path | None) -> None:
    """Say where the job writes; where its script is, too, where that is wanted."""
    job, log = plan.job, made.summary["output"] or ""
    if plan.contract.names_workers:
        say(f"output: {job.log_folder}/{plan.workers.log_name(0).replace('-0.', '-<index>.')}")
    say(f"the job's log: {log.replace('%j', submission.job_id)}")
    if path is not None:
        say(f"script: {path}")


def _submit(
    request: SubmitRequest, submit_host: SubmitHost, made: Script, path: Path
) -> Iterator[slurm.Submission]:
    """Submit a script, and after it those jobs that may have to go on where it has to stop."""
    more = {**request.more, **({CHAIN: uuid4().hex} if made.resubmissions else {})}
    submission = slurm.submit(submit_host, made, path, more)
    yield submission
    for _ in range(made.resubmissions):
        submission = slurm.submit(submit_host, made, path, more, after=submission.job_id)
        yield submission


def _keep(
    plan: Plan, made: Script, submissions: Sequence[slurm.Submission], request: SubmitRequest
) -> list[BatchRecord]:
    """Keep a record of each job that was submitted, and return them."""
    job, log = plan.job, made.summary["output"] or ""
    base = str(Path(request.base) / (made.summary.get("chdir") or ""))
    ids = [one.job_id for one in submissions]
    records = [
        BatchRecord(
            job_id=one.job_id,
            cluster=one.cluster,
            name=job.name,
            folder=job.folder,
            log=log_file(log, base, one.job_id),
            nodes=job.all_nodes,
            ranks=plan.script_world_size,
            node_logs=plan.contract.names_workers,
            submitted_s=time.time(),
            then=tuple(ids[position:]),
            snapshot=request.snapshot,
            login=request.login,
            python=request.submit_host.python if request.submit_host is not None else "",
        )
        for position, one in enumerate(submissions, 1)
    ]
    for record in records:
        keep(state_folder(os.environ), record, say)
    return records


def _dry_run(
    plan: Plan, script: Script, path: Path, warnings: tuple[str, ...], request: SubmitRequest
) -> DryRun:
    answer = None
    if request.submit_host is not None and slurm.have_sbatch(request.submit_host):
        answer = SlurmAnswer(*slurm.test_only(request.submit_host, script))
    files = (
        *(f"{folder}/" for folder in script.folders),
        str(path),
        *request.files,
        *made_on_nodes(plan),
    )
    return DryRun(plan, files, script, answer, warnings, copied=request.copied)


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


def _only_write(script: Script, file: str, *, quiet: bool) -> int:
    if file == "-":
        write_stdout(script.text)
    else:
        slurm.make_folders(LocalHost(), script)
        slurm.write_script(LocalHost(), script, _script_path(file))
    if not quiet:
        missing = [folder for folder in script.folders if not Path(folder).is_dir()]
        for folder in missing:
            say(
                f"before submitting it, make its log folder: {shell_words(['mkdir', '-p', folder])}"
            )
        for name in script.environment:
            say(f"{name} is not written into the script: it must be set when it is submitted")
    return 0

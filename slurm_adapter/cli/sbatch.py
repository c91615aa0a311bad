"""`slurm-adapter sbatch`: write the script, submit it."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.cli.report import check_format, print_dry_run
from slurm_adapter.cli.request import job_from_options, options_from_layers
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.batch import login_job
from slurm_adapter.launch.batch.submit import PreparedJob, make_request
from slurm_adapter.node.job_files import working_directory
from slurm_adapter.output import repeat, say, write_stdout
from slurm_adapter.quoting import shell_words
from slurm_adapter.show.dry_run import DryRun, SlurmAnswer, made_on_nodes
from slurm_adapter.show.observers import MessageObserver

if TYPE_CHECKING:
    from slurm_adapter.cli.options import Given
    from slurm_adapter.job.options import OutputOptions, RunOptions, SbatchOptions
    from slurm_adapter.launch.batch.request import SubmitRequest
    from slurm_adapter.launch.observer import Observer
    from slurm_adapter.launch.slurm import Submission


def run_sbatch(given: Given, run: RunOptions, own: SbatchOptions, output: OutputOptions) -> int:
    """Write the script, submit it, and return the exit status."""
    check_format(run.format)
    _check_probe(run)
    if output.raw and not own.follow:
        raise BadValueError(
            "--raw says how output is shown here, and without --follow nothing is",
            "Give --follow with it, or leave it out; slurm-adapter logs JOB has --raw, too.",
        )
    request = _request(given, run, own)
    observer = MessageObserver(quiet=run.quiet, verbose=run.verbose)
    with closing(request):
        if own.script is None:
            request.job.check_kept(os.environ)
        prepared = PreparedJob.of(request, own.preview_nodes)
        if run.dry_run:
            print_dry_run(_dry_run(prepared), run.format)
            return 0
        if own.script is not None:
            prepared.warn(observer)
            prepared.upload(observer)
            return _only_write(prepared, own.script, observer)
        job, submission = prepared.submit(observer)
        with job:
            repeat(submission.said)
            write_stdout(f"{submission.job_id if own.parsable else submission.line}\n")
            _tell(prepared, submission, observer)
            if not (own.follow or own.wait):
                return submission.status
            from slurm_adapter.cli.jobs import follow  # most do not stay

            return follow(job, output=own.follow, raw=output.raw)


def _request(given: Given, run: RunOptions, own: SbatchOptions) -> SubmitRequest:
    """Return what to submit where."""
    said = options_from_layers(given)
    if not said.login:
        job = job_from_options(said, working_directory())
        return make_request(job, say, snapshot=own.snapshot)
    if own.script is not None:
        raise BadValueError(
            "--script writes a script here, and with --login its code would not be there",
            "Leave one of them out; --dry-run shows the script.",
        )
    there = options_from_layers(given, at_login=True)
    job = job_from_options(there, working_directory())
    if there.job_folder is None:
        job = login_job.with_default_folder(job)
    return make_request(job, say, login=said.login, connect=run.probe or not run.dry_run)


def _check_probe(run: RunOptions) -> None:
    """Refuse a look around that would start the job."""
    if run.probe and not run.dry_run:
        raise BadValueError(
            "--probe looks around for a dry run, and would start the job without one",
            "Give --dry-run with it, or leave it out.",
        )


def _tell(prepared: PreparedJob, submission: Submission, observer: Observer) -> None:
    """Say where the job writes; where its script is, too, where that is wanted."""
    plan, log = prepared.plan, prepared.script.summary["output"] or ""
    if plan.contract.names_workers:
        name = plan.workers.log_name(0).replace("-0.", "-<index>.")
        observer.note(f"output: {plan.job.log_folder}/{name}")
    observer.note(f"the job's log: {log.replace('%j', submission.job_id)}")
    observer.detail(f"script: {prepared.path}")


def _dry_run(prepared: PreparedJob) -> DryRun:
    tested = prepared.tested()
    return DryRun(
        prepared.plan,
        (*prepared.files, *made_on_nodes(prepared.plan)),
        prepared.script,
        None if tested is None else SlurmAnswer(*tested),
        prepared.warnings,
        copied=prepared.request.copied,
    )


def _only_write(prepared: PreparedJob, file: str, observer: Observer) -> int:
    script = prepared.script
    if file == "-":
        write_stdout(script.text)
    else:
        prepared.write(file)
    for folder in script.folders:
        if not Path(folder).is_dir():
            observer.note(
                f"before submitting it, make its log folder: {shell_words(['mkdir', '-p', folder])}"
            )
    for name in script.environment:
        observer.note(f"{name} is not written into the script: it must be set when it is submitted")
    return 0

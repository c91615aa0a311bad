"""`slurm-adapter sbatch`: write the script, submit it."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_adapter.cli.rebase import settings_at_login_host
from slurm_adapter.cli.report import check_format, print_dry_run
from slurm_adapter.cli.request import job_from_settings, settings_from_layers, settings_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.batch import login_job
from slurm_adapter.launch.batch.submit import PreparedJob, make_request
from slurm_adapter.node.job_files import working_directory
from slurm_adapter.output import write_stdout
from slurm_adapter.quoting import shell_words
from slurm_adapter.show.dry_run import DryRun, SlurmAnswer, made_on_nodes
from slurm_adapter.show.messages import say
from slurm_adapter.show.observers import MessageObserver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.launch.batch.request import SubmitRequest
    from slurm_adapter.launch.observer import Observer
    from slurm_adapter.launch.slurm import Submission


def run_sbatch(
    common: dict[str, Any],
    *,
    options: list[str],
    script_file: str | None,
    parsable: bool,
    preview_nodes: str | None,
    snapshot: bool,
    probe: bool,
    stay: str,
    own: Mapping[str, Any],
) -> int:
    """Write the script, submit it, and return the exit status.

    `stay` is `follow` or `wait` where the command stays until the job has ended; `own` are the
    options that are keys of a job file, too.
    """
    check_format(common["format"])
    _check_probe(probe=probe, dry_run=common["dry_run"])
    request = _request(
        common,
        options,
        own,
        snapshot=snapshot,
        connect=probe or not common["dry_run"],
        only_write=script_file is not None,
    )
    observer = MessageObserver(quiet=common["quiet"], verbose=common["verbose"])
    with closing(request):
        if script_file is None:
            request.job.check_kept(os.environ)
        prepared = PreparedJob.of(request, preview_nodes)
        if common["dry_run"]:
            print_dry_run(_dry_run(prepared), common["format"])
            return 0
        if script_file is not None:
            prepared.warn(observer)
            prepared.upload(observer)
            return _only_write(prepared, script_file, observer)
        job, submission = prepared.submit(observer)
        with job:
            sys.stderr.write(submission.said)
            sys.stderr.flush()
            write_stdout(f"{submission.job_id if parsable else submission.line}\n")
            _tell(prepared, submission, observer)
            if not stay:
                return submission.status
            from slurm_adapter.cli.jobs import follow  # most do not stay

            return follow(job, output=stay == "follow")


def _request(
    common: dict[str, Any],
    options: list[str],
    own: Mapping[str, Any],
    *,
    snapshot: bool,
    connect: bool,
    only_write: bool,
) -> SubmitRequest:
    """Return what to submit where."""
    settings = settings_from_layers(settings_of(common, options, own), common["job"])
    if not settings.login:
        job = job_from_settings(settings, working_directory())
        return make_request(job, say, snapshot=snapshot)
    if only_write:
        raise BadValueError(
            "--script writes a script here, and with --login its code would not be there",
            "Leave one of them out; --dry-run shows the script.",
        )
    login = settings.login
    settings = settings_at_login_host(common, options, own)
    job = job_from_settings(settings, working_directory())
    if settings.job_folder is None:
        job = login_job.with_default_folder(job)
    return make_request(job, say, login=login, connect=connect)


def _check_probe(*, probe: bool, dry_run: bool) -> None:
    """Refuse a look around that would start the job."""
    if probe and not dry_run:
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

"""`slurm-adapter local`: start the job here, N nodes simulated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_adapter.cli.report import check_format, print_dry_run
from slurm_adapter.cli.request import job_from_layers
from slurm_adapter.launch import local_job
from slurm_adapter.launch.boot_files import boot_warnings
from slurm_adapter.launch.local import prepare_local
from slurm_adapter.launch.request import LocalRequest
from slurm_adapter.node.system.processes import raise_descriptor_limit
from slurm_adapter.show.dry_run import DryRun, made_on_nodes
from slurm_adapter.show.observers import LocalObserver

if TYPE_CHECKING:
    from slurm_adapter.cli.options import Given
    from slurm_adapter.job.job import Job
    from slurm_adapter.job.options import OutputOptions, RunOptions


def run_local(given: Given, run: RunOptions, output: OutputOptions) -> int:
    """Start the job here and return its exit status."""
    check_format(run.format)
    request = LocalRequest(job_from_layers(given), run.grace_s)
    if run.dry_run:
        return _dry_run(request.job, run.format)
    observer = LocalObserver(quiet=run.quiet, verbose=run.verbose, raw=output.raw)
    return local_job.run_local(request, observer)


def _dry_run(job: Job, form: str) -> int:
    raise_descriptor_limit()
    run = prepare_local(job, os.environ, only_try=True)
    files = (f"{job.log_folder}/", *made_on_nodes(run.plan))
    warnings = (*run.warnings, *boot_warnings(run.plan))
    print_dry_run(DryRun(run.plan, files, warnings=warnings), form)
    return 0

"""`slurm-adapter local`: start the job here, N nodes simulated."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from slurm_adapter.cli.components import refuse_components
from slurm_adapter.cli.exit_signals import check_grace, exiting_when_stopped, leaving_nothing
from slurm_adapter.cli.report import boot_warnings, check_format, print_dry_run, say, warn
from slurm_adapter.cli.request import job_from_layers
from slurm_adapter.launch.local import install_packages, prepare_local, start_here
from slurm_adapter.launch.node_logs import NodeLogs
from slurm_adapter.node.job_files import make_folder, make_referenced_directories
from slurm_adapter.node.ranks.events import Output
from slurm_adapter.node.ranks.supervise import Supervisor
from slurm_adapter.node.system.processes import raise_descriptor_limit
from slurm_adapter.node.view.directories import remove_run
from slurm_adapter.show.dry_run import DryRun, made_on_nodes
from slurm_adapter.show.lines import LinePrinter

if TYPE_CHECKING:
    from slurm_adapter.cli.options import Given
    from slurm_adapter.job.job import Job
    from slurm_adapter.job.options import RunOptions
    from slurm_adapter.launch.local import LocalRun
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.plan import Plan


def run_local(given: Given, run: RunOptions) -> int:
    """Start the job here and return its exit status."""
    check_format(run.format)
    check_grace(run.grace_s)
    job = job_from_layers(given)
    refuse_components(job, "local")
    raise_descriptor_limit()
    if run.dry_run:
        return _dry_run(job, run.format)
    return leaving_nothing(lambda: _start(job, run))


def _start(job: Job, options: RunOptions) -> int:
    with exiting_when_stopped(), ExitStack() as stack:
        run = prepare_local(job, os.environ)
        stack.callback(remove_run, job.folder, run.plan.workers)
        stack.callback(run.close)
        if not options.quiet:
            warn((*run.warnings, *boot_warnings(run.plan)))
        make_referenced_directories(run.plan.job, run.plan.first_rank.referenced_directories)
        make_folder(job.log_folder, job.folder)
        install_packages(run.plan, os.environ)
        return _run(run, _logs(run.plan, stack), options)


def _dry_run(job: Job, form: str) -> int:
    run = prepare_local(job, os.environ, only_try=True)
    files = (f"{job.log_folder}/", *made_on_nodes(run.plan))
    warnings = (*run.warnings, *boot_warnings(run.plan))
    print_dry_run(DryRun(run.plan, files, warnings=warnings), form)
    return 0


def _run(run: LocalRun, logs: NodeLogs | None, options: RunOptions) -> int:
    what = run.plan.contract.starts
    printer = LinePrinter([str(rank) for rank in range(run.plan.world_size)])
    fleet = start_here(run, os.environ)
    if options.verbose:
        say(f"{run.plan.world_size} {what}s started, rendezvous port {run.plan.run.port}")

    def take(event: Event) -> None:
        if logs is not None:
            logs.take(event)
        if isinstance(event, Output):
            printer.show(event)

    supervisor = Supervisor(
        fleet, show=take, say=say, name=lambda rank: f"{what} {rank}", grace_s=options.grace_s
    )
    return supervisor.run()


def _logs(plan: Plan, stack: ExitStack) -> NodeLogs | None:
    """Return the nodes' log files, where the contract has one rank on each node."""
    return stack.enter_context(closing(NodeLogs(plan))) if plan.contract.names_workers else None

"""`slurm-adapter ssh`: start the job on the hosts of a list, and stay until all of it is gone."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from slurm_adapter.cli.hosts import choose_nodes
from slurm_adapter.cli.report import check_format, show_ssh_dry_run
from slurm_adapter.cli.request import files_of, job_from_options, options_from_layers
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.exit_signals import exiting_when_stopped
from slurm_adapter.launch.head import HeadEndedError
from slurm_adapter.launch.request import SshRequest
from slurm_adapter.launch.ssh.launch import job_for_hosts, launch_detached
from slurm_adapter.launch.ssh.run import SshRun
from slurm_adapter.launch.ssh.start import dry_plan, rebase_to_hosts
from slurm_adapter.node.job_files import working_directory
from slurm_adapter.node.system.processes import raise_descriptor_limit
from slurm_adapter.output import write_stdout
from slurm_adapter.record import replace
from slurm_adapter.show.observers import HostsObserver, MessageObserver

if TYPE_CHECKING:
    from slurm_adapter.cli.options import Given
    from slurm_adapter.job.options import OutputOptions, RunOptions, SshOptions
    from slurm_adapter.launch.observer import Observer


def run_ssh(given: Given, run: RunOptions, own: SshOptions, output: OutputOptions) -> int:
    """Start the job on its hosts and return its exit status."""
    check_format(run.format)
    _check(run, own, output)
    request = _request(given, run, own)
    raise_descriptor_limit()
    if run.dry_run:
        return _dry_run(request, run)
    if own.detach:
        return _detached(request, MessageObserver(quiet=run.quiet, verbose=run.verbose))
    observer = HostsObserver(own.logs, quiet=run.quiet, verbose=run.verbose, raw=output.raw)
    with exiting_when_stopped():
        return SshRun(request, observer, heed_signals=True).run()


def _detached(request: SshRequest, observer: Observer) -> int:
    try:
        # Ctrl-C reaches the head, too, which ends in order: it is waited for.
        with exiting_when_stopped(but=(signal.SIGINT,)):
            job = launch_detached(request, observer)
    except HeadEndedError as error:  # it has said why, or was told to by a signal
        return error.exit_status
    write_stdout(f"{job.id}\n")
    return 0


def _dry_run(request: SshRequest, run: RunOptions) -> int:
    if not run.probe:
        job = rebase_to_hosts(request.job) if request.sync else request.job
        show_ssh_dry_run(dry_plan(job, request.nodes, os.environ), run.format)
        return 0
    with exiting_when_stopped():
        plan, network = SshRun(request, MessageObserver(quiet=run.quiet)).look()
    show_ssh_dry_run(plan, run.format, network)
    return 0


def _check(run: RunOptions, own: SshOptions, output: OutputOptions) -> None:
    if own.detach and output.raw:
        raise BadValueError(
            "--raw says how output is shown here, and with --detach nothing is",
            "Leave it out; slurm-adapter logs JOB has --raw, too.",
        )
    if own.detach and own.logs != "all":
        raise BadValueError(
            f"--logs {own.logs} says what is shown here, and with --detach nothing is",
            "Leave it out; slurm-adapter logs JOB shows the output.",
        )
    if run.probe and not run.dry_run:
        raise BadValueError(
            "--probe looks at the hosts for a dry run, and would start the job without one",
            "Give --dry-run with it, or leave it out.",
        )


def _request(given: Given, run: RunOptions, own: SshOptions) -> SshRequest:
    """Return what to run, on the hosts in rank order."""
    said = options_from_layers(given)
    cluster = choose_nodes(given, files_of(given), said.nodes)
    count = len(cluster.nodes)
    job = job_from_options(replace(said, nodes=count), working_directory())
    return SshRequest(
        job_for_hosts(job, count, os.environ, own_python=said.python is None),
        cluster.nodes,
        run.grace_s,
        own.link_s,
        own.connect_s,
        own.min_nodes,
        own.sync,
        own.detach,
    )

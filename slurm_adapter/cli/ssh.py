"""`slurm-adapter ssh`: start the job on the hosts of a list, and stay until all of it is gone."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_adapter.cli.hosts import choose_nodes
from slurm_adapter.cli.report import check_format, show_ssh_dry_run
from slurm_adapter.cli.request import job_from_settings, settings_from_layers, settings_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.exit_signals import exiting_when_stopped
from slurm_adapter.launch.head import HeadEndedError
from slurm_adapter.launch.request import SshRequest
from slurm_adapter.launch.ssh.launch import job_for_hosts, launch_detached
from slurm_adapter.launch.ssh.run import SshRun
from slurm_adapter.launch.ssh.start import dry_plan, moved_to_hosts
from slurm_adapter.node.job_files import working_directory
from slurm_adapter.node.system.processes import raise_descriptor_limit
from slurm_adapter.output import write_stdout
from slurm_adapter.show.observers import HostsObserver, MessageObserver

if TYPE_CHECKING:
    from slurm_adapter.launch.observer import Observer


@dataclass(frozen=True)
class SshOptions:
    """What `ssh` has beside the common options."""

    hosts: list[str] | None
    hosts_file: str | None
    exclude: list[str] | None
    min_nodes: int | None
    grace_s: float
    link_s: float
    connect_s: float
    logs: str
    sync: bool
    detach: bool
    probe: bool


def run_ssh(common: dict[str, Any], options: SshOptions) -> int:
    """Start the job on its hosts and return its exit status."""
    check_format(common["format"])
    _check(options, dry_run=common["dry_run"])
    request = _request(common, options)
    raise_descriptor_limit()
    if common["dry_run"]:
        return _dry_run(request, options, common["format"], quiet=common["quiet"])
    said = {"quiet": common["quiet"], "verbose": common["verbose"]}
    if options.detach:
        return _detached(request, MessageObserver(**said))
    with exiting_when_stopped():
        return SshRun(request, HostsObserver(options.logs, **said), heed_signals=True).run()


def _detached(request: SshRequest, observer: Observer) -> int:
    try:
        # Ctrl-C reaches the head, too, which ends in order: it is waited for.
        with exiting_when_stopped(but=(signal.SIGINT,)):
            job = launch_detached(request, observer)
    except HeadEndedError as error:  # it has said why, or was told to by a signal
        return error.exit_status
    write_stdout(f"{job.id}\n")
    return 0


def _dry_run(request: SshRequest, options: SshOptions, form: str, *, quiet: bool) -> int:
    if not options.probe:
        job = moved_to_hosts(request.job) if request.sync else request.job
        show_ssh_dry_run(dry_plan(job, request.nodes, os.environ), form)
        return 0
    with exiting_when_stopped():
        plan, network = SshRun(request, MessageObserver(quiet=quiet)).look()
    show_ssh_dry_run(plan, form, network)
    return 0


def _check(options: SshOptions, *, dry_run: bool) -> None:
    if options.detach and options.logs != "all":
        raise BadValueError(
            f"--logs {options.logs} says what is shown here, and with --detach nothing is",
            "Leave it out; slurm-adapter logs JOB shows the output.",
        )
    if options.probe and not dry_run:
        raise BadValueError(
            "--probe looks at the hosts for a dry run, and would start the job without one",
            "Give --dry-run with it, or leave it out.",
        )


def _request(common: dict[str, Any], options: SshOptions) -> SshRequest:
    """Return what to run, on the hosts in rank order."""
    settings = settings_from_layers(settings_of(common), common["job"])
    cluster = choose_nodes(
        options.hosts, options.hosts_file, options.exclude, settings.nodes, settings.ssh
    )
    count = len(cluster.nodes)
    settings = settings.model_copy(update={"nodes": count})
    job = job_from_settings(settings, working_directory())
    return SshRequest(
        job_for_hosts(job, count, os.environ, own_python=settings.python is None),
        tuple(cluster.nodes),
        options.grace_s,
        options.link_s,
        options.connect_s,
        options.min_nodes,
        options.sync,
        options.detach,
    )

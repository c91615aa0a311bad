"""`slurm-adapter ssh`: start the job on the hosts of a list, and stay until all of it is gone."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_adapter.cli.background import run_in_background
from slurm_adapter.cli.components import refuse_components
from slurm_adapter.cli.exit_signals import check_grace, exiting_when_stopped
from slurm_adapter.cli.hosts import choose_nodes
from slurm_adapter.cli.report import check_format, show_ssh_dry_run
from slurm_adapter.cli.request import job_from_settings, settings_from_layers, settings_of
from slurm_adapter.cli.ssh_start import Start
from slurm_adapter.contracts import with_exported_master
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.launch.ssh.start import dry_plan, moved_to_hosts
from slurm_adapter.node.job_files import find_program, working_directory
from slurm_adapter.node.system.processes import raise_descriptor_limit
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.cluster.cluster import Node
    from slurm_adapter.job.job import Job

_SHORTEST_LINK_S = 0.2


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
    job, nodes = job_and_nodes(common, options)
    if options.min_nodes is not None and not 1 <= options.min_nodes <= len(nodes):
        raise BadValueError(
            f"--min-nodes {options.min_nodes} of {len(nodes)} hosts",
            f"Give a number from 1 to {len(nodes)}.",
        )
    raise_descriptor_limit()
    if common["dry_run"] and not options.probe:
        job = moved_to_hosts(job) if options.sync else job
        show_ssh_dry_run(dry_plan(job, nodes, os.environ), common["format"])
        return 0
    start = Start(job, nodes, options, common)
    if options.detach and not common["dry_run"]:
        return run_in_background(start.run)
    with exiting_when_stopped():
        return start.run(lambda _: None)


def _check(options: SshOptions, *, dry_run: bool) -> None:
    check_grace(options.grace_s)
    if not _SHORTEST_LINK_S <= options.link_s < math.inf:
        raise BadValueError(
            f"--link-timeout {options.link_s:g} cannot tell silence from a busy machine",
            f"Give {_SHORTEST_LINK_S:g} seconds or more.",
        )
    if not 0 < options.connect_s < math.inf:
        raise BadValueError(
            f"--connect-timeout {options.connect_s:g} is no time to wait",
            "Give seconds, as in --connect-timeout 60.",
        )
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


def job_and_nodes(common: dict[str, Any], options: SshOptions) -> tuple[Job, Sequence[Node]]:
    """Return what to run, and the hosts in rank order."""
    settings = settings_from_layers(settings_of(common), common["job"])
    cluster = choose_nodes(
        options.hosts, options.hosts_file, options.exclude, settings.nodes, settings.ssh
    )
    settings = settings.model_copy(update={"nodes": len(cluster.nodes)})
    job = job_from_settings(settings, working_directory())
    refuse_components(job, "ssh")
    job.check_kept(os.environ)
    kept = {name: os.environ[name] for name in job.keep}
    python = job.python
    if settings.python is None:  # over there no start-up file finds it (SSH-04)
        python = _own_interpreter(job)
    job = with_exported_master(job, os.environ)
    return replace(job, env={**kept, **job.env}, keep=(), python=python), cluster.nodes


def _own_interpreter(job: Job) -> str:
    """Return the path of the interpreter that is used here, which hosts are to have too."""
    try:
        return find_program(job.python, os.environ, job.code)
    except ClusterUnfitError as error:
        raise BadValueError(
            "there is no `python` here that would say which interpreter hosts are to use",
            "Name the hosts' own with --python, as in --python /usr/bin/python3.",
        ) from error

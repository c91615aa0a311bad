"""`slurm-adapter ssh`: start the job on the hosts of a list, and stay until all of it is gone."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from slurm_adapter.cli.background import run_in_background
from slurm_adapter.cli.components import refuse_components
from slurm_adapter.cli.exit_signals import check_grace, exiting_when_stopped
from slurm_adapter.cli.hosts import choose_nodes
from slurm_adapter.cli.report import check_format, show_ssh_dry_run
from slurm_adapter.cli.request import files_of, job_from_options, options_from_layers
from slurm_adapter.cli.ssh_start import Start
from slurm_adapter.contracts import with_exported_master
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.launch.ssh.start import dry_plan, moved_to_hosts
from slurm_adapter.node.job_files import find_program, working_directory
from slurm_adapter.node.system.processes import raise_descriptor_limit
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.cli.options import Given
    from slurm_adapter.cluster import Node
    from slurm_adapter.job.job import Job
    from slurm_adapter.job.options import RunOptions, SshOptions

_SHORTEST_LINK_S = 0.2


def run_ssh(given: Given, run: RunOptions, options: SshOptions) -> int:
    """Start the job on its hosts and return its exit status."""
    check_format(run.format)
    _check(run, options)
    job, nodes = job_and_nodes(given)
    if options.min_nodes is not None and not 1 <= options.min_nodes <= len(nodes):
        raise BadValueError(
            f"--min-nodes {options.min_nodes} of {len(nodes)} hosts",
            f"Give a number from 1 to {len(nodes)}.",
        )
    raise_descriptor_limit()
    if run.dry_run and not run.probe:
        job = moved_to_hosts(job) if options.sync else job
        show_ssh_dry_run(dry_plan(job, nodes, os.environ), run.format)
        return 0
    start = Start(job, nodes, run, options)
    if options.detach and not run.dry_run:
        return run_in_background(start.run)
    with exiting_when_stopped():
        return start.run(lambda _: None)


def _check(run: RunOptions, options: SshOptions) -> None:
    check_grace(run.grace_s)
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
    if run.probe and not run.dry_run:
        raise BadValueError(
            "--probe looks at the hosts for a dry run, and would start the job without one",
            "Give --dry-run with it, or leave it out.",
        )


def job_and_nodes(given: Given) -> tuple[Job, Sequence[Node]]:
    """Return what to run, and the hosts in rank order."""
    said = options_from_layers(given)
    cluster = choose_nodes(given, files_of(given), said.nodes)
    job = job_from_options(replace(said, nodes=len(cluster.nodes)), working_directory())
    refuse_components(job, "ssh")
    job.check_kept(os.environ)
    kept = {name: os.environ[name] for name in job.keep}
    python = job.python
    if said.python is None:  # over there no start-up file finds it (SSH-04)
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

"""`slurm-adapter local`: start the job here, N nodes pretended."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from slurm_adapter.cli.report import boot_warnings, check_format, print_dry_run, say, warn
from slurm_adapter.cli.request import job_from_layers, settings_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.events import Ended
from slurm_adapter.launch.fleet import LocalFleet
from slurm_adapter.launch.local import install_packages, prepare_local
from slurm_adapter.launch.logs import NodeLogs
from slurm_adapter.launch.supervise import Supervisor
from slurm_adapter.node.packages import remove_packages
from slurm_adapter.node.program import make_folder, make_told
from slurm_adapter.show.dryrun import DryRun, made_on_nodes
from slurm_adapter.show.lines import LinePrinter

if TYPE_CHECKING:
    from slurm_adapter.launch.events import Event
    from slurm_adapter.plan import Plan

_LONGEST_GRACE_S = 86_400


def run_local(common: dict[str, Any], *, grace_s: float) -> int:
    """Start the job here and return its exit status."""
    check_format(common["format"])
    if not 0 <= grace_s < _LONGEST_GRACE_S:
        raise BadValueError(
            f"--grace {grace_s} is no time to wait",
            f"Give seconds from 0 to {_LONGEST_GRACE_S}.",
        )
    job = job_from_layers(settings_of(common), common["job"])
    run = prepare_local(job, os.environ, only_try=common["dry_run"])
    plan = run.plan
    warnings = (*run.warnings, *boot_warnings(plan))
    if common["dry_run"]:
        files = (f"{job.log_folder}/", *made_on_nodes(plan))
        print_dry_run(DryRun(plan, files, warnings=warnings), common["format"])
        return 0
    if not common["quiet"]:
        warn(warnings)
    make_told(plan.job, plan.first_rank.told)
    make_folder(plan.job.log_folder)
    printer = LinePrinter(plan.world_size)
    with ExitStack() as stack:
        stack.callback(remove_packages, plan.job.folder, plan.workers)
        install_packages(plan, os.environ)
        logs = _logs(plan, stack)
        fleet = LocalFleet(run, os.environ)
        if common["verbose"]:
            say(f"{plan.world_size} ranks started, rendezvous port {plan.run.port}")

        def take(event: Event) -> None:
            if logs is not None:
                logs.take(event)
            if not isinstance(event, Ended):
                printer.show(event)

        supervisor = Supervisor(
            fleet, show=take, say=say, name=lambda rank: f"rank {rank}", grace_s=grace_s
        )
        return supervisor.run()


def _logs(plan: Plan, stack: ExitStack) -> NodeLogs | None:
    """Return the nodes' log files, where the contract has one rank on each node."""
    return stack.enter_context(closing(NodeLogs(plan))) if plan.contract.names_workers else None

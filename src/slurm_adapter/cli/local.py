"""`slurm-adapter local`: start the job here, N nodes pretended."""

from __future__ import annotations

import os
from typing import Any

from slurm_adapter.cli.report import boot_warnings, check_format, print_dry_run, say, warn
from slurm_adapter.cli.request import job_from_layers, settings_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.events import Ended
from slurm_adapter.launch.local import LocalFleet, plan_local
from slurm_adapter.launch.supervise import Supervisor
from slurm_adapter.node.program import make_folder
from slurm_adapter.show.dryrun import DryRun
from slurm_adapter.show.lines import LinePrinter

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
    plan = plan_local(job, os.environ)
    warnings = (*plan.warnings, *boot_warnings(job))
    if common["dry_run"]:
        print_dry_run(DryRun(plan, (f"{job.log_folder}/",), warnings=warnings), common["format"])
        return 0
    if not common["quiet"]:
        warn(warnings)
    make_folder(job.log_folder)
    printer = LinePrinter(plan.world_size)
    fleet = LocalFleet(plan, os.environ)
    if common["verbose"]:
        say(f"{plan.world_size} ranks started, rendezvous port {plan.run.port}")
    supervisor = Supervisor(
        fleet,
        show=lambda event: None if isinstance(event, Ended) else printer.show(event),
        say=say,
        name=lambda rank: f"rank {rank}",
        grace_s=grace_s,
    )
    return supervisor.run()

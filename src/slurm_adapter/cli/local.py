"""`slurm-adapter local`: start the job here, N nodes pretended."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from slurm_adapter.cli.report import boot_warnings, check_format, print_dry_run, say, warn
from slurm_adapter.cli.request import job_from_layers, settings_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.local import install_packages, prepare_local, start_here
from slurm_adapter.launch.logs import NodeLogs
from slurm_adapter.launch.supervise import STOP_SIGNALS, Supervisor
from slurm_adapter.node.events import Ended
from slurm_adapter.node.process import raise_descriptor_limit
from slurm_adapter.node.program import make_folder, make_told
from slurm_adapter.node.tree import remove_run
from slurm_adapter.show.dryrun import DryRun, made_on_nodes
from slurm_adapter.show.lines import LinePrinter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_adapter.job import Job
    from slurm_adapter.launch.local import LocalRun
    from slurm_adapter.node.events import Event
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
    raise_descriptor_limit()
    if common["dry_run"]:
        return _dry_run(job, common["format"])
    with _leaving_when_stopped(), ExitStack() as stack:
        run = prepare_local(job, os.environ)
        stack.callback(remove_run, job.folder, run.plan.workers)
        stack.callback(run.close)
        if not common["quiet"]:
            warn((*run.warnings, *boot_warnings(run.plan)))
        make_told(run.plan.job, run.plan.first_rank.told)
        make_folder(job.log_folder, job.folder)
        install_packages(run.plan, os.environ)
        return _run(run, _logs(run.plan, stack), grace_s, verbose=common["verbose"])


def _dry_run(job: Job, form: str) -> int:
    run = prepare_local(job, os.environ, only_try=True)
    files = (f"{job.log_folder}/", *made_on_nodes(run.plan))
    warnings = (*run.warnings, *boot_warnings(run.plan))
    print_dry_run(DryRun(run.plan, files, warnings=warnings), form)
    return 0


def _run(run: LocalRun, logs: NodeLogs | None, grace_s: float, *, verbose: bool) -> int:
    printer = LinePrinter(run.plan.world_size)
    fleet = start_here(run, os.environ)
    if verbose:
        say(f"{run.plan.world_size} ranks started, rendezvous port {run.plan.run.port}")

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


@contextmanager
def _leaving_when_stopped() -> Iterator[None]:
    """Leave in order on a signal that means stop; while ranks run their supervisor heeds it."""

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

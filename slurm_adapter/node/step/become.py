"""A rank that is ready: this process enters its view and becomes it; nothing of ours stays."""

from __future__ import annotations

import os
import sys

from slurm_adapter import signals
from slurm_adapter.contracts.place import NODE_LOGS
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.network.addresses import check_port_free, is_own_address
from slurm_adapter.node.job_files import (
    cannot_make,
    cannot_run,
    find_program,
    make_folder,
    make_referenced_directories,
    working_directory,
)
from slurm_adapter.paths import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from slurm_adapter.job.job import Job
    from slurm_adapter.node.step.step import Ready
    from slurm_adapter.plan import Plan, RankPlan


def become(ready: Ready, environment: Mapping[str, str], *, log: bool = False) -> NoReturn:
    """Replace this process by the rank's command: nothing of ours stays.

    Args:
        ready: the rank.
        environment: what it inherits.
        log: whether its output goes to its node's file in the job's log folder.

    Raises:
        ClusterUnfitError: where the port is taken on rank 0's node, or the command not found.
    """
    plan, rank, job = ready.plan, ready.rank, ready.plan.job
    if rank.rank == 0:
        check_rendezvous(plan, rank)
    make_referenced_directories(job, rank.referenced_directories)
    if log:
        make_folder(job.log_folder, job.folder)
    inherited = rank.environment(without_coerced_locale(environment))
    output = open_log(plan, rank) if log else None
    if job.install_requirements:
        from slurm_adapter.node.ranks.packages import install

        install(ready.node, rank, inherited, output)
    _enter(ready)
    command = rank.words
    command[0] = find_program(command[0], inherited, rank.cwd.value)
    _become(command, inherited, output)


def _become(command: list[str], environment: Mapping[str, str], output: int | None) -> NoReturn:
    # Python ignores these two, and what is ignored stays so in the program that comes next: a
    # shell's `yes | head -1` would complain instead of ending.
    for number in (signals.SIGPIPE, signals.SIGXFSZ):
        signals.handle(number, signals.SIG_DFL)
    before = os.dup(2)  # where to complain, should it not work out
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)
    try:
        os.execve(command[0], command, environment)  # noqa: S606
    except OSError as error:
        os.dup2(before, 2)
        raise cannot_run(command[0], error) from error


def _enter(ready: Ready) -> None:
    """Enter the rank's view and its directory."""
    rank = ready.rank
    directory = rank.cwd.value
    if ready.view is not None and ready.view.namespaces is not None:
        directory = directory or working_directory()
        ready.view.namespaces.enter()
        ready.view.close()
    if not directory:
        return
    try:
        os.chdir(directory)
    except OSError as error:
        raise ClusterUnfitError(
            f"{rank.node.name} cannot enter {directory}: {error.strerror}",
            "The directory must be there, and readable, on every node.",
        ) from error


def open_log(plan: Plan, rank: RankPlan) -> int:
    """Open the file that takes a node's output, stdout and stderr in the order they are written."""
    path = f"{plan.job.log_folder}/{plan.workers.log_name(rank.node_index)}"
    if rank.rank == 0:
        print(f"{NODE_LOGS} {path}", file=sys.stderr)  # noqa: T201
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise cannot_make(path, error) from error


def without_coerced_locale(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Take out the LC_CTYPE that Python itself adds where no locale is set (PEP 538)."""
    if environment.get("LC_CTYPE") != "C.UTF-8" or "\0LC_CTYPE=" in read_text("/proc/self/environ"):
        return environment
    return {name: value for name, value in environment.items() if name != "LC_CTYPE"}


def check_master(job: Job, name: str) -> None:
    """Raise `BadValueError` where the user's MASTER_ADDR is not this node, on which rank 0 runs."""
    wanted = job.env.get("MASTER_ADDR")
    if wanted and wanted != name and not is_own_address(wanted):
        raise BadValueError(
            f"MASTER_ADDR={wanted} is no address of {name}, where rank 0 runs",
            f"Leave MASTER_ADDR out, or set it to {name}.",
        )


def check_rendezvous(plan: Plan, rank: RankPlan) -> None:
    """Check on rank 0's node what all ranks count on: the address is here, the port is free."""
    check_master(plan.job, rank.node.name)
    # torchrun listens there even where it starts a single rank.
    shared = plan.world_size > 1 or (rank.node.gpus or 0) > 1 or plan.contract.starts != "rank"
    if shared and plan.run.port is not None:
        check_port_free(plan.run.port, plan.run.port_reason)

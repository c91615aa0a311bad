"""Before a job's ranks start on a node of an SSH job: its facts, and all that they will need."""

from __future__ import annotations

import os
import sys
import time

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.job.job import Boot
from slurm_adapter.network.addresses import check_port_free, is_loopback
from slurm_adapter.node.agent import leftovers, run_folder
from slurm_adapter.node.agent.run_folder import RunFolder
from slurm_adapter.node.facts.accelerators import count_accelerators
from slurm_adapter.node.job_files import make_folder
from slurm_adapter.node.protocol.messages import Facts, Warned
from slurm_adapter.node.step.become import check_master, without_coerced_locale
from slurm_adapter.node.view import directories
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from socket import socket

    from slurm_adapter.job.job import Job
    from slurm_adapter.node.protocol.messages import AgentMessage, Look
    from slurm_adapter.plan import NodePlan


@record
class Prepared:
    """A node whose ranks only need their view."""

    plan: NodePlan
    environment: Mapping[str, str]
    """What ranks inherit."""
    folder: RunFolder | None = None
    """Where a detached run keeps what it has to tell; None for one that ends with its head."""
    only_try: bool = False
    """Whether no rank will start: a dry run asks what the node would give."""

    def clean_up(self) -> None:
        """Take away what was for this node of this run alone."""
        directories.remove_node(self.plan.job.folder, self.plan.workers, self.plan.index)

    @property
    def own_values(self) -> dict[str, str]:
        """What the node puts into the plan's holes, by variable."""
        return {name: self.environment.get(name, "") for name in self.plan.holes}


def has_network(request: Look) -> bool:
    """Say whether the job has nodes on other machines: those of one are reached at loopback."""
    return request.several and not is_loopback(_reached(request))


def look(request: Look, listener: socket | None) -> Iterator[AgentMessage]:
    """Yield the messages that tell of this node: warnings, then its facts.

    Args:
        request: what is wanted here.
        listener: what other nodes may connect to; None where there are none on other machines.

    Raises:
        AdapterError: where the job cannot run here.
    """
    job = request.job
    for warning in leftovers.end_leftovers():
        yield Warned(warning)
    run_folder.remove_old()
    if request.copy is not None:
        from slurm_adapter.node.agent.copy_lock import hold  # only after a sync

        hold(job.code, request.copy, request.name)
    if request.code:
        _check_code(job, request.name)
    address = _reached(request)
    gpus = count_accelerators()
    port = network = None
    if request.first:
        from slurm_adapter.node.facts import ports  # 3 ms, others need none

        check_master(job, request.name)
        if request.port is None:
            port = ports.take_free_port("" if listener is not None else address)
        else:
            chosen, reason = request.port
            check_port_free(chosen, reason)
            ports.take(chosen)  # others are not to find it free
    if listener is not None:
        from slurm_adapter.node.facts.network import report  # others have no network

        python = request.python or job.python
        told = report(request.name, job, python, os.environ, listener.getsockname()[1])
        network = told.to_json()
    yield Facts(address, gpus, time.monotonic(), os.uname().nodename, port, network)


def _reached(request: Look) -> str:
    """Return the address that the host list gives, else that at which the head has reached us."""
    # Set by sshd: the client's address and port, then the server's.
    fields = os.environ.get("SSH_CONNECTION", "").split()
    reached = fields[2].partition("%")[0] if len(fields) > 2 else "127.0.0.1"  # noqa: PLR2004
    return request.address or reached


def _check_code(job: Job, name: str) -> None:
    wanted = [job.code, *([job.program.path] if isinstance(job.program, Boot) else [])]
    for path in wanted:
        if not os.path.exists(path):
            raise ClusterUnfitError(
                f"{name} has no {path}",
                "Copy the code there with --sync, or put it under the same path on every host.",
            )


def prepare(request: Look, plan: NodePlan, *, only_try: bool) -> Prepared:
    """Make this node ready for its ranks, as far as that needs no namespaces.

    Args:
        request: as `look` got it.
        plan: the node's part of the plan.
        only_try: make nothing; only what the node would give is of interest.

    Raises:
        AdapterError: where that cannot be.
    """
    environment = without_coerced_locale(os.environ)
    if only_try:
        return Prepared(plan, environment, only_try=True)
    if plan.node.view == "full":
        # Here, where the owners of directories can still be told apart.
        make_folder(plan.job.log_folder, plan.job.folder)
    folder = RunFolder(request.run, plan.index) if request.detached else None
    return Prepared(plan, environment, folder)


def mark(request: Look) -> leftovers.Mark | None:
    """Leave a mark by which the next contact finds what this agent may leave; None where not."""
    try:
        return leftovers.Mark(request.run)
    except OSError as error:
        print(f"no record of this run can be kept: {error}", file=sys.stderr)  # noqa: T201
        return None

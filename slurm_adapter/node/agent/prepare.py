"""Before a job's ranks start on a node of an SSH job: its facts, and all that they will need."""

from __future__ import annotations

import os
import sys
import time

from slurm_adapter.cluster.cluster import Variables
from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.job.job import Boot
from slurm_adapter.node.agent import leftovers, run_folder
from slurm_adapter.node.agent.run_folder import RunFolder
from slurm_adapter.node.facts import facts, ports
from slurm_adapter.node.job_files import make_folder
from slurm_adapter.node.protocol.messages import Facts, Warned
from slurm_adapter.node.step.become import check_master, without_coerced_locale
from slurm_adapter.node.view import directories
from slurm_adapter.plan import Plan, make_plan
from slurm_adapter.record import record, replace
from slurm_adapter.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from socket import socket

    from slurm_adapter.cluster.cluster import Cluster, Run
    from slurm_adapter.job.job import Job
    from slurm_adapter.node.protocol.messages import Look, Told


@record
class Prepared:
    """A node whose ranks only need their surroundings."""

    plan: Plan
    index: int
    environment: Mapping[str, str]
    """What ranks inherit."""
    folder: RunFolder | None = None
    """Where a detached run keeps what it has to tell; None for one that ends with its head."""

    def clean_up(self) -> None:
        """Take away what was for this node of this run alone."""
        directories.remove_node(self.plan.job.folder, self.plan.workers, self.index)


def has_network(request: Look) -> bool:
    """Say whether the job has nodes on other machines: those of one are reached at loopback."""
    return request.several and not facts.is_loopback(_reached(request))


def look(request: Look, listener: socket | None) -> Iterator[Told]:
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
        from slurm_adapter.node.agent.copy_lock import hold  # noqa: PLC0415 - only after a sync

        hold(job.code, request.copy, request.name)
    if request.code:
        _check_code(job, request.name)
    address = _reached(request)
    port = network = None
    if request.first:
        check_master(job, request.name)
        if request.port is None:
            port = ports.take_free_port("" if listener is not None else address)
        else:
            chosen, reason = request.port
            facts.check_port_free(chosen, reason)
            ports.take(chosen)  # others are not to find it free
    if listener is not None:
        from slurm_adapter.node.facts.network import report  # noqa: PLC0415 - others have no network

        python = request.python or job.python
        told = report(request.name, job, python, os.environ, listener.getsockname()[1])
        network = told.to_json()
    gpus = facts.count_accelerators()
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
        if not os.path.exists(path):  # noqa: PTH110
            raise ClusterUnfitError(
                f"{name} has no {path}",
                "Copy the code there with --sync, or put it under the same path on every host.",
            )


def prepare(request: Look, job: Job, cluster: Cluster, run: Run, index: int) -> Prepared:
    """Make this node ready for its ranks, as far as that needs no namespaces.

    Args:
        request: as `look` got it.
        job: what to run.
        cluster: all nodes.
        run: this run.
        index: which node this is.

    Raises:
        AdapterError: where that cannot be.
    """
    environment = without_coerced_locale(os.environ)
    job, cluster = _with_own_variables(job, cluster, index)
    plan = _with_interpreter_first(make_plan(job, cluster, run), index, environment)
    if job.install_requirements:
        from slurm_adapter.node.ranks.packages import with_packages  # noqa: PLC0415

        plan = with_packages(plan, index, environment)
    if cluster.nodes[index].view == "full":
        # Here, where the owners of directories can still be told apart.
        make_folder(job.log_folder, job.folder)
    folder = RunFolder(request.run, index) if request.detached else None
    return Prepared(plan, index, environment, folder)


def _with_own_variables(job: Job, cluster: Cluster, index: int) -> tuple[Job, Cluster]:
    """Make a host's variables the job's: all that takes account of those does of them."""
    own = cluster.nodes[index]
    nodes = [*cluster.nodes[:index], replace(own, env=Variables()), *cluster.nodes[index + 1 :]]
    return replace(job, env={**job.env, **own.env}), replace(cluster, nodes=tuple(nodes))


def _with_interpreter_first(plan: Plan, index: int, environment: Mapping[str, str]) -> Plan:
    """Let `python` in a boot command, or in what a script starts, be the job's own (SSH-04)."""
    python = plan.cluster.nodes[index].python or plan.job.python
    folder = os.path.dirname(python)  # noqa: PTH120
    path = plan.job.value_of("PATH", environment)
    if not folder or path.split(":")[0] == folder:
        return plan
    setting = Setting("PATH", f"{folder}:{path}" if path else folder, "the job's interpreter first")
    return plan.with_settings(index, (setting,))


def mark(request: Look) -> leftovers.Mark | None:
    """Leave a mark by which the next contact finds what this agent may leave; None where not."""
    try:
        return leftovers.Mark(request.run)
    except OSError as error:
        print(f"no record of this run can be kept: {error}", file=sys.stderr)  # noqa: T201
        return None

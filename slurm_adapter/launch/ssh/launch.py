"""`launch_ssh`: a job on hosts, watched by a thread of this process or by a head of its own."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

from slurm_adapter.cluster import Cluster
from slurm_adapter.contracts import with_exported_master
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.launch.head import start_head
from slurm_adapter.launch.observer import Observer
from slurm_adapter.launch.request import CONNECT_S, GRACE_S, LINK_S, SshRequest
from slurm_adapter.launch.ssh.job import SshJob
from slurm_adapter.launch.ssh.run import SshRun
from slurm_adapter.launch.store import Store
from slurm_adapter.node.job_files import find_program
from slurm_adapter.node.system.processes import raise_descriptor_limit
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_adapter.job.job import Job
    from slurm_adapter.launch.handle import JobHandle, Say
    from slurm_adapter.launch.store import SshEntry

_ANY_PYTHON = "python"


def launch_ssh(
    job: Job,
    hosts: Cluster | Sequence[str] | str,
    *,
    grace_s: float = GRACE_S,
    link_s: float = LINK_S,
    connect_s: float = CONNECT_S,
    min_nodes: int | None = None,
    sync: bool = False,
    detach: bool = False,
    observer: Observer | None = None,
) -> JobHandle:
    """Start a job on hosts; return when all its ranks run.

    Args:
        job: what to run. It gets as many nodes as there are hosts. Where its `python` is a bare
            `python`, hosts are to have the interpreter that this machine has under that name.
        hosts: from `read_hosts`, or the texts that it takes.
        grace_s: seconds from SIGTERM to SIGKILL when ranks are ended.
        link_s: seconds of silence after which a host is taken for lost.
        connect_s: the most seconds for a connection, retries included.
        min_nodes: start without hosts that cannot be connected to, as long as so many can.
        sync: copy the code to the hosts.
        detach: leave the job to a process of its own, which outlives this one; else this process
            watches it, and the job ends with it.
        observer: told of all that happens, by a thread of this process; None: the standard
            library's logging is, as `slurm_adapter`.

    Raises:
        AdapterError: nothing runs then.
    """
    cluster = _cluster(hosts)
    request = SshRequest(
        job_for_hosts(job, len(cluster.nodes), os.environ),
        tuple(cluster.nodes),
        grace_s,
        link_s,
        connect_s,
        min_nodes,
        sync,
        detach,
    )
    observer = observer or Observer()
    if detach:
        return launch_detached(request, observer)
    raise_descriptor_limit()
    run = SshRun(request, observer)
    return AttachedSshJob(run.begin(), run)


def launch_detached(request: SshRequest, observer: Observer) -> SshJob:
    """Start a job that a process of its own watches; return when all its ranks run.

    Raises:
        AdapterError: nothing runs then.
    """
    head = start_head("ssh", request, observer)
    job_id = head.begun()
    head.leave()
    return SshJob(Store().find_ssh(job_id))


def job_for_hosts(
    job: Job, nodes: int, environment: Mapping[str, str], *, own_python: bool | None = None
) -> Job:
    """Return a job as it is taken to hosts: what it means of this machine put in.

    Args:
        job: the job as it was asked for.
        nodes: how many hosts there are.
        environment: this process's.
        own_python: whether hosts are to have the interpreter that is used here; None: where the
            job's is a bare `python`.
    """
    job.check_kept(environment)
    kept = {name: environment[name] for name in job.keep}
    python = job.python
    if own_python or (own_python is None and python == _ANY_PYTHON):
        # Over there no start-up file finds it (SSH-04).
        python = _own_interpreter(job, environment)
    job = with_exported_master(replace(job, nodes=nodes), environment)
    return replace(job, env={**kept, **job.env}, keep=(), python=python)


def _own_interpreter(job: Job, environment: Mapping[str, str]) -> str:
    """Return the path of the interpreter that is used here, which hosts are to have too."""
    try:
        return find_program(job.python, environment, job.code)
    except ClusterUnfitError as error:
        raise BadValueError(
            "there is no `python` here that would say which interpreter hosts are to use",
            "Name the hosts' own with --python, as in --python /usr/bin/python3.",
        ) from error


def _cluster(hosts: Cluster | Sequence[str] | str) -> Cluster:
    if isinstance(hosts, Cluster):
        return hosts
    from slurm_adapter.config.hostfile import read_hosts  # pydantic: who brings a cluster has it

    return read_hosts(hosts)


class AttachedSshJob(SshJob):
    """A job that a thread of this process watches, and that ends with this process."""

    def __init__(self, entry: SshEntry, run: SshRun) -> None:
        super().__init__(entry)
        self._run = run
        self._status = 1
        self._error: BaseException | None = None
        # It ends nothing that the interpreter waits for: at its end the job is ended first.
        self._thread = threading.Thread(target=self._watch, name=entry.job_id, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _watch(self) -> None:
        try:
            self._status = self._run.watch()
        except BaseException as error:  # noqa: BLE001 - told to who waits
            self._error = error

    def wait(self) -> int:
        """See `JobHandle.wait`."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._status

    def close(self) -> None:
        """End it, should it run still."""
        if self._thread.is_alive():
            self._run.stop()
            self._thread.join()
        atexit.unregister(self.close)

    def _stop(self, say: Say) -> list[str]:
        del say  # its observer is told
        self._run.stop()
        self.wait()
        return self._run.left

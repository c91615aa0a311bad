"""One start over SSH: hosts reached, code copied, a plan for what was found, all ranks or none.

By one process, which a terminal's command, a program or a head in the background may be; that
process watches the job from then on.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from slurm_adapter.launch.boot_files import boot_warnings
from slurm_adapter.launch.records import NOT_STARTED, End, SshHost, SshRecord
from slurm_adapter.launch.ssh.fleet import AgentFleet, Timing
from slurm_adapter.launch.ssh.monitor import Monitor
from slurm_adapter.launch.ssh.start import look_around, new_run, rebase_to_hosts, settle, start
from slurm_adapter.launch.store import Store
from slurm_adapter.node.system.identity import identity
from slurm_adapter.record import replace
from slurm_adapter.remote.start_agents import begin_agents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_adapter.job.job import Job
    from slurm_adapter.launch.observer import Observer
    from slurm_adapter.launch.request import SshRequest
    from slurm_adapter.launch.store import SshEntry
    from slurm_adapter.network.table import Row
    from slurm_adapter.plan import Plan
    from slurm_adapter.remote.agent import Agent

_TOO_EARLY = "it was ended when it had hardly begun"


class SshRun:
    """What was opened is let go of in order, however far it got."""

    def __init__(
        self, request: SshRequest, observer: Observer, *, heed_signals: bool = False
    ) -> None:
        """Connect to all hosts and start an agent on each.

        Args:
            request: what to start where.
            observer: told of everything.
            heed_signals: whether signals end the job while it is watched, or of a detached job
                the watching: for a process whose main thread does that.

        Raises:
            AdapterError: naming those that cannot be had.
        """
        self._request, self._observer, self._heed_signals = request, observer, heed_signals
        self._run = new_run()
        self._copies: list[str] | None = None
        self._entry: SshEntry | None = None
        self._monitor: Monitor | None = None
        self._words = NOT_STARTED
        self._apart = False
        agents = self._connect()
        timing = Timing(
            request.grace_s, request.link_s, detached=request.detach, first_s=request.connect_s
        )
        self._fleet = AgentFleet(agents, timing, observer.warn)

    def look(self) -> tuple[Plan, list[Row]]:
        """Have all hosts looked at, and start nothing.

        Returns:
            The plan for what was found, and how each host reaches the others.
        """
        try:
            plan, network = self._look(self._job, code_is_there=not self._request.sync)
            return settle(plan, self._fleet, only_try=True), network
        finally:
            self._fleet.end_all()

    def begin(self) -> SshEntry:
        """Start all ranks, or none; return the job's record.

        Raises:
            AdapterError: why none was started.
        """
        try:
            job = self._job
            if self._request.sync:
                self._copy_code(job)
            plan, _ = self._look(job, code_is_there=True)
            self._observer.planned(plan)
            entry, record = self._recorded(plan)
            self._monitor = Monitor(
                plan, entry, record, self._fleet, self._observer, heed_signals=self._heed_signals
            )
            start(plan, self._fleet)
            self._words = _TOO_EARLY
        except BaseException as error:
            self._give_up(error)
            raise
        return entry

    def watch(self) -> int:
        """Stay until all of it is gone; return its exit status."""
        if self._monitor is None:
            raise RuntimeError("it has not begun")
        try:
            return self._monitor.run()
        except BaseException as error:
            self._give_up(error)
            raise

    def run(self, begun: Callable[[SshEntry], None] | None = None) -> int:
        """Start all ranks and stay until all is gone; return the job's exit status.

        Args:
            begun: told when all run. The hosts of a detached job need nobody from then on.
        """
        try:
            entry = self.begin()
            if begun is not None:
                begun(entry)
            self._apart = self._request.detach
            return self.watch()
        except BaseException as error:
            self._give_up(error)
            raise

    def stop(self) -> None:
        """Have it end in order; from any thread."""
        if self._monitor is not None:
            self._monitor.stop()

    @property
    def left(self) -> list[str]:
        """Words for each host where it is not confirmed that nothing is left."""
        return list(self._fleet.left)

    def _give_up(self, error: BaseException) -> None:
        """End what an error leaves, wait until that is confirmed, and keep how it ended."""
        if self._apart:
            self._fleet.close()
            return
        self._fleet.end_all()
        if self._monitor is not None:
            self._monitor.close()
        if self._entry is not None and self._entry.ended() is None:
            code = error.code if isinstance(error, SystemExit) else None
            status = code if isinstance(code, int) else getattr(error, "exit_status", 1)
            self._entry.end(End(status, self._words), self._observer.say)

    def _connect(self) -> list[Agent]:
        """Connect to all hosts and start an agent on each."""
        request, observer = self._request, self._observer
        connected = begin_agents(
            request.nodes, request.job.python, self._run, request.connect_s, observer.warn
        )
        wanted = request.min_nodes
        agents = connected.all() if wanted is None else connected.at_least(wanted)
        for failure in connected.failures:
            observer.warn(f"without {failure.node.name}: {failure.reason}")
        for index, agent in enumerate(agents):
            agent.index = index
        return agents

    @property
    def _job(self) -> Job:
        """The job for the hosts that could be reached, its elastic range with them."""
        job, nodes = self._request.job, len(self._fleet.agents)
        elastic = job.elastic
        if elastic is not None and elastic[0] <= nodes:
            elastic = (elastic[0], nodes)
        job = replace(job, nodes=nodes, elastic=elastic)
        return rebase_to_hosts(job) if self._request.sync else job

    def _copy_code(self, moved: Job) -> None:
        """Copy the code to where the moved job has it on all hosts."""
        from slurm_adapter.remote.code import find_code, sync  # pathspec

        job, observer = self._request.job, self._observer
        jobs = f"{job.code}/slurm-adapter"  # where jobs have their folders unless told otherwise
        code = find_code(job.code, (job.folder, jobs))
        synced = sync(code, moved.code, self._fleet.agents)
        self._copies = [host.version for host in synced.hosts]
        for warning in synced.warnings:
            observer.warn(warning)
        total, *hosts = synced.lines()
        observer.note(total)
        for line in hosts:
            observer.detail(line.strip())

    def _look(self, job: Job, *, code_is_there: bool) -> tuple[Plan, list[Row]]:
        nodes = [agent.connection.node for agent in self._fleet.agents]
        plan, network = look_around(
            job,
            nodes,
            self._fleet,
            self._run,
            os.environ,
            code_is_there=code_is_there,
            copies=self._copies,
        )
        for warning in (*plan.warnings, *boot_warnings(plan, self._request.job.program)):
            self._observer.warn(warning)
        return plan, network

    def _recorded(self, plan: Plan) -> tuple[SshEntry, SshRecord]:
        store = Store()
        store.remove_old_ssh(self._observer.say)
        record = SshRecord(
            name=plan.job.name,
            run=self._run,
            hosts=_hosts(plan, self._fleet.agents),
            started_s=time.time(),
            detached=self._request.detach,
            grace_s=self._request.grace_s,
            link_s=self._request.link_s,
            head=identity(os.getpid()),
            starts=plan.contract.starts,
        )
        self._entry = store.new_ssh()
        self._entry.write(record)
        return self._entry, record


def _hosts(plan: Plan, agents: Sequence[Agent]) -> tuple[SshHost, ...]:
    return tuple(
        SshHost(
            node.name,
            node.address,
            node.user,
            node.port,
            agent.python,
            plan.first_ranks[agent.index],
            plan.ranks_per_node[agent.index],
        )
        for agent in agents
        for node in (agent.connection.node,)
    )

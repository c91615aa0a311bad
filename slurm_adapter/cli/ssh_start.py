"""The start of a job over SSH: hosts reached, code copied, a plan for what was found, all ranks."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from slurm_adapter.cli.monitor import Monitor
from slurm_adapter.cli.report import boot_warnings, say, show_ssh_dry_run, warn
from slurm_adapter.launch.ssh.fleet import AgentFleet, Timing
from slurm_adapter.launch.ssh.records import (
    NOT_STARTED,
    Host,
    JobRecord,
    head_name,
    new_record,
    remove_old,
    state_folder,
)
from slurm_adapter.launch.ssh.start import look_around, moved_to_hosts, new_run, settle, start
from slurm_adapter.record import replace
from slurm_adapter.remote.start_agents import begin_agents
from slurm_adapter.show.lines import LogChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_adapter.cluster import Node
    from slurm_adapter.job.job import Job
    from slurm_adapter.job.options import RunOptions, SshOptions
    from slurm_adapter.launch.ssh.records import Record
    from slurm_adapter.network.table import Row
    from slurm_adapter.plan import Plan
    from slurm_adapter.remote.agent import Agent

_TOO_EARLY = "it was ended when it had hardly begun"


def _sized(job: Job, nodes: int) -> Job:
    """Return a job for the hosts that could be reached, its elastic range with them."""
    elastic = job.elastic
    if elastic is not None and elastic[0] <= nodes:
        elastic = (elastic[0], nodes)
    return replace(job, nodes=nodes, elastic=elastic)


class Start:
    """One start: what was opened is let go of in order, however far it got."""

    def __init__(
        self, job: Job, nodes: Sequence[Node], options: RunOptions, own: SshOptions
    ) -> None:
        """Prepare a start of `job` on `nodes`; `own` are the options of `ssh` alone."""
        self._job, self._nodes = job, nodes
        self._options, self._own = options, own
        self._run = new_run()
        self._copies: list[str] | None = None
        self._timing = Timing(options.grace_s, own.link_s, detached=own.detach)

    def run(self, begun: Callable[[Record], None]) -> int:
        """Start everything and stay until it has ended; `begun` is told when all ranks run."""
        agents = self._connect_all()
        fleet = AgentFleet(agents, self._timing, self._warn)
        record, words, apart = None, NOT_STARTED, False
        try:
            job = _sized(self._job, len(agents))
            if self._own.sync:
                moved = moved_to_hosts(job)
                if not self._options.dry_run:
                    self._sync(moved, agents)
                job = moved
            plan, network = self._look(job, agents, fleet)
            if self._options.dry_run:
                plan = settle(plan, fleet, only_try=True)
                fleet.end_all()
                show_ssh_dry_run(plan, self._options.format, network)
                return 0
            # A detached job's output is kept by its hosts; nobody reads it here.
            shown = "none" if self._own.detach else self._own.logs
            choice = LogChoice.parse(shown, plan.world_size)
            record = self._record(plan, agents)
            panel = not self._options.quiet and not self._own.detach
            monitor = Monitor(plan, record, fleet, choice, panel=panel)
            start(plan, fleet)
            words = _TOO_EARLY
            begun(record)
            apart = self._own.detach
            return monitor.run(verbose=self._options.verbose)
        except BaseException as error:
            if apart:  # its hosts need nobody
                fleet.close()
                raise
            fleet.end_all()
            if record is not None and record.ended() is None:
                status = error.code if isinstance(error, SystemExit) else None
                own = getattr(error, "exit_status", 1)
                record.end(status if isinstance(status, int) else own, words, say)
            raise

    def _warn(self, text: str) -> None:
        if not self._options.quiet:
            warn((text,))

    def _connect_all(self) -> list[Agent]:
        """Connect to all hosts and start an agent on each."""
        limit_s = self._own.connect_s
        connected = begin_agents(self._nodes, self._job.python, self._run, limit_s, self._warn)
        wanted = self._own.min_nodes
        agents = connected.all() if wanted is None else connected.at_least(wanted)
        for failure in connected.failures:
            self._warn(f"without {failure.node.name}: {failure.reason}")
        for index, agent in enumerate(agents):
            agent.index = index
        return agents

    def _sync(self, moved: Job, agents: Sequence[Agent]) -> None:
        """Copy the code to where the moved job has it on all hosts."""
        from slurm_adapter.remote.code import Target, find_code, sync  # pathspec

        job = self._job
        jobs = f"{job.code}/slurm-adapter"  # where jobs have their folders unless told otherwise
        code = find_code(job.code, (job.folder, jobs))
        targets = [Target(agent.connection, agent.python) for agent in agents]
        synced = sync(code, moved.code, targets)
        self._copies = [host.version for host in synced.hosts]
        for warning in synced.warnings:
            self._warn(warning)
        total, *hosts = synced.lines()
        if not self._options.quiet:
            say(total)
        if self._options.verbose:
            for line in hosts:
                say(line.strip())

    def _look(self, job: Job, agents: Sequence[Agent], fleet: AgentFleet) -> tuple[Plan, list[Row]]:
        nodes = [agent.connection.node for agent in agents]
        there = not (self._own.sync and self._options.dry_run)
        plan, network = look_around(
            job, nodes, fleet, self._run, os.environ, code_is_there=there, copies=self._copies
        )
        for warning in (*plan.warnings, *boot_warnings(plan, self._job.program)):
            self._warn(warning)
        return plan, network

    def _record(self, plan: Plan, agents: Sequence[Agent]) -> Record:
        folder = state_folder(os.environ)
        remove_old(folder, say)
        record = new_record(folder)
        hosts = [
            Host(
                node.name,
                node.address,
                node.user,
                node.port,
                agents[index].python,
                plan.first_ranks[index],
                plan.ranks_per_node[index],
            )
            for index, node in enumerate(agent.connection.node for agent in agents)
        ]
        record.write(
            JobRecord(
                name=plan.job.name,
                run=self._run,
                hosts=tuple(hosts),
                started_s=time.time(),
                detached=self._own.detach,
                grace_s=self._timing.grace_s,
                link_s=self._timing.link_s,
                head=head_name(),
                starts=plan.contract.starts,
            )
        )
        return record

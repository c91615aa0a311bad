"""`slurm-adapter ssh`: start the job on the hosts of a list, and stay until all of it is gone."""

from __future__ import annotations

import math
import os
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_adapter.cli.background import run_in_background
from slurm_adapter.cli.hosts import choose_nodes
from slurm_adapter.cli.leaving import check_grace, leaving_when_stopped
from slurm_adapter.cli.report import boot_warnings, check_format, print_dry_run, say, warn
from slurm_adapter.cli.request import job_from_settings, settings_from_layers, settings_of
from slurm_adapter.connect.dial import dial
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch import ssh
from slurm_adapter.launch.agent import Agent
from slurm_adapter.launch.agents import AgentFleet, Timing
from slurm_adapter.launch.ranklogs import RankLogs
from slurm_adapter.launch.records import (
    Host,
    JobRecord,
    head_name,
    new_record,
    remove_old,
    state_folder,
)
from slurm_adapter.launch.supervise import Supervisor
from slurm_adapter.node.events import Output
from slurm_adapter.node.process import raise_descriptor_limit
from slurm_adapter.node.program import find_program, working_directory
from slurm_adapter.record import replace
from slurm_adapter.show.dryrun import DryRun, made_on_nodes
from slurm_adapter.show.lines import LinePrinter, LogChoice, rank_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_adapter.cluster.cluster import Node
    from slurm_adapter.connect.port import Connection
    from slurm_adapter.job import Job
    from slurm_adapter.launch.records import Record
    from slurm_adapter.node.events import Event
    from slurm_adapter.plan import Plan

_SHORTEST_LINK_S = 0.2


@dataclass(frozen=True)
class SshOptions:
    """What `ssh` has beside the common options."""

    hosts: list[str] | None
    hosts_file: str | None
    exclude: list[str] | None
    min_nodes: int | None
    grace_s: float
    link_s: float
    connect_s: float
    logs: str
    sync: bool
    detach: bool
    probe: bool


def run_ssh(common: dict[str, Any], options: SshOptions) -> int:
    """Start the job on its hosts and return its exit status."""
    check_format(common["format"])
    _check(options, dry_run=common["dry_run"])
    job, nodes = job_and_nodes(common, options)
    if options.min_nodes is not None and not 1 <= options.min_nodes <= len(nodes):
        raise BadValueError(
            f"--min-nodes {options.min_nodes} of {len(nodes)} hosts",
            f"Give a number from 1 to {len(nodes)}.",
        )
    raise_descriptor_limit()
    if common["dry_run"] and not options.probe:
        return _dry_run(ssh.dry_plan(job, nodes, os.environ), common["format"])
    start = _Start(job, nodes, options, common)
    if options.detach and not common["dry_run"]:
        return run_in_background(start.run)
    with leaving_when_stopped():
        return start.run(lambda _: None)


def _check(options: SshOptions, *, dry_run: bool) -> None:
    check_grace(options.grace_s)
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
    if options.probe and not dry_run:
        raise BadValueError(
            "--probe looks at the hosts for a dry run, and would start the job without one",
            "Give --dry-run with it, or leave it out.",
        )


def job_and_nodes(common: dict[str, Any], options: SshOptions) -> tuple[Job, Sequence[Node]]:
    """Return what to run, and the hosts in rank order."""
    settings = settings_from_layers(settings_of(common), common["job"])
    cluster = choose_nodes(
        options.hosts, options.hosts_file, options.exclude, settings.nodes, settings.ssh
    )
    settings = settings.model_copy(update={"nodes": len(cluster.nodes)})
    job = job_from_settings(settings, working_directory())
    job.check_kept(os.environ)
    kept = {name: os.environ[name] for name in job.keep}
    python = job.python
    if settings.python is None:  # over there no start-up file finds it (SSH-04)
        python = find_program(python, os.environ, job.code)
    return replace(job, env={**kept, **job.env}, keep=(), python=python), cluster.nodes


def _dry_run(plan: Plan, form: str) -> int:
    warnings = (*plan.warnings, *boot_warnings(plan))
    print_dry_run(DryRun(plan, tuple(made_on_nodes(plan)), warnings=warnings), form)
    return 0


class _Start:
    """One start: what was opened is let go of in order, however far it got."""

    def __init__(
        self, job: Job, nodes: Sequence[Node], options: SshOptions, common: dict[str, Any]
    ) -> None:
        self._job, self._nodes = job, nodes
        self._options, self._common = options, common
        self._run = ssh.new_run()
        self._timing = Timing(options.grace_s, options.link_s, detached=options.detach)

    def run(self, begun: Callable[[Record], None]) -> int:
        """Start everything and stay until it has ended; `begun` is told when all ranks run."""
        agents = self._dial()
        fleet = AgentFleet(agents, self._timing, self._warn)
        record = None
        try:
            plan = self._look(agents, fleet)
            if self._common["dry_run"]:
                fleet.end_all(self._timing.grace_s)
                return _dry_run(plan, self._common["format"])
            choice = LogChoice.parse(self._options.logs, plan.world_size)
            record = self._record(plan, agents)
            ssh.start(plan, fleet)
        except BaseException as error:
            fleet.end_all(self._timing.grace_s)
            if record is not None:
                record.end(getattr(error, "exit_status", 1), "it could not be started")
            raise
        begun(record)
        with ExitStack() as stack:
            return _Watch(plan, record, self._options, choice, stack).run(fleet, self._common)

    def _warn(self, text: str) -> None:
        if not self._common["quiet"]:
            warn((text,))

    def _dial(self) -> list[Agent]:
        """Connect to all hosts and start an agent on each."""

        def begin(connection: Connection, index: int) -> Agent:
            python = connection.node.python or self._job.python
            agent = Agent(connection, index, python, self._run)
            agent.begin(self._options.connect_s)
            return agent

        dialed = dial(self._nodes, begin, retry_s=self._options.connect_s, say=self._warn)
        wanted = self._options.min_nodes
        agents = dialed.all() if wanted is None else dialed.at_least(wanted)
        for failure in dialed.failures:
            self._warn(f"without {failure.node.name}: {failure.reason}")
        for index, agent in enumerate(agents):
            agent.index = index
        return agents

    def _look(self, agents: Sequence[Agent], fleet: AgentFleet) -> Plan:
        nodes = [agent.connection.node for agent in agents]
        job = replace(self._job, nodes=len(nodes))
        plan = ssh.look_around(job, nodes, fleet, self._run, os.environ)
        for warning in (*plan.warnings, *boot_warnings(plan)):
            self._warn(warning)
        return plan

    def _record(self, plan: Plan, agents: Sequence[Agent]) -> Record:
        folder = state_folder(os.environ)
        remove_old(folder)
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
        self._written = JobRecord(
            name=plan.job.name,
            run=self._run,
            hosts=tuple(hosts),
            started_s=time.time(),
            detached=self._options.detach,
            grace_s=self._timing.grace_s,
            link_s=self._timing.link_s,
            head=head_name(),
        )
        record.write(self._written)
        return record


class _Watch:
    """A started job on the screen and in its record."""

    def __init__(
        self,
        plan: Plan,
        record: Record,
        options: SshOptions,
        choice: LogChoice,
        stack: ExitStack,
    ) -> None:
        self._plan, self._record, self._options = plan, record, options
        nodes = plan.cluster.nodes
        ranks = [[rank.rank for rank in plan.node_ranks(index)] for index in range(len(nodes))]
        self._names = rank_names([node.name for node in nodes], ranks)
        self._printer = LinePrinter(self._names, choice)
        self._logs = None
        if not options.detach:
            self._logs = stack.enter_context(closing(RankLogs(record, plan.world_size)))
        self._said = "done"

    def run(self, fleet: AgentFleet, common: dict[str, Any]) -> int:
        """Return the job's exit status once all of it is gone."""
        if common["verbose"]:
            say(
                f"{self._plan.world_size} ranks started as {self._record.job_id},"
                f" rendezvous port {self._plan.run.port}"
            )
        supervisor = Supervisor(
            fleet,
            show=self._take,
            say=self._say,
            name=self._name,
            grace_s=self._options.grace_s,
            node=lambda index: self._plan.cluster.nodes[index].name,
        )
        status = supervisor.run()
        for left in fleet.left:
            say(f"not confirmed: {left}")
        if not fleet.left_alone:
            self._record.end(status, self._said)
        return status

    def _take(self, event: Event) -> None:
        if self._logs is not None:
            self._logs.take(event)
        if isinstance(event, Output):
            self._printer.show(event)

    def _say(self, text: str) -> None:
        if self._said == "done":  # the first thing that is said is why it ends
            self._said = text
        say(text)

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self._names[rank].rpartition('/')[0]}"

"""A job that runs on hosts: on the screen, in its record, and watched until all of it is gone."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from slurm_adapter.launch.ssh.rank_logs import RankLogs
from slurm_adapter.node.ranks.supervise import STOP_DETACHED, LeftError, Supervisor
from slurm_adapter.node.system.signal_forwarding import STOP_SIGNALS
from slurm_adapter.show.lines import LinePrinter, rank_names
from slurm_adapter.show.live import live_or_plain

if TYPE_CHECKING:
    from slurm_adapter.launch.ssh.fleet import AgentFleet
    from slurm_adapter.launch.ssh.records import Record
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.plan import Plan
    from slurm_adapter.show.lines import LogChoice
    from slurm_adapter.show.live import Screen
    from slurm_adapter.show.progress import NodeState

_DONE = "done"


class Monitor:
    """Watches a fleet whose ranks have begun."""

    def __init__(
        self, plan: Plan, record: Record, fleet: AgentFleet, choice: LogChoice, *, panel: bool
    ) -> None:
        """Prepare to watch.

        Args:
            plan: the job on its hosts.
            record: where its output and its end are kept.
            fleet: its agents.
            choice: whose output is shown.
            panel: whether a live panel is wanted where the terminal can have one.
        """
        self._plan, self._record, self._fleet, self._panel = plan, record, fleet, panel
        self._nodes = [node.name for node in plan.cluster.nodes]
        firsts = zip(plan.first_ranks, plan.ranks_per_node, strict=True)
        self._ranks = [range(first, first + count) for first, count in firsts]
        self._node_of = {rank: index for index, mine in enumerate(self._ranks) for rank in mine}
        self._printer = LinePrinter(rank_names(self._nodes, self._ranks), choice)
        # Opened before any rank starts; of a detached job the nodes keep the output.
        detached = fleet.timing.detached
        self._logs = None if detached else RankLogs(record, plan.world_size)
        self._screen: Screen
        self._gone: set[int] = set()
        self._said = _DONE

    def run(self, *, verbose: bool) -> int:
        """Return the job's exit status once all of it is gone."""
        with ExitStack() as stack:
            if self._logs is not None:
                stack.enter_context(closing(self._logs))
            self._screen = stack.enter_context(live_or_plain(self._nodes, enabled=self._panel))
            self._screen.begin(self._printer, self._ranks)
            self._enter("running")
            if verbose:
                self._screen.say(
                    f"{self._plan.world_size} ranks started as {self._record.job_id},"
                    f" rendezvous port {self._plan.run.port}"
                )
            return self._supervise()

    def _supervise(self) -> int:
        supervisor = Supervisor(
            self._fleet,
            show=self._show,
            say=self._say,
            name=self._name,
            grace_s=self._fleet.timing.grace_s,
            node=self._nodes.__getitem__,
            tick=self._tick,
            ends=(STOP_DETACHED,) if self._fleet.timing.detached else STOP_SIGNALS,
        )
        try:
            status = supervisor.run()
        except LeftError as leaving:  # the hosts of a detached job need nobody
            self._fleet.close()
            return leaving.status
        for left in self._fleet.left:
            self._screen.say(f"not confirmed: {left}")
        if not self._fleet.left_alone:
            self._record.end(status, self._said, self._screen.say)
        return status

    def _show(self, event: Event) -> None:
        if self._logs is not None:
            self._logs.take(event)
        self._screen.show(event)

    def _say(self, text: str) -> None:
        if self._said == _DONE:  # the first thing that is said is why it ends
            self._said = text
            self._enter("ending")
        self._screen.say(text)

    def _enter(self, state: NodeState) -> None:
        for index in range(len(self._nodes)):
            if index not in self._gone:
                self._screen.state(index, state)

    def _tick(self) -> float:
        """Have drawn what is due; return the seconds until it wants to be called again."""
        for agent in self._fleet.agents:
            if agent.gone and agent.index not in self._gone:
                self._gone.add(agent.index)
                self._screen.state(agent.index, "gone")
        self._screen.tick()
        return self._screen.due_s

    def _name(self, rank: int) -> str:
        starts = self._plan.contract.starts
        return f"{starts} {rank} on {self._nodes[self._node_of[rank]]}"

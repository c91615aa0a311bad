"""A job whose ranks run on hosts: told to its observer, kept in its record, until all is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.launch.rank_logs import RankLogs
from slurm_adapter.launch.records import End
from slurm_adapter.node.ranks.supervise import (
    STOP_DETACHED,
    LeftError,
    Supervisor,
)
from slurm_adapter.node.system.signal_forwarding import STOP_SIGNALS

if TYPE_CHECKING:
    from slurm_adapter.launch.observer import NodeState, Observer
    from slurm_adapter.launch.records import SshRecord
    from slurm_adapter.launch.ssh.fleet import AgentFleet
    from slurm_adapter.launch.store import SshEntry
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.plan import Plan

_DONE = "done"


class Monitor:
    """Watches a fleet."""

    def __init__(
        self,
        plan: Plan,
        entry: SshEntry,
        record: SshRecord,
        fleet: AgentFleet,
        observer: Observer,
        *,
        heed_signals: bool,
    ) -> None:
        """Prepare to watch, before any rank starts.

        Args:
            plan: the job on its hosts.
            entry: where its output and its end are kept.
            record: what is kept there of it.
            fleet: its agents.
            observer: told of everything.
            heed_signals: whether signals end it, or of a detached job the monitoring.
        """
        self._plan, self._entry, self._fleet, self._observer = plan, entry, fleet, observer
        self._gone: set[int] = set()
        self._said = _DONE
        # Of a detached job the nodes keep the output.
        self._logs = None if record.detached else RankLogs(entry.rank_file, plan.world_size)
        self._supervisor = Supervisor(
            fleet,
            show=self._show,
            say=self._say,
            name=record.name_of,
            grace_s=record.grace_s,
            node=record.host_names.__getitem__,
            tick=self._tick,
            ends=(STOP_DETACHED,) if record.detached else STOP_SIGNALS,
            heed_signals=heed_signals,
        )

    def run(self) -> int:
        """Return the job's exit status once all of it is gone."""
        plan = self._plan
        try:
            with self._observer.running(plan, self._entry.job_id):
                self._enter("running")
                self._observer.detail(
                    f"{plan.world_size} ranks started as {self._entry.job_id},"
                    f" rendezvous port {plan.run.port}"
                )
                return self._supervise()
        finally:
            self.close()

    def stop(self) -> None:
        """Have the job end in order; from any thread."""
        self._supervisor.stop()

    def close(self) -> None:
        """Let go of the files."""
        if self._logs is not None:
            self._logs.close()

    def _supervise(self) -> int:
        try:
            status = self._supervisor.run()
        except LeftError as parted:  # the hosts of a detached job need nobody
            self._fleet.close()
            return parted.status
        for left in self._fleet.left:
            self._observer.say(f"not confirmed: {left}")
        if not self._fleet.left_alone:
            end = End(status, self._said, stopped=self._supervisor.stopped)
            self._entry.end(end, self._observer.say)
            self._observer.ended(end)
        return status

    def _show(self, event: Event) -> None:
        if self._logs is not None:
            self._logs.take(event)
        self._observer.show(event)

    def _say(self, text: str) -> None:
        if self._said == _DONE:  # the first thing that is said is why it ends
            self._said = text
            self._enter("ending")
        self._observer.say(text)

    def _enter(self, state: NodeState) -> None:
        for index in range(len(self._fleet.agents)):
            if index not in self._gone:
                self._observer.node(index, state)

    def _tick(self) -> float:
        """Have drawn what is due; return the seconds until it wants to be called again."""
        for agent in self._fleet.agents:
            if agent.gone and agent.index not in self._gone:
                self._gone.add(agent.index)
                self._observer.node(agent.index, "gone")
        return self._observer.tick()

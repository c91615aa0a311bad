"""A detached job from the head again: its output as it comes, and its end."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from slurm_adapter.launch.blame import Blame
from slurm_adapter.node import frames
from slurm_adapter.node.events import Ended, Lost
from slurm_adapter.node.wire import pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_adapter.launch.agents import AgentFleet
    from slurm_adapter.launch.records import JobRecord
    from slurm_adapter.node.events import Event

_POLL_S = 0.5


def attach(job: JobRecord, fleet: AgentFleet, *, stay: bool) -> None:
    """Have the agents of a fleet follow a job's run on their nodes.

    Args:
        job: the job.
        fleet: an agent on each of its nodes that can be reached.
        stay: whether they go on until it ends; else they tell what there is, and leave.

    Raises:
        AdapterError: where a node knows nothing of it.
    """
    hosts = [job.hosts[agent.index] for agent in fleet.agents]
    ranks = [range(host.first_rank, host.first_rank + host.ranks) for host in hosts]
    requests = [
        pack({"run": job.run, "index": agent.index, "ranks": tuple(mine), "stay": stay})
        for agent, mine in zip(fleet.agents, ranks, strict=True)
    ]
    answers = fleet.ask(requests, frames.FOLLOW, frames.FACTS)
    for agent, answer in zip(fleet.agents, answers, strict=True):
        agent.clock_s = agent.answered_s - float(answer)
    fleet.take_ranks(ranks)


class Following:
    """Shows a job's events until it has ended; ends the others where its head does not live."""

    def __init__(
        self, fleet: AgentFleet, show: Callable[[Event], None], say: Callable[[str], None]
    ) -> None:
        self._fleet, self._show, self._say = fleet, show, say
        self._blame = Blame()

    def run(self, *, in_charge: bool) -> tuple[int, str]:
        """Return (exit status, words for how the job ended); `in_charge` where no head is."""
        while self._fleet.remains():
            for event in self._fleet.events(_POLL_S):
                self._show(event)
                self._blame.take(event)
            if in_charge and self._blame.failed:
                in_charge = False
                self._say(f"{self._how()}; ending the others")
                self._blame.close()
                self._fleet.send(signal.SIGTERM)
        return (self._blame.first().status, self._how()) if self._blame.failed else (0, "done")

    def _how(self) -> str:
        first = self._blame.first()
        if isinstance(first, Lost):
            return f"node {first.node_index} was lost: {first.why}"
        return f"rank {first.rank} failed first: {first.how}"


def collect(fleet: AgentFleet, show: Callable[[Event], None]) -> dict[int, Ended]:
    """Show what there is of a job, and return how ranks ended that have."""
    found: dict[int, Ended] = {}
    while fleet.remains():
        for event in fleet.events(_POLL_S):
            show(event)
            if isinstance(event, Ended):
                found[event.rank] = event
    return found


def end(fleet: AgentFleet) -> None:
    """End a job on all its nodes, and wait until that is confirmed."""
    fleet.send(signal.SIGTERM)
    while fleet.remains():
        for _ in fleet.events(_POLL_S):
            continue

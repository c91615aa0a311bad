"""A detached job from the head again: its nodes asked, what they have kept shown, its end."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from slurm_adapter.errors import AdapterError
from slurm_adapter.launch.ssh.fleet import together
from slurm_adapter.node.protocol.messages import Follow, Following
from slurm_adapter.node.ranks.events import Ended, Lost
from slurm_adapter.node.ranks.first_failure import FirstFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_adapter.launch.ssh.fleet import AgentFleet
    from slurm_adapter.launch.ssh.records import JobRecord
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.remote.agent import Agent

_POLL_S = 0.5
PATIENCE_S = 15.0
"""What a run's own agent may take to end it, beyond the grace; then it is killed itself."""
_DEATH_S = 10.0
"""What a node may take to find that out."""


def attach(job: JobRecord, fleet: AgentFleet, *, stay: bool, output: bool = True) -> list[str]:
    """Have the agents of a fleet follow a job's run on their nodes.

    Args:
        job: the job.
        fleet: an agent on each of its nodes that can be reached.
        stay: whether they go on until it ends; else they tell what there is, and leave.
        output: whether they send what ranks have written, and not only how they ended.

    Returns:
        Words for each node that cannot: the fleet goes on without it.

    Raises:
        AdapterError: where none can.
    """
    hosts = [job.hosts[agent.index] for agent in fleet.agents]
    ranks = [range(host.first_rank, host.first_rank + host.ranks) for host in hosts]
    requests = [
        Follow(job.run, agent.index, tuple(mine), stay, output, job.link_s)
        for agent, mine in zip(fleet.agents, ranks, strict=True)
    ]
    answers, refusals = fleet.ask_each(requests, Following)
    without = [
        AdapterError(_named(agent, refusals[agent.index].found), refusals[agent.index].remedy)
        for agent in fleet.agents
        if agent.index in refusals
    ]
    if not answers:
        error = together(without)
        error.exit_status = max(one.exit_status for one in refusals.values())
        raise error
    fleet.leave_out(agent for agent in fleet.agents if agent.index in refusals)
    for agent in fleet.agents:
        if agent.index in answers:
            agent.clock_s = agent.answered_s - answers[agent.index].clock_s
    fleet.take_ranks(
        [
            mine if agent.index in answers else range(0)
            for agent, mine in zip(fleet.agents, ranks, strict=True)
        ]
    )
    return [error.found for error in without]


def _named(agent: Agent, words: str) -> str:
    """Return words that begin with a node's name, by which its user knows it."""
    return words if words.startswith(f"{agent.name}: ") else f"{agent.name}: {words}"


def collect(fleet: AgentFleet, show: Callable[[Event], None]) -> tuple[FirstFailure, set[int]]:
    """Show what there is of a job; return the failures so far, and the ranks that have ended."""
    first_failure, over = FirstFailure(), set[int]()
    while fleet.remains():
        for event in fleet.events(_POLL_S):
            show(event)
            first_failure.take(event)
            if isinstance(event, Ended):
                over.add(event.rank)
            elif isinstance(event, Lost):
                over.update(event.ranks)
    return first_failure, over


def end(fleet: AgentFleet) -> list[str]:
    """End a job on all its nodes; return words for each where that is not confirmed."""
    fleet.send(signal.SIGTERM)
    kill_at = time.monotonic() + fleet.timing.grace_s + PATIENCE_S
    killed = False
    while fleet.remains():
        for _ in fleet.events(_POLL_S):
            continue
        if time.monotonic() > kill_at and killed:
            late = [agent for agent in fleet.agents if not agent.gone]
            return [*fleet.left, *(f"{one.name}: its agent does not end" for one in late)]
        if time.monotonic() > kill_at:
            fleet.send(signal.SIGKILL)
            kill_at, killed = time.monotonic() + _DEATH_S, True
    return fleet.left

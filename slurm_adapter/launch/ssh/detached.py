"""A detached job from anywhere again: its hosts asked, what they have kept shown, its end.

Several may follow it at once: a node that is told twice to end its ranks ends them once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurm_adapter.cluster import Node
from slurm_adapter.errors import NODE_LOST, AdapterError, ClusterUnfitError
from slurm_adapter.launch.observer import Chunk
from slurm_adapter.launch.records import End
from slurm_adapter.launch.ssh.fleet import AgentFleet, Timing, together
from slurm_adapter.node.protocol.messages import Follow, Following
from slurm_adapter.node.ranks.events import Ended, Lost, Output
from slurm_adapter.node.ranks.first_failure import FirstFailure
from slurm_adapter.node.ranks.supervise import Supervisor
from slurm_adapter.node.ranks.terminator import Terminator
from slurm_adapter.node.system.identity import lives
from slurm_adapter.remote.start_agents import begin_agents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_adapter.launch.handle import Say
    from slurm_adapter.launch.records import SshRecord
    from slurm_adapter.launch.store import SshEntry
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.remote.agent import Agent

_CONNECT_S = 60.0
_LOOK_S = 0.2
_POLL_S = 0.5
_MOST_SHOWN = 5
_NOTED_S = 5.0
"""What a head may take, once all is gone, to keep how the job ended."""
_PATIENCE_S = 15.0
"""What a run's own agent may take to end it, beyond the grace; then it is killed itself."""
_DEATH_S = 10.0
"""What a node may take to find that out."""


def follow(
    entry: SshEntry,
    job: SshRecord,
    show: Callable[[Chunk], None] | None,
    say: Say,
    *,
    heed_signals: bool,
) -> int:
    """Show a job until it ends, and end the others where a rank fails, as its head does.

    Args:
        entry: its record's folder.
        job: what stands there.
        show: gets the output; None: none is wanted.
        say: gets what is to be told, a line each.
        heed_signals: whether signals that mean stop end the monitoring, with a `LeftError`.

    Returns:
        The job's exit status.
    """
    fleet, without = _connect(job, say)
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        say(text)

    def each(event: Event) -> None:
        if isinstance(event, Output) and show is not None:
            show(Chunk(event.rank, event.lines, event.is_error))

    try:
        without += _attach(job, fleet, stay=True, output=show is not None)
        for words in without:
            say(f"warning: without {words}")
        status = Supervisor(
            fleet,
            show=each,
            say=tell,
            name=job.name_of,
            # The runs' own agents keep to the job's: only one that does not is killed from here.
            grace_s=job.grace_s + _PATIENCE_S,
            node=job.host_names.__getitem__,
            ends=(),
            heed_signals=heed_signals,
        ).run()
        ended = _noted(entry, job)
        if ended is not None:
            if ended.status != 0 and ended.words not in said:
                say(f"{entry.job_id}: {ended.words}")
            return ended.status
        if fleet.left_alone or without:
            left = "; ".join([*without, *fleet.left])
            say(f"{entry.job_id} goes on where it could not be reached: {left}")
            return status or NODE_LOST
        for words in fleet.left:
            say(f"not confirmed: {words}")
        if not lives(job.head):
            entry.end(End(status, said[0] if said else "done"), say)
        return status
    finally:
        fleet.close()


def _noted(entry: SshEntry, job: SshRecord) -> End | None:
    """Return how a job ended of which all is gone, once its head has kept that; None: it has not.

    A head that lost sight of some ranks has left them to whoever follows.
    """
    deadline = time.monotonic() + _NOTED_S
    while True:
        alive = lives(job.head)
        ended = entry.ended()
        if ended is not None or alive is False or time.monotonic() > deadline:
            return ended
        time.sleep(_LOOK_S)


def output(entry: SshEntry, job: SshRecord, say: Say) -> Iterator[Chunk]:
    """Yield what a job's hosts have kept until now; keep its end, should nobody have seen it."""
    fleet, without = _connect(job, say)
    first_failure, over = FirstFailure(), set[int]()
    try:
        without += _attach(job, fleet, stay=False)
        for words in without:
            say(f"warning: without {words}")
        while fleet.remains():
            for event in fleet.events(_POLL_S):
                first_failure.take(event)
                if isinstance(event, Output):
                    yield Chunk(event.rank, event.lines, event.is_error)
                elif isinstance(event, Ended):
                    over.add(event.rank)
                else:
                    over.update(event.ranks)
        if lives(job.head) is False and entry.ended() is None and len(over) == job.ranks:
            entry.end(_end_of(first_failure, job), say)
    finally:
        fleet.close()


def _end_of(first_failure: FirstFailure, job: SshRecord) -> End:
    """Return how a job ended whose head did not live to see it."""
    if not first_failure.failed:
        return End(0, "done")
    first = first_failure.first()
    if isinstance(first, Lost):
        what = f"{job.hosts[first.node_index].name} was lost: {first.why}"
    else:
        what = f"{job.name_of(first.rank)} failed first: {first.how}"
    return End(first.status, what)


def stop(job: SshRecord, say: Say) -> list[str]:
    """End a job on all its nodes; return words for each where that is not confirmed."""
    fleet, left = _connect(job, say)
    try:
        left += _attach(job, fleet, stay=True, output=False)
        return left + _end(fleet)
    finally:
        fleet.close()


def _connect(job: SshRecord, say: Say) -> tuple[AgentFleet, list[str]]:
    """Return an agent on each node that can be reached, and words for each that cannot.

    Raises:
        ClusterUnfitError: none can.
    """
    nodes = [
        Node(host.name, address=host.address, user=host.user, port=host.port, python=host.python)
        for host in job.hosts
    ]
    # Each host's own interpreter is in the record.
    connected = begin_agents(nodes, "", job.run, _CONNECT_S, say)
    unreached = [f"{failure.node.name}: {failure.reason}" for failure in connected.failures]
    agents = connected.at_least(0)
    if not agents:
        raise ClusterUnfitError(
            "no host of the job can be reached\n" + "\n".join(unreached[:_MOST_SHOWN]),
            "What runs there goes on.",
        )
    return AgentFleet(agents, Timing(job.grace_s, job.link_s, detached=True), say), unreached


def _attach(job: SshRecord, fleet: AgentFleet, *, stay: bool, output: bool = True) -> list[str]:
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
    ranks = [host.its_ranks for host in hosts]
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


def _end(fleet: AgentFleet) -> list[str]:
    """End a job on all its nodes; return words for each where that is not confirmed."""
    terminator = Terminator(_DEATH_S)
    terminator.begin(time.monotonic(), fleet.timing.grace_s + _PATIENCE_S)
    while fleet.remains():
        now = time.monotonic()
        if now > terminator.killed_at_s + _DEATH_S:
            late = [agent for agent in fleet.agents if not agent.gone]
            return [*fleet.left, *(f"{one.name}: its agent does not end" for one in late)]
        while (number := terminator.due(now)) is not None:
            fleet.send(number)
        for _ in fleet.events(_POLL_S):
            continue
    return fleet.left

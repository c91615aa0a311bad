"""All agents of a job: asked and told together, and to the supervisor one fleet of ranks."""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from slurm_adapter.errors import (
    CLUSTER_UNFIT,
    NODE_LOST,
    AdapterError,
    ClusterUnfitError,
    printable,
)
from slurm_adapter.node.protocol.framing import beat_s
from slurm_adapter.node.protocol.messages import (
    Begun,
    Facts,
    Follow,
    Go,
    Gone,
    Kill,
    RankEnded,
    RankOutput,
    Stop,
    Unfit,
    UpToDate,
    Warned,
)
from slurm_adapter.node.ranks.events import Ended, Lost, Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from slurm_adapter.node.protocol.messages import AgentMessage, Request
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.remote.agent import Agent

T = TypeVar("T")
M = TypeVar("M", bound="AgentMessage")

_MOST_REASONS = 5
_MOST_STATUS = 255
_END_S = 10.0
"""How long nodes may take to confirm that nothing is left of what was hardly there."""
_PHASE_S = 120.0
"""How long a node may take for one step before its ranks run; name services may be slow."""


@dataclass(frozen=True)
class Timing:
    """How long is waited for what."""

    grace_s: float
    """From TERM to KILL."""
    link_s: float
    """Silence after which a node, or to a node the head, is taken for lost."""
    detached: bool = False
    """Whether nodes go on without the head."""
    first_s: float = _PHASE_S
    """How long a node may take for its first answer."""


class AgentFleet:
    """Ranks on many nodes, behind one agent each."""

    def __init__(
        self, agents: Sequence[Agent], timing: Timing, warn: Callable[[str], None]
    ) -> None:
        self.agents = list(agents)
        self.timing, self._warn = timing, warn
        self._ranks: dict[int, Agent] = {}
        self._known: dict[int, range] = {}
        self._early: list[tuple[Agent, AgentMessage]] = []
        self._following = False
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        for agent in agents:
            self._selector.register(agent, selectors.EVENT_READ, agent)
        self._ended = threading.Event()
        # In a thread of its own: while the terminal is stopped (Ctrl-S) the job goes on.
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()
        self._looked_s = time.monotonic()
        self.left: list[str] = []
        """What is not known to be gone: words for each node."""
        self.left_alone = False
        """Whether ranks of a detached job run on where they cannot be reached from here."""

    def _beat(self) -> None:
        while not self._ended.wait(beat_s(self.timing.link_s)):
            for agent in self.agents:
                if not agent.gone:
                    agent.beat()

    def ask(
        self, requests: Sequence[Request], answer: type[M], limit_s: float = _PHASE_S
    ) -> list[M]:
        """Send each agent a request and return the answers of all, in node order.

        Raises:
            AdapterError: naming every node that cannot, and why.
        """
        answers, refusals = self.ask_each(requests, answer, limit_s)
        if refusals:
            raise together([refusals[index] for index in sorted(refusals)])
        return [answers[agent.index] for agent in self.agents]

    def ask_each(
        self, requests: Sequence[Request], answer: type[M], limit_s: float = _PHASE_S
    ) -> tuple[dict[int, M], dict[int, AdapterError]]:
        """Send each agent a request and return what they answer, and why others do not."""
        self._following = any(isinstance(request, Follow) for request in requests)
        sent_s = time.monotonic()
        for agent, request in zip(self.agents, requests, strict=True):
            agent.send(request)
        answers: dict[int, M] = {}
        refusals: dict[int, AdapterError] = {}
        while len(answers) + len(refusals) < len(self.agents):
            if time.monotonic() - sent_s > limit_s:
                silent = [one for one in self.agents if one.index not in answers | refusals]
                refusals |= {one.index: _no_answer(one, limit_s) for one in silent}
                if answer is Facts:  # they have done nothing that they could confirm the end of
                    self.leave_out(silent)
                break
            for agent in self._ready(1.0):
                for message in agent.read():
                    if isinstance(message, answer):
                        answers[agent.index] = message
                        agent.answered_s = time.monotonic()
                    elif isinstance(message, Unfit):
                        refusals[agent.index] = _refusal(message)
                    else:  # ranks of a fast node may speak before those of a slow one have begun
                        self._early.append((agent, message))
                if agent.lost and agent.index not in answers | refusals:
                    refusals[agent.index] = ClusterUnfitError(f"{agent.name}: {agent.lost}")
        self._early = [one for one in self._early if not self._warned(one[1])]
        return answers, refusals

    def leave_out(self, agents: Iterable[Agent]) -> None:
        """Go on without some of them."""
        for agent in agents:
            self._let_go(agent)

    def run(self, ranks: Sequence[range]) -> None:
        """Have all ranks started; `ranks` are those of each node.

        Raises:
            ClusterUnfitError: where one cannot be started; whoever calls ends the others.
        """
        self.ask([Go()] * len(self.agents), Begun)
        self.take_ranks(ranks)

    def take_ranks(self, ranks: Sequence[range]) -> None:
        """From now on these ranks run; `ranks` are those of each node."""
        for agent, mine in zip(self.agents, ranks, strict=True):
            self._known[agent.index] = mine
            self._ranks.update(dict.fromkeys(mine, agent))

    def _ready(self, limit_s: float) -> list[Agent]:
        found = self._selector.select(limit_s)
        if any(key.data is None for key, _ in found):
            with suppress(BlockingIOError):
                os.read(self._woken, 1 << 16)
        return [key.data for key, _ in found if key.data is not None]

    def events(self, limit_s: float) -> Iterator[Event]:
        """Yield what the agents tell, output before the end it belongs to."""
        early, self._early = self._early, []
        for one in early:
            yield from self._event(*one)
        # Lost while all were asked: nothing more comes that would wake us.
        lost = [agent for agent in self.agents if agent.lost and not agent.gone]
        limit_s = 0.0 if early or lost else min(limit_s, beat_s(self.timing.link_s))
        for agent in dict.fromkeys((*lost, *self._ready(limit_s))):
            for message in agent.read():
                yield from self._event(agent, message)
            if agent.lost and not agent.gone:
                if self._following and not agent.unreachable:  # the run has an agent of its own
                    agent.lost = f"nobody follows it there any more: {agent.lost}"
                    agent.unreachable = True
                yield from self._lose(agent)
        yield from self._silent()

    def _event(self, agent: Agent, message: AgentMessage) -> Iterator[Event]:
        try:
            yield from self._of_rank(agent, message)
        except ValueError:  # of a node that is broken, or somebody's tool
            agent.lost = "what it sends makes no sense"
            yield from self._lose(agent)

    def _own(self, agent: Agent, rank: int) -> int:
        """Return a rank that an agent speaks of, which must be its own."""
        if rank not in self._known.get(agent.index, ()):
            raise ValueError(rank)
        return rank

    def _of_rank(self, agent: Agent, message: AgentMessage) -> Iterator[Event]:
        if isinstance(message, RankOutput):
            yield Output(self._own(agent, message.rank), message.lines, message.is_error)
        elif isinstance(message, RankEnded):
            self._ranks.pop(self._own(agent, message.rank), None)
            yield Ended(message.rank, message.status, message.at_s + agent.clock_s)
        elif isinstance(message, Gone):
            if message.left:
                self.left.append(f"{agent.name}: {printable(message.left)}")
            if agent in self._ranks.values():
                agent.lost = "how its ranks ended is not known there"
                yield from self._lose(agent)
            else:
                self._let_go(agent)
        elif isinstance(message, UpToDate) and self._following:  # it has told all that there is
            for rank in [rank for rank, one in self._ranks.items() if one is agent]:
                del self._ranks[rank]
            self._let_go(agent)
        elif isinstance(message, Unfit):
            agent.lost = _refusal(message).found
            yield from self._lose(agent)
        else:
            self._warned(message)

    def _warned(self, message: AgentMessage) -> bool:
        if isinstance(message, Warned):
            self._warn(printable(message.text))
        return isinstance(message, Warned)

    def _silent(self) -> Iterator[Event]:
        """Notice agents that say nothing any more; the time this process slept does not count."""
        now = time.monotonic()
        slept = now - self._looked_s > self.timing.link_s / 2
        self._looked_s = now
        for agent in self.agents:
            if agent.gone:
                continue
            if slept:
                agent.heard_s = now
            elif now - agent.heard_s > self.timing.link_s:
                agent.unreachable = True
                agent.lost = f"it has not been heard of for {self.timing.link_s:g} s"
                yield from self._lose(agent)

    def _lose(self, agent: Agent) -> Iterator[Event]:
        ranks = sorted(rank for rank, one in self._ranks.items() if one is agent)
        for rank in ranks:
            del self._ranks[rank]
        self._let_go(agent)
        words = f"{agent.name}: {agent.lost}{self._rest_of(agent)}"
        if not agent.confirmed:
            self.left.append(words)
        if self.timing.detached and agent.unreachable:
            self.left_alone = True
            self._warn(words)
        else:
            yield Lost(agent.index, tuple(ranks), agent.lost, NODE_LOST, time.monotonic())

    def _rest_of(self, agent: Agent) -> str:
        """Return words for what becomes of a lost node's ranks."""
        if not agent.unreachable:
            return ""
        if self.timing.detached:
            return "; what runs there goes on"
        within_s = self.timing.link_s + self.timing.grace_s
        return f"; its agent ends what runs there within {within_s:g} s"

    def _let_go(self, agent: Agent) -> None:
        if agent.gone:
            return
        agent.gone = True
        self._selector.unregister(agent)

    def end_all(self) -> None:
        """End everything at once, wait for the agents to confirm it, and let go of them."""
        if self._ended.is_set():
            return
        self.send(signal.SIGKILL)
        deadline = time.monotonic() + _END_S
        while self.remains() and time.monotonic() < deadline:
            for _ in self.events(deadline - time.monotonic()):
                continue
        self.close()

    def running(self) -> set[int]:
        """Return the ranks whose end is not known."""
        return set(self._ranks)

    def remains(self) -> bool:
        """Say whether any agent has yet to confirm that nothing is left on its node."""
        return not all(agent.gone for agent in self.agents)

    def send(self, number: int) -> None:
        """Have everything ended: SIGTERM with the grace, SIGKILL at once."""
        for agent in self.agents:
            if agent.gone:
                continue
            if number == signal.SIGKILL:
                agent.send(Kill())
            else:
                agent.send(Stop(self.timing.grace_s))

    def wake(self) -> None:
        """Make `events` return now; after `close` there is nothing to wake."""
        with suppress(OSError):
            os.write(self._waker, b"!")

    def close(self) -> Iterator[Event]:
        """Let go of all nodes; once more is no error."""
        if self._ended.is_set():
            return iter(())
        self._ended.set()
        self._beating.join()
        for agent in self.agents:
            agent.close()
        self._selector.close()
        os.close(self._woken)
        os.close(self._waker)
        return iter(())


def _refusal(unfit: Unfit) -> AdapterError:
    error = AdapterError(unfit.found, unfit.remedy)
    error.exit_status = unfit.status if 0 < unfit.status <= _MOST_STATUS else CLUSTER_UNFIT
    return error


def of_each(make: Callable[..., T], nodes: Iterable[tuple[Any, ...]]) -> list[T]:
    """Return what is made of each node; what cannot be made of several is told together.

    Raises:
        AdapterError: naming every node of which it cannot.
    """
    made, errors = [], []
    for node in nodes:
        try:
            made.append(make(*node))
        except AdapterError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else together(errors)
    return made


def together(errors: Sequence[AdapterError]) -> AdapterError:
    """Return one error for what several nodes said."""
    found = list(dict.fromkeys(error.found for error in errors))
    shown = found[:_MOST_REASONS]
    if len(found) > _MOST_REASONS:
        shown.append(f"and {len(found) - _MOST_REASONS} more nodes")
    remedies = list(dict.fromkeys(error.remedy for error in errors if error.remedy))
    together = AdapterError("\n".join(shown), "\n".join(remedies[:2]))
    together.exit_status = max(error.exit_status for error in errors)
    return together


def _no_answer(agent: Agent, limit_s: float) -> ClusterUnfitError:
    return ClusterUnfitError(
        f"{agent.name}: {agent.python} has begun, and did not answer within {limit_s:g} s",
        "Does its file system or name service hang? --connect-timeout waits longer for a first"
        " answer.",
    )

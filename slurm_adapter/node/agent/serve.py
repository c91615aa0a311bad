"""An agent at work: its ranks run, the head hears of them, and in the end nothing is left.

One thread, one wait: the ranks' pipes, the head's messages, and room for ours.
"""

from __future__ import annotations

import gc
import os
import time

from slurm_adapter import signals
from slurm_adapter.errors import AdapterError
from slurm_adapter.node.agent.head_channel import unfit
from slurm_adapter.node.job_files import cannot_run, make_referenced_directories
from slurm_adapter.node.protocol import framing
from slurm_adapter.node.protocol.messages import (
    Begun,
    Go,
    Gone,
    Kill,
    RankEnded,
    RankOutput,
    Ready,
    Stop,
    TakePlan,
    Warned,
)
from slurm_adapter.node.protocol.records import unpack_plan
from slurm_adapter.node.ranks.events import Ended, Output
from slurm_adapter.node.ranks.machine import MachineFleet
from slurm_adapter.node.ranks.spawn import RankStart, make_start
from slurm_adapter.node.ranks.terminator import Terminator
from slurm_adapter.node.system import processes, signal_forwarding
from slurm_adapter.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_adapter.node.agent.head_channel import HeadChannel
    from slurm_adapter.node.agent.prepare import Prepared
    from slurm_adapter.node.protocol.messages import Look, Request
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.node.view.view import ViewNamespaces
    from slurm_adapter.plan import NodePlan, RankPlan

_AGAIN_S = 0.2
"""Until what was killed is looked for once more."""
_GIVE_UP_S = 10.0
"""After which what does not even die of SIGKILL is named and left."""


def serve(prepared: Prepared, look: Look, channel: HeadChannel) -> int:
    """Start a node's ranks when the head says so, and stay until all are gone.

    Args:
        prepared: the node.
        look: what the head wanted to know of it, and how long is waited for what.
        channel: to the head.

    Returns:
        The exit status: 0; `framing.UNHEARD` where the head was lost; an error's own.
    """
    folder = prepared.folder
    fleet = MachineFleet(None if folder is None else folder.open_output)
    channel.join(fleet.watch, look.link_s)
    try:
        given = _selected_view(prepared, channel)
        starts = _starts(prepared, given) if given.fits(prepared.plan) else []
    except AdapterError as error:
        channel.tell(unfit(error))
        channel.finish()
        return error.exit_status
    gc.freeze()  # going over it would copy pages that are the parent processes', too
    gc.enable()
    _tell_ready(prepared, given, channel)
    return _Agent(fleet, channel, prepared, given, look.grace_s).run(starts)


@record
class _Given:
    """What this node gives its ranks."""

    level: str
    wrapper: str = ""
    namespaces: ViewNamespaces | None = None

    def fits(self, plan: NodePlan) -> bool:
        """Say whether it is what the plan made before anybody knew counts on."""
        return self.level == plan.node.view and not self.wrapper


def _selected_view(prepared: Prepared, channel: HeadChannel) -> _Given:
    """Return what this node gives, which may be less than the plan counts on."""
    if prepared.plan.node.view == "off":
        return _Given("off")
    from slurm_adapter.node.view.selection import select_view  # not without a view

    found = select_view(prepared.plan, prepared.environment, only_try=prepared.only_try)
    if found.warning:
        channel.tell(Warned(found.warning))
    return _Given(found.level, found.wrapper, found.namespaces)


def _tell_ready(prepared: Prepared, given: _Given, channel: HeadChannel) -> None:
    channel.tell(Ready(given.level, given.wrapper, tuple(prepared.own_values.items())))


def _starts(prepared: Prepared, given: _Given) -> list[RankStart]:
    """Return how the ranks start, the directories that they are told of made."""
    if prepared.only_try:
        return []
    plan, environment = prepared.plan, prepared.environment
    for rank in plan.ranks:
        make_referenced_directories(plan.job, rank.referenced_directories)
    return [
        make_start(rank, environment, given.namespaces, _installing(plan, rank, environment))
        for rank in plan.ranks
    ]


def _installing(
    plan: NodePlan, rank: RankPlan, environment: Mapping[str, str]
) -> Callable[[int], None] | None:
    """Return what installs a rank's packages; None where none were asked for."""
    if not plan.job.install_requirements:
        return None
    from slurm_adapter.node.ranks.packages import install_once

    def install(output: int) -> None:
        install_once(plan, rank, rank.environment(environment), output)

    return install


class _Agent:
    """What the ranks do and what the head wants, and what follows from that."""

    def __init__(
        self,
        fleet: MachineFleet,
        channel: HeadChannel,
        prepared: Prepared,
        given: _Given,
        grace_s: float,
    ) -> None:
        self._fleet, self._channel = fleet, channel
        self._prepared, self._given, self._folder = prepared, given, prepared.folder
        self._grace_s = grace_s
        self._begun = self._ending = False
        self._terminator = Terminator(_AGAIN_S)
        for number in signal_forwarding.STOP_SIGNALS:
            signals.handle(number, self._on_signal)

    def _on_signal(self, number: int, _: object) -> None:
        del number
        self._ending = True  # no more: this may have interrupted anything
        self._fleet.wake()

    def run(self, starts: list[RankStart]) -> int:
        """Wait for the word to start, then until nothing is left; return the exit status.

        `starts` are those of the ranks; empty where the plan for what this node gives is to come.
        """
        self._starts = starts
        while not self._over():
            for event in self._fleet.events(self._limit()):
                self._pass_on(event)
            for request in self._channel.listen():
                self._obey(request)
            self._heed_time()
            self._channel.flush()
            self._fleet.pause(paused=self._channel.full)
        for event in self._fleet.close():
            self._pass_on(event)
        left = self._left()
        if self._folder is not None:
            self._folder.note_gone(left)
        self._channel.tell(Gone(left))
        self._channel.finish()
        unheard = self._channel.silent and self._folder is None
        return framing.UNHEARD if unheard and not left else 0

    def _over(self) -> bool:
        if self._fleet.running() or self._fleet.remains():
            return self._terminator.killed_at_s + _GIVE_UP_S < time.monotonic()
        return self._begun or self._ending

    def _left(self) -> str:
        """Return words for what is left in spite of all."""
        if not self._fleet.remains():
            return ""
        return ", ".join(f"pid {pid}" for pid in processes.descendants(os.getpid()))

    def _limit(self) -> float:
        """Return how long nothing has to be done unless something happens."""
        now = time.monotonic()
        times = [now + framing.LONGEST_BEAT_S if self._channel.lost else self._channel.due_s]
        return max(0.0, min(min(times) - now, self._terminator.wait_s(now)))

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, Output):
            self._channel.tell(RankOutput(event.rank, event.lines, event.is_error))
        elif isinstance(event, Ended):
            self._note_end(event)
            self._channel.tell(RankEnded(event.rank, event.status, event.at_s))

    def _note_end(self, event: Ended) -> None:
        if self._folder is None:
            return
        try:
            self._folder.note_end(event.rank, event.status, event.at_s)
        except OSError as error:  # a full disk is no reason to lose the node
            what = f"{self._folder.path} does not take how rank {event.rank} ended"
            self._channel.tell(Warned(f"{what}: {error.strerror}"))

    def _obey(self, request: Request) -> None:
        if isinstance(request, Go) and not (self._begun or self._ending):
            self._go()
        elif isinstance(request, TakePlan) and not (self._begun or self._ending):
            self._take(unpack_plan(request.plan))
        elif isinstance(request, Stop):
            self._grace_s = request.grace_s
            self._ending = True
        elif isinstance(request, Kill):
            self._ending = True
            self._terminator.kill(time.monotonic())

    def _take(self, plan: NodePlan) -> None:
        """Take the plan for what this node gives in place of the one that counted on more."""
        self._prepared = replace(self._prepared, plan=plan)
        try:
            self._starts = _starts(self._prepared, self._given)
        except AdapterError as error:
            self._refuse(error)
        else:
            _tell_ready(self._prepared, self._given, self._channel)

    def _go(self) -> None:
        self._begun = True
        try:
            self._fleet.start(self._starts)
        except (AdapterError, OSError) as error:
            self._refuse(error if isinstance(error, AdapterError) else cannot_run("a rank", error))
        else:
            self._channel.tell(Begun())

    def _refuse(self, why: AdapterError) -> None:
        self._channel.tell(unfit(why))
        self._ending = True

    def _heed_time(self) -> None:
        now = time.monotonic()
        self._channel.heed_time(now)
        if self._channel.lost and (self._folder is None or not self._begun):
            self._ending = True  # a detached run goes on
        if self._ending:
            self._terminator.begin(now, self._grace_s)
        while (number := self._terminator.due(now)) is not None:
            self._fleet.send(number)

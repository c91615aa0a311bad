"""An agent at work: its ranks run, the head hears of them, and in the end nothing is left.

One thread, one wait: the ranks' pipes, the head's messages, and room for ours.
"""

from __future__ import annotations

import gc
import os
import time

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
    Warned,
)
from slurm_adapter.node.ranks.events import Ended, Output
from slurm_adapter.node.ranks.machine import MachineFleet
from slurm_adapter.node.ranks.spawn import Start, make_start
from slurm_adapter.node.system import processes, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_adapter.node.agent.head_channel import HeadChannel
    from slurm_adapter.node.agent.prepare import Prepared
    from slurm_adapter.node.agent.run_folder import RunFolder
    from slurm_adapter.node.protocol.messages import Look, Request
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.plan import Plan, RankPlan

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
        level, starts = _surround(prepared, channel)
    except AdapterError as error:
        channel.tell(unfit(error))
        channel.finish()
        return error.exit_status
    gc.freeze()  # going over it would copy pages that are the parent processes', too
    gc.enable()
    channel.tell(Ready(level))
    return _Agent(fleet, channel, folder, look.grace_s).run(starts)


def _surround(prepared: Prepared, channel: HeadChannel) -> tuple[str, list[Start]]:
    """Return the level of the view that this node gives, and how its ranks start in it."""
    plan, index, environment = prepared.plan, prepared.index, prepared.environment
    entry = None
    if plan.cluster.nodes[index].view != "off":
        from slurm_adapter.node.view.selection import surround  # noqa: PLC0415 - not without a view

        surroundings = surround(plan, index, environment)
        plan = plan.with_view(surroundings.level).with_settings(index, surroundings.settings)
        entry = surroundings.entry
        if surroundings.warning:
            channel.tell(Warned(surroundings.warning))
    ranks = list(plan.node_ranks(index))
    for rank in ranks:
        make_referenced_directories(plan.job, rank.told)
    level = plan.cluster.nodes[index].view
    return level, [
        make_start(rank, environment, entry, _installing(plan, rank, environment)) for rank in ranks
    ]


def _installing(
    plan: Plan, rank: RankPlan, environment: Mapping[str, str]
) -> Callable[[int], None] | None:
    """Return what installs a rank's packages; None where none were asked for."""
    if not plan.job.install_requirements:
        return None
    from slurm_adapter.node.ranks.packages import install_once  # noqa: PLC0415 - seldom needed

    def install(output: int) -> None:
        install_once(plan, rank, rank.environment(environment), output)

    return install


class _Agent:
    """What the ranks do and what the head wants, and what follows from that."""

    def __init__(
        self,
        fleet: MachineFleet,
        channel: HeadChannel,
        folder: RunFolder | None,
        grace_s: float,
    ) -> None:
        self._fleet, self._channel, self._folder = fleet, channel, folder
        self._grace_s = grace_s
        self._begun = self._ending = False
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        for number in signals.STOPPING:
            signals.handle(number, self._on_signal)

    def _on_signal(self, number: int, _: object) -> None:
        del number
        self._ending = True  # no more: this may have interrupted anything
        self._fleet.wake()

    def run(self, starts: list[Start]) -> int:
        """Wait for the word to start, then until nothing is left; return the exit status."""
        while not self._over():
            for event in self._fleet.events(self._limit()):
                self._pass_on(event)
            for request in self._channel.listen():
                self._obey(request, starts)
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
            return self._killed_at is not None and self._killed_at + _GIVE_UP_S < time.monotonic()
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
        if self._kill_at is not None:
            times.append(self._kill_at)
        return max(0.0, min(times) - now)

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

    def _obey(self, request: Request, starts: list[Start]) -> None:
        if isinstance(request, Go) and not (self._begun or self._ending):
            self._go(starts)
        elif isinstance(request, Stop):
            self._grace_s = request.grace_s
            self._ending = True
        elif isinstance(request, Kill):
            self._grace_s = 0.0
            self._ending = True
            self._kill_at = time.monotonic()

    def _go(self, starts: list[Start]) -> None:
        self._begun = True
        try:
            self._fleet.start(starts)
        except (AdapterError, OSError) as error:
            why = error if isinstance(error, AdapterError) else cannot_run("a rank", error)
            self._channel.tell(unfit(why))
            self._ending = True
        else:
            self._channel.tell(Begun())

    def _heed_time(self) -> None:
        now = time.monotonic()
        self._channel.heed_time(now)
        if self._channel.lost and (self._folder is None or not self._begun):
            self._ending = True  # a detached run goes on
        if self._ending and self._kill_at is None:
            self._fleet.send(signals.SIGTERM)
            self._kill_at = now + self._grace_s
        if self._kill_at is not None and now >= self._kill_at:
            self._fleet.send(signals.SIGKILL)
            self._killed_at = self._killed_at or now
            self._kill_at = now + _AGAIN_S

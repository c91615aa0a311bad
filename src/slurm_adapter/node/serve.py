"""An agent at work: its ranks run, the head hears of them, and in the end nothing is left.

One thread, one wait: the ranks' pipes, the head's messages, and room for ours.
"""

from __future__ import annotations

import os
import time

from slurm_adapter.errors import AdapterError
from slurm_adapter.node import frames, process, signals
from slurm_adapter.node.events import Ended, Output
from slurm_adapter.node.fleet import MachineFleet
from slurm_adapter.node.frames import FrameReader, frame
from slurm_adapter.node.program import make_told
from slurm_adapter.node.spawn import Start, make_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from slurm_adapter.node.events import Event
    from slurm_adapter.node.prepare import Prepared
    from slurm_adapter.node.runs import RunFolder

_READ_BYTES = 1 << 16
# What waits for the head in this process; above that ranks wait, too.
_MUCH_WAITING, _LITTLE_WAITING = 1 << 20, 1 << 18
_BEATS_IN_TIME = 4
_LONGEST_BEAT_S = 5.0
_AGAIN_S = 0.2
"""Until what was killed is looked for once more."""
_GIVE_UP_S = 10.0
"""After which what does not even die of SIGKILL is named and left."""
_STDIN, _STDOUT = 0, 1


def serve(prepared: Prepared, request: Mapping[str, Any]) -> int:
    """Start a node's ranks when the head says so, and stay until all are gone; return 0.

    Args:
        prepared: the node.
        request: `grace_s`, seconds from TERM to KILL where the head cannot say; `link_s`,
            seconds of silence after which it is taken for lost.
    """
    folder = prepared.folder
    fleet = MachineFleet(None if folder is None else folder.open_output)
    agent = _Agent(fleet, folder, float(request["grace_s"]), float(request["link_s"]))
    try:
        level, starts = _surround(prepared, agent)
    except AdapterError as error:
        agent.tell(frames.UNFIT, _texts(str(error.exit_status), error.found, error.remedy))
        agent.finish()
        return error.exit_status
    agent.tell(frames.READY, level.encode())
    return agent.run(lambda: fleet.start(starts))


def _surround(prepared: Prepared, agent: _Agent) -> tuple[str, list[Start]]:
    """Return the level of the view that this node gives, and how its ranks start in it."""
    plan, index, environment = prepared.plan, prepared.index, prepared.environment
    entry = None
    if plan.cluster.nodes[index].view != "off":
        from slurm_adapter.node.surround import surround  # noqa: PLC0415 - not without a view

        surroundings = surround(plan, index, environment)
        plan = plan.with_view(surroundings.level).with_settings(index, surroundings.settings)
        entry = surroundings.entry
        if surroundings.warning:
            agent.tell(frames.WARNING, _texts(surroundings.warning))
    ranks = list(plan.node_ranks(index))
    for rank in ranks:
        make_told(plan.job, rank.told)
    level = plan.cluster.nodes[index].view
    return level, [make_start(rank, environment, entry) for rank in ranks]


def _texts(*texts: str) -> bytes:
    return "\0".join(texts).encode("utf-8", "surrogateescape")


class _Agent:
    """What goes to the head and what comes from it, and what follows from that."""

    def __init__(
        self, fleet: MachineFleet, folder: RunFolder | None, grace_s: float, link_s: float
    ) -> None:
        self._fleet, self._folder = fleet, folder
        self._grace_s, self._link_s = grace_s, link_s
        self._beat_s = min(link_s / _BEATS_IN_TIME, _LONGEST_BEAT_S)
        self._start: Callable[[], None] | None = None
        self._reader = FrameReader()
        self._waiting: list[bytes] = []
        self._size = 0
        self._writing = False
        self._heard = self._beaten = time.monotonic()
        self._listening = True
        self._begun = self._ending = self._unheard = False
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        os.set_blocking(_STDIN, False)
        os.set_blocking(_STDOUT, False)
        self._watch = fleet.watch
        self._watch.add(_STDIN, None)
        for number in signals.STOPPING:
            signals.handle(number, self._on_signal)

    def _on_signal(self, number: int, _: object) -> None:
        del number
        self._ending = True  # no more: this may have interrupted anything
        self._fleet.wake()

    def run(self, start: Callable[[], None]) -> int:
        """Wait for the word to start, then until nothing is left; return the exit status."""
        self._start = start
        while not self._over():
            for event in self._fleet.events(self._limit()):
                self._pass_on(event)
            self._listen()
            self._heed_time()
            self._flush()
        for event in self._fleet.close():
            self._pass_on(event)
        left = self._left()
        if self._folder is not None:
            self._folder.note_gone(left)
        self.tell(frames.GONE, left.encode())
        self.finish()
        return frames.UNHEARD if self._unheard and not left else 0

    def _over(self) -> bool:
        if self._fleet.running() or self._fleet.remains():
            return self._killed_at is not None and self._killed_at + _GIVE_UP_S < time.monotonic()
        return self._begun or self._ending

    def _left(self) -> str:
        """Return words for what is left in spite of all."""
        if not self._fleet.remains():
            return ""
        return ", ".join(f"pid {pid}" for pid in process.descendants(os.getpid()))

    def _limit(self) -> float:
        """Return how long nothing has to be done unless something happens."""
        now = time.monotonic()
        times = [now + _LONGEST_BEAT_S]
        if self._listening:
            times += [self._beaten + self._beat_s, self._heard + self._link_s]
        if self._kill_at is not None:
            times.append(self._kill_at)
        return max(0.0, min(times) - now)

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, Output):
            self._send(frames.output_frame(event.rank, event.lines, is_error=event.is_error))
        elif isinstance(event, Ended):
            if self._folder is not None:
                self._folder.note_end(event.rank, event.status, event.at_s)
            self._send(frames.ended_frame(event.rank, event.status, event.at_s))

    def tell(self, kind: bytes, body: bytes = b"") -> None:
        """Have a message sent."""
        self._send(frame(kind, body))

    def _send(self, data: bytes) -> None:
        if self._listening:
            self._waiting.append(data)
            self._size += len(data)
            self._flush()

    def _flush(self) -> None:
        """Write what the head has room for; where much waits the ranks' pipes are left alone."""
        try:
            while self._waiting:
                data = self._waiting[0]
                count = os.write(_STDOUT, data)
                self._size -= count
                if count < len(data):
                    self._waiting[0] = data[count:]
                    break
                del self._waiting[0]
        except BlockingIOError:
            pass
        except OSError:  # the other end is gone
            self._lose_head()
        self._watch_room(wanted=bool(self._waiting))
        if self._size > _MUCH_WAITING:
            self._fleet.pause(paused=True)
        elif self._size < _LITTLE_WAITING:
            self._fleet.pause(paused=False)

    def _watch_room(self, *, wanted: bool) -> None:
        if wanted == self._writing:
            return
        self._writing = wanted
        if wanted:
            self._watch.add(_STDOUT, None, room=True)
        else:
            self._watch.remove(_STDOUT)

    def _lose_head(self) -> None:
        """Nobody hears us any more: end everything, silently, or go on where that was wanted."""
        if not self._listening:
            return
        self._listening = False
        self._waiting.clear()
        self._size = 0
        self._watch.remove(_STDIN)
        self._ending = self._ending or self._folder is None or not self._begun

    def _listen(self) -> None:
        if not self._listening:
            return
        try:
            data = os.read(_STDIN, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose_head()
            return
        self._heard = time.monotonic()
        for kind, body in self._reader.feed(data):
            self._obey(kind, body)

    def _obey(self, kind: bytes, body: bytes) -> None:
        if kind == frames.GO and not self._ending:
            self._go()
        elif kind == frames.STOP:
            self._grace_s = float(body)
            self._ending = True
        elif kind == frames.KILL:
            self._grace_s = 0.0
            self._ending = True
            self._kill_at = time.monotonic()

    def _go(self) -> None:
        if self._start is None:
            return
        start, self._start = self._start, None
        self._begun = True
        try:
            start()
        except AdapterError as error:
            self.tell(frames.UNFIT, _texts(str(error.exit_status), error.found, error.remedy))
            self._ending = True
        else:
            self.tell(frames.BEGUN)

    def _heed_time(self) -> None:
        now = time.monotonic()
        if not self._listening:
            pass
        elif now - self._heard > self._link_s:
            self._unheard = self._folder is None
            self._lose_head()
        elif now - self._beaten >= self._beat_s:
            self._beaten = now
            self.tell(frames.BEAT)
        if self._ending and self._kill_at is None:
            self._fleet.pause(paused=False)
            self._fleet.send(signals.SIGTERM)
            self._kill_at = now + self._grace_s
        if self._kill_at is not None and now >= self._kill_at:
            self._fleet.send(signals.SIGKILL)
            self._killed_at = self._killed_at or now
            self._kill_at = now + _AGAIN_S

    def finish(self) -> None:
        """Have the head hear the last of it, as long as it is there."""
        while self._listening and self._waiting:
            self._watch.wait(self._link_s)
            before = self._size
            self._listen()
            self._flush()
            if self._size == before and time.monotonic() - self._heard > self._link_s:
                return

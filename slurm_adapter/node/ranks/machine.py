"""The ranks of one machine as children of this process, and all that they start."""

from __future__ import annotations

import os
import select
import time

from slurm_adapter import signals
from slurm_adapter.node.ranks.events import Ended, LineSplitter, Output
from slurm_adapter.node.ranks.spawn import spawn
from slurm_adapter.node.system import processes
from slurm_adapter.node.system.poll import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.node.ranks.spawn import RankStart

_READ_BYTES = 1 << 16
# The largest pipe that an ordinary user may have is 1 MiB (pipe(7)).
_FULL_PIPE_READS = (1 << 20) // _READ_BYTES


class _Pipe:
    """One stream of a rank."""

    def __init__(self, rank: int, descriptor: int, *, is_error: bool) -> None:
        self.rank, self.descriptor, self.is_error = rank, descriptor, is_error
        self.splitter = LineSplitter()

    def output(self, lines: bytes) -> list[Event]:
        return [Output(self.rank, lines, self.is_error)] if lines else []


class MachineFleet:
    """Ranks as children of this process, each in a session of its own.

    Args:
        open_output: gives a descriptor for all of a rank's output; None: it is read through
            pipes and told as events.
    """

    def __init__(self, open_output: Callable[[int], int] | None = None) -> None:
        self._open_output = open_output
        processes.become_subreaper()
        self.watch = Watch()
        """Whoever waits for more than the ranks adds it here, with None as its meaning."""
        self._ranks: dict[int, int] = {}  # pid: rank
        self._pipes: list[_Pipe] = []
        self._paused = False
        self._terminated: set[int] | None = None
        """Who has got a SIGTERM, once that was sent."""
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self.watch.add(self._woken, self._woken)
        # Not pidfd_open, which kernels of many clusters are too old for.
        self._before = signals.handle(signals.SIGCHLD, lambda *_: self.wake())

    def start(self, starts: Iterable[RankStart]) -> None:
        """Start ranks: all, or none where one cannot be.

        Raises:
            AdapterError: saying why one cannot.
        """
        try:
            for start in starts:
                self._start(start)
        except BaseException:
            try:  # noqa: SIM105 - contextlib costs start-up time
                self.send(signals.SIGKILL)
            except OSError:  # no descriptor left to look with; they die with this process
                pass
            raise

    def _start(self, start: RankStart) -> None:
        if self._open_output is None:
            self._start_with_pipes(start)
            return
        output = self._open_output(start.rank)
        try:
            self._ranks[spawn(start, output, output)] = start.rank
        finally:
            os.close(output)

    def _start_with_pipes(self, start: RankStart) -> None:
        ours, theirs = zip(*(os.pipe() for _ in range(2)), strict=True)
        try:
            pid = spawn(start, *theirs)
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._ranks[pid] = start.rank
        for descriptor, is_error in zip(ours, (False, True), strict=True):
            os.set_blocking(descriptor, False)
            pipe = _Pipe(start.rank, descriptor, is_error=is_error)
            self._pipes.append(pipe)
            self.watch.add(descriptor, pipe)

    def events(self, limit_s: float) -> Iterator[Event]:
        """Yield what happened: output first, so that a rank's last words stand before its end."""
        ready = self.watch.wait(limit_s)
        for pipe in ready:
            if isinstance(pipe, _Pipe):
                yield from self._read(pipe)
        if self._woken in ready:
            os.read(self._woken, _READ_BYTES)
        yield from self._ended()

    def _read(self, pipe: _Pipe) -> list[Event]:
        """Return the lines that one read completes; at its end the pipe is let go."""
        try:
            data = os.read(pipe.descriptor, _READ_BYTES)
        except BlockingIOError:
            return []
        return pipe.output(pipe.splitter.feed(data)) if data else self._let_go(pipe)

    def _read_all(self, pipe: _Pipe) -> Iterator[Event]:
        """Yield what stands in a pipe now; a rank's children may go on writing into it."""
        waiting = select.poll()
        waiting.register(pipe.descriptor, select.POLLIN)
        for _ in range(_FULL_PIPE_READS):
            if pipe not in self._pipes or not waiting.poll(0):
                return
            yield from self._read(pipe)

    def _let_go(self, pipe: _Pipe) -> list[Event]:
        self._pipes.remove(pipe)
        if not self._paused:
            self.watch.remove(pipe.descriptor)
        os.close(pipe.descriptor)
        return pipe.output(pipe.splitter.finish())

    def pause(self, *, paused: bool) -> None:
        """Leave what ranks print in their pipes, or go on reading: a full pipe makes them wait."""
        if paused == self._paused:
            return
        self._paused = paused
        for pipe in self._pipes:
            if paused:
                self.watch.remove(pipe.descriptor)
            else:
                self.watch.add(pipe.descriptor, pipe)

    def _ended(self) -> Iterator[Event]:
        reaped = False
        for pid, status in processes.reap():
            reaped = True
            rank = self._ranks.pop(pid, None)
            if rank is None:  # an orphan of some rank's
                continue
            for pipe in list(self._pipes):
                if pipe.rank == rank:
                    yield from self._read_all(pipe)
            yield Ended(rank, status, time.monotonic())
        if reaped and self._terminated is not None and not self._ranks:
            # What a rank started as it ended, or what just then had no parent, is left by it.
            self.send(signals.SIGTERM)

    def running(self) -> set[int]:
        """Return the ranks that have not ended."""
        return set(self._ranks.values())

    def remains(self) -> bool:
        """Say whether any descendant lives."""
        return processes.has_children()

    def send(self, number: int) -> None:
        """Send a signal to all descendants, whatever session they are in; SIGTERM to each once."""
        if number != signals.SIGTERM:
            processes.send_below(number)
            return
        terminated = self._terminated or set()
        self._terminated = terminated.union(processes.send_below(number, terminated))

    def forward(self, number: int) -> None:
        """Send a signal to the ranks alone: whom they pass it on to is their own affair."""
        for pid in list(self._ranks):
            try:  # noqa: SIM105 - contextlib costs start-up time
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):  # gone, or somebody else's by now
                pass

    def wake(self) -> None:
        """Make `events` return now; after `close` there is nothing to wake."""
        try:  # noqa: SIM105 - contextlib costs start-up time
            os.write(self._waker, b"!")
        except OSError:
            pass

    def close(self) -> Iterator[Event]:
        """Yield what is left in the pipes and close everything."""
        for pipe in list(self._pipes):
            yield from self._read_all(pipe)
        for pipe in list(self._pipes):
            yield from self._let_go(pipe)
        signals.handle(signals.SIGCHLD, self._before)
        self.watch.remove(self._woken)
        os.close(self._woken)
        os.close(self._waker)
        self._waker = -1

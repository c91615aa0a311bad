"""The ranks of a local run as children of this process, and all that they start."""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.launch.events import Ended, LineSplitter, Output
from slurm_adapter.node import process
from slurm_adapter.node.program import cannot_run, find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from slurm_adapter.launch.events import Event
    from slurm_adapter.launch.local import LocalRun
    from slurm_adapter.plan import RankPlan

_READ_BYTES = 1 << 16
# The largest pipe that an ordinary user may have is 1 MiB (pipe(7)).
_FULL_PIPE_READS = (1 << 20) // _READ_BYTES


class _Pipe(NamedTuple):
    rank: int
    is_error: bool
    splitter: LineSplitter


class LocalFleet:
    """The ranks as children of this process, each in a session of its own."""

    def __init__(self, run: LocalRun, environment: Mapping[str, str]) -> None:
        process.become_subreaper()
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._selector.register(woken, selectors.EVENT_READ)
        # Not pidfd_open, which kernels of many clusters are too old for.
        self._before = signal.signal(signal.SIGCHLD, lambda *_: self.wake())
        starts = [_Start(run, rank, environment) for rank in run.plan.ranks()]
        try:
            for start in starts:
                self._add(start)
        except BaseException:
            with suppress(OSError):  # no descriptor left to look with; they die with this process
                self.send(signal.SIGKILL)
            raise
        finally:
            run.close()

    def _add(self, start: _Start) -> None:
        child = start.run()
        self._children[start.rank.rank] = child
        for stream, is_error in ((child.stdout, False), (child.stderr, True)):
            if stream is not None:
                pipe = _Pipe(start.rank.rank, is_error, LineSplitter())
                self._selector.register(_own_descriptor(stream), selectors.EVENT_READ, pipe)

    def events(self, limit_s: float) -> Iterator[Event]:
        """Yield what happened: output first, so that a rank's last words stand before its end."""
        ready = [key for key, _ in self._selector.select(limit_s)]
        for key in ready:
            if isinstance(key.data, _Pipe):
                yield from self._read(key)
        for key in ready:
            if key.data is None:
                os.read(key.fd, _READ_BYTES)
        if len(ready) == 0 or any(key.data is None for key in ready):
            yield from self._ended()

    def _read(self, key: selectors.SelectorKey) -> list[Event]:
        """Return the lines that one read completes; at its end the pipe is let go."""
        pipe: _Pipe = key.data
        try:
            data = os.read(key.fd, _READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            return self._let_go(key)
        return [Output(pipe.rank, line, pipe.is_error) for line in pipe.splitter.feed(data)]

    def _read_all(self, key: selectors.SelectorKey) -> Iterator[Event]:
        """Yield what stands in a pipe now; a rank's children may go on writing into it."""
        waiting = select.poll()
        waiting.register(key.fd, select.POLLIN)
        for _ in range(_FULL_PIPE_READS):
            if key.fd not in self._selector.get_map() or not waiting.poll(0):
                return
            yield from self._read(key)

    def _let_go(self, key: selectors.SelectorKey) -> list[Event]:
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        pipe: _Pipe = key.data
        return [Output(pipe.rank, line, pipe.is_error) for line in pipe.splitter.finish()]

    def _pipes(self) -> list[selectors.SelectorKey]:
        keys = self._selector.get_map().values()
        return [key for key in keys if isinstance(key.data, _Pipe)]

    def _ended(self) -> Iterator[Event]:
        for rank, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            for pipe in self._pipes():
                if pipe.data.rank == rank:
                    yield from self._read_all(pipe)
            del self._children[rank]
            yield Ended(rank, code if code >= 0 else 128 - code)

    def running(self) -> set[int]:
        """Return the ranks that have not ended."""
        return set(self._children)

    def remains(self) -> bool:
        """Say whether any descendant lives."""
        return bool(process.descendants(os.getpid()))

    def send(self, number: int) -> None:
        """Send a signal to all descendants, whatever session they are in."""
        process.send(process.descendants(os.getpid()), number)

    def wake(self) -> None:
        """Make `events` return now; after `close` there is nothing to wake."""
        with suppress(OSError):
            os.write(self._waker, b"!")

    def close(self) -> Iterator[Event]:
        """Yield what is left in the pipes and close everything."""
        for pipe in self._pipes():
            yield from self._read_all(pipe)
        for pipe in self._pipes():
            yield from self._let_go(pipe)
        signal.signal(signal.SIGCHLD, self._before)
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        os.close(self._waker)
        self._selector.close()


def _own_descriptor(stream: IO[bytes]) -> int:
    """Return a non-blocking descriptor of ours; the stream object is closed."""
    descriptor = os.dup(stream.fileno())
    stream.close()
    os.set_blocking(descriptor, False)
    return descriptor


class _Start:
    """One rank's start, checked whole before any rank is started."""

    def __init__(self, run: LocalRun, rank: RankPlan, inherited: Mapping[str, str]) -> None:
        self.rank = rank
        self._entry = run.surroundings[rank.node_index].entry if run.surroundings else None
        self._environment = rank.environment(inherited)
        self._words = rank.words
        self._words[0] = find_program(self._words[0], self._environment, rank.cwd.value)
        self._cwd = rank.cwd.value

    def run(self) -> subprocess.Popen[bytes]:
        """Start it."""
        try:
            return subprocess.Popen(
                self._words,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=self._settle(),  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            raise cannot_run(self._words[0], error) from error
        except subprocess.SubprocessError as error:
            raise ClusterUnfitError(
                f"{self.rank.node.name} cannot enter {self._cwd}",
                "The directory must be there and readable.",
            ) from error

    def _settle(self) -> Callable[[], None]:
        """Return what the child does before it becomes the rank."""
        die_with_parent = process.dying_with_parent()

        def settle() -> None:
            die_with_parent()
            process.restore_descriptor_limit()
            if self._entry is not None:
                self._entry.enter()
            os.chdir(self._cwd)

        return settle

"""A job that was started, whoever started it and wherever it runs: seen, followed, ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from slurm_adapter.errors import NODE_LOST, AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from slurm_adapter.launch.observer import Chunk

    Say = Callable[[str], None]

StateWord = Literal["waiting", "running", "done", "failed", "stopped", "lost", "unknown"]


@dataclass(frozen=True)
class JobState:
    """How a job is."""

    word: StateWord
    """`waiting` for nodes, `running`, `done` (with 0), `failed`, `stopped` by somebody, `lost` with
    a node or with who watched it; `unknown` where nobody answers who would know."""
    exit_status: int | None = None
    """Of a job that has ended: the first failing rank's own, or what stands for the reason."""
    detail: str = ""
    """More about it, for people: why it waits, what failed."""

    @property
    def ended(self) -> bool:
        """Whether it will not go on."""
        return self.word in ("done", "failed", "stopped", "lost")


class LogLine(NamedTuple):
    """One line that a job has written."""

    rank: int | None
    """Whose it is; under Slurm the node's index where a node's ranks write one file. None: of the
    job's own log."""
    text: str


class StopNotConfirmedError(AdapterError):
    """A job was told to stop, and not all of it is known to be gone."""

    exit_status = NODE_LOST

    def __init__(self, job_id: str, left: Sequence[str]) -> None:
        super().__init__(
            "\n".join([f"{job_id} was told to stop, and that is not confirmed", *left]),
            "Try once more, or look on those nodes.",
        )
        self.left = tuple(left)
        """Words for each node or host that has not confirmed it."""


class JobHandle(ABC):
    """A job that was started.

    Methods raise `AdapterError` where what they have to ask cannot be reached. As a context
    manager it ends, at the end of the block, a job that this process watches; others go on.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """The name by which `find_job` and the commands `logs` and `stop` know it."""

    @property
    @abstractmethod
    def nodes(self) -> Sequence[tuple[str, range]]:
        """The nodes' names, empty where they are not known, and the ranks that lines are from."""

    @property
    def node_logs(self) -> bool:
        """Whether nodes have files of their own, beside the job's log."""
        return False

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have, without asking anybody."""
        return self.state().ended

    @abstractmethod
    def state(self) -> JobState:
        """Return how it is now."""

    @abstractmethod
    def wait(self) -> int:
        """Stay until it has ended; return its exit status."""

    @abstractmethod
    def stream(self, show: Callable[[Chunk], None], say: Say, *, heed_signals: bool = False) -> int:
        """Stay until it has ended; return its exit status.

        Args:
            show: gets what it has written and writes, in the largest pieces that there are.
            say: gets what is to be told, a line each.
            heed_signals: whether signals that mean stop end the monitoring in order, with a
                `LeftError`: for a program's main thread.
        """

    @abstractmethod
    def chunks(self, say: Say) -> Iterator[Chunk]:
        """Yield what it has written until now; `say` gets what is to be told."""

    @abstractmethod
    def stop(self, say: Say | None = None) -> JobState:
        """End it everywhere; return how it ended, once that is confirmed.

        Args:
            say: gets what is to be told, a line each.

        Raises:
            StopNotConfirmedError: it was told to, and something of it may be left.
        """

    def follow(
        self,
        show: Callable[[LogLine], object] | None = None,
        say: Callable[[str], object] | None = None,
    ) -> int:
        """Stay until it has ended; return its exit status.

        Args:
            show: gets each line that it has written and writes; None: they are printed.
            say: gets what is to be told of the job, a line each; None: nobody does.
        """

        def each(chunk: Chunk) -> None:
            for line in lines_of(chunk):
                (show or _print)(line)

        def tell(text: str) -> None:
            if say is not None:
                say(text)

        return self.stream(each, tell)

    def logs(self) -> Iterator[LogLine]:
        """Yield the lines that it has written until now, rank by rank as far as they come so."""
        for chunk in self.chunks(unheard):
            yield from lines_of(chunk)

    @abstractmethod
    def close(self) -> None:
        """Let go of it: what this process watches itself is ended, other jobs go on."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of it."""
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


def lines_of(chunk: Chunk) -> Iterable[LogLine]:
    """Return the lines of a chunk."""
    texts = chunk.lines.decode(errors="replace").removesuffix("\n").split("\n")
    return (LogLine(chunk.rank, text) for text in texts)


def unheard(text: str) -> None:
    """Take words that nobody wants to hear."""
    del text


def _print(line: LogLine) -> None:
    prefix = "" if line.rank is None else f"[{line.rank}] "
    print(f"{prefix}{line.text}", flush=True)  # noqa: T201 - a program that follows wants just that

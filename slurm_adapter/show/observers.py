"""Observers of launchers that write to this process's stdout and stderr."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_adapter.launch.observer import Observer
from slurm_adapter.node.ranks.events import Output
from slurm_adapter.output import say
from slurm_adapter.show.lines import (
    LinePrinter,
    LogChoice,
    rank_names,
    write_all,
)
from slurm_adapter.show.live import live_or_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurm_adapter.launch.observer import Chunk, NodeState
    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.plan import Plan
    from slurm_adapter.show.live import Screen


class MessageObserver(Observer):
    """Says what people should know on stderr."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        """Say less (`quiet`: no warnings, nothing of what was done), or more."""
        self.quiet, self._verbose = quiet, verbose

    def say(self, text: str) -> None:
        """See `Observer.say`."""
        say(text)

    def warn(self, text: str) -> None:
        """See `Observer.warn`."""
        if not self.quiet:
            self.say(f"warning: {text}")

    def note(self, text: str) -> None:
        """See `Observer.note`."""
        if not self.quiet:
            self.say(text)

    def detail(self, text: str) -> None:
        """See `Observer.detail`."""
        if self._verbose:
            self.say(text)


class LocalObserver(MessageObserver):
    """The same for a job here: lines behind their ranks."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False, raw: bool = False) -> None:
        """Show lines byte for byte at a terminal, too, with `raw`."""
        super().__init__(quiet=quiet, verbose=verbose)
        self._raw = raw

    def planned(self, plan: Plan) -> None:
        """See `Observer.planned`."""
        names = [str(rank) for rank in range(plan.world_size)]
        self._printer = LinePrinter(names, raw=self._raw)

    def show(self, event: Event) -> None:
        """See `Observer.show`."""
        if isinstance(event, Output):
            self._printer.show(event)


class HostsObserver(MessageObserver):
    """The same for a job on hosts: lines behind host and rank, a panel below them."""

    def __init__(
        self, logs: str, *, quiet: bool = False, verbose: bool = False, raw: bool = False
    ) -> None:
        """Show the ranks that `logs` chooses: see `LogChoice.parse`.

        With `raw` their lines come byte for byte at a terminal, too: it can have no panel then.
        """
        super().__init__(quiet=quiet, verbose=verbose)
        self._logs, self._raw = logs, raw
        self._screen: Screen | None = None

    def planned(self, plan: Plan) -> None:
        """See `Observer.planned`: ranks that are chosen and do not exist stop the start."""
        firsts = zip(plan.first_ranks, plan.ranks_per_node, strict=True)
        self._ranks = [range(first, first + count) for first, count in firsts]
        self._nodes = [node.name for node in plan.cluster.nodes]
        choice = LogChoice.parse(self._logs, plan.world_size)
        self._printer = LinePrinter(rank_names(self._nodes, self._ranks), choice, raw=self._raw)

    @contextmanager
    def running(self, plan: Plan, job_id: str) -> Iterator[None]:
        """See `Observer.running`."""
        del plan, job_id
        with live_or_plain(self._nodes, enabled=not (self.quiet or self._raw)) as screen:
            screen.begin(self._printer, self._ranks)
            self._screen = screen
            try:
                yield
            finally:
                self._screen = None

    def say(self, text: str) -> None:
        """See `Observer.say`."""
        if self._screen is None:
            super().say(text)
        else:
            self._screen.say(text)

    def show(self, event: Event) -> None:
        """See `Observer.show`."""
        if self._screen is not None:
            self._screen.show(event)

    def node(self, index: int, state: NodeState) -> None:
        """See `Observer.node`."""
        if self._screen is not None:
            self._screen.state(index, state)

    def tick(self) -> float:
        """See `Observer.tick`."""
        if self._screen is None:
            return super().tick()
        self._screen.tick()
        return self._screen.due_s


class OutputPrinter:
    """Writes what a job's ranks have written, behind their nodes' names where these are known."""

    def __init__(
        self, nodes: Sequence[tuple[str, range]], *, own_log: bool, raw: bool = False
    ) -> None:
        """Prepare the prefixes.

        Args:
            nodes: the nodes' names, empty where not known, and the ranks that lines are from.
            own_log: whether nodes have files of their own: then what stands in the job's log is
                none of their output, and goes to stderr.
            raw: see `LinePrinter`.
        """
        names = [name for name, _ in nodes]
        ranks = [mine for _, mine in nodes]
        labels = rank_names(names, ranks) if all(names) else [str(mine[0]) for mine in ranks]
        self._printer = LinePrinter(labels, raw=raw)
        self._log_is_error = own_log

    def show(self, chunk: Chunk) -> None:
        """Write lines; `OSError` where that cannot be (nobody reads, the disk is full)."""
        rank, lines, is_error = chunk
        if rank is None:
            lines = self._printer.tamed(lines, is_error=self._log_is_error)
            write_all(self._printer.streams[self._log_is_error], lines)
        elif data := self._printer.prefixed(rank, lines, is_error=is_error):
            write_all(self._printer.streams[is_error], data)

"""A dry run as a tree for people at a terminal, every value with its reason."""

from __future__ import annotations

import os
import sys
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from slurm_adapter.errors import printable
from slurm_adapter.network.table import TITLES
from slurm_adapter.quoting import shell_words
from slurm_adapter.show.dry_run import (
    explained_words,
    headline,
    network_notes,
    node_line,
    reason_of,
    seen_around,
    shown_indices,
    shown_nodes,
    started_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from slurm_adapter.plan import RankPlan
    from slurm_adapter.setting import Setting
    from slurm_adapter.show.dry_run import DryRun


# Below this width a value's reason follows the value instead of standing in its own column.
_WIDE = 110
# A pipe has no width; a path of ordinary length must come through in one piece.
_PIPE_WIDTH = 160


def drawn(dry_run: DryRun, *, colour: bool) -> str:
    """Return the whole dry run as text for a terminal as wide as this one."""
    at_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = None if at_terminal or "COLUMNS" in os.environ else _PIPE_WIDTH
    canvas = StringIO()
    console = Console(file=canvas, highlight=False, force_terminal=colour, width=width)
    console.print(Group(*_Drawing(dry_run, wide=console.width >= _WIDE).parts()))
    return "".join(f"{line.rstrip()}\n" for line in canvas.getvalue().splitlines())


class _Drawing:
    """One dry run being drawn."""

    def __init__(self, dry_run: DryRun, *, wide: bool) -> None:
        self._dry_run, self._plan, self._wide = dry_run, dry_run.plan, wide
        self._first = self._plan.first_rank

    def parts(self) -> Iterator[RenderableType]:
        """Yield what is printed, from top to bottom."""
        yield self._tree()
        if self._dry_run.network:
            yield _title("network")
            yield _indented(self._network())
            if not self._wide:
                yield from map(_indented, self._evidence())
            for title, line in network_notes(self._dry_run.network):
                yield _indented(Text(f"{title}: {printable(line)}", style="dim"))
        if self._dry_run.files:
            yield _title("would be made")
            yield from (_indented(Text(path, overflow="fold")) for path in self._dry_run.files)
        if self._dry_run.copied:
            yield _title("would be copied")
            yield _indented(Text(printable(self._dry_run.copied), overflow="fold"))
        if self._dry_run.script is not None:
            yield _title("script")
            script = self._dry_run.script.text.rstrip("\n")
            yield _indented(Syntax(script, "bash", theme="ansi_dark", word_wrap=True))
        if self._dry_run.slurm is not None:
            answer = self._dry_run.slurm
            yield _title("sbatch --test-only says")
            yield _indented(Text(answer.says, style="green" if answer.accepts else "red"))
        for warning in self._dry_run.warnings:
            yield Text(f"\nwarning: {warning}", style="yellow")

    def _tree(self) -> Tree:
        root = Tree(Text(headline(self._plan), style="bold"), guide_style="dim")
        for index, left_out in shown_nodes(self._plan):
            if left_out:
                root.add(Text(f"... {left_out:,} nodes more, alike", style="dim"))
            else:
                self._add_node(root, index)
        if around := seen_around(self._plan):
            view = self._plan.cluster.nodes[0].view
            own = root.add(Text(f"{view} view: what each rank has to itself", style="bold cyan"))
            own.add(self._table((seen, Text(shows, style="dim"), "") for seen, shows in around))
        removed = root.add(Text("taken out of every rank's environment", style="bold cyan"))
        reasons: dict[str, list[str]] = {}
        for removal in self._plan.contract.removals:
            reasons.setdefault(removal.reason, []).append(removal.pattern)
        for reason, names in reasons.items():
            removed.add(Text.assemble(" ".join(names), ("  " + reason, "dim")))
        return root

    def _network(self) -> Table:
        """Return a row for each node; the evidence stands below where there is no room for it."""
        table = Table(box=None, pad_edge=False, header_style="bold cyan")
        titles = TITLES if self._wide else TITLES[:-1]
        for title in titles:
            table.add_column(title, overflow="fold")
        rows = self._dry_run.network
        for at in shown_indices(len(rows)):
            if at is None:
                table.add_row(Text(f"... {len(rows) - 3:,} more", style="dim"))
                continue
            *cells, evidence = map(printable, rows[at].cells)
            table.add_row(*cells, *([Text(evidence, style="dim")] if self._wide else []))
        return table

    def _evidence(self) -> Iterator[Text]:
        rows = self._dry_run.network
        for at in shown_indices(len(rows)):
            if at is not None:
                yield Text(printable(f"{rows[at].node}: {rows[at].evidence}"), style="dim")

    def _add_node(self, root: Tree, index: int) -> None:
        branch = root.add(Text(node_line(self._plan, index), style="bold cyan"))
        ranks = list(self._plan.node_ranks(index))
        for local in shown_indices(len(ranks)):
            if local is None:
                branch.add(Text(f"... {len(ranks) - 3:,} ranks more, alike", style="dim"))
            else:
                self._add_rank(branch, ranks[local])

    def _add_rank(self, branch: Tree, rank: RankPlan) -> None:
        place = branch.add(Text(started_line(self._plan, rank), style="bold"))
        place.add(Text.assemble(("command  ", "dim"), shell_words(rank.words)))
        if rank.rank == self._first.rank:
            rows = [*explained_words(rank), (f"in {rank.cwd.value or '.'}", rank.cwd.reason)]
            place.add(self._table((None, Text(words), reason) for words, reason in rows))
            place.add(self._settings(rank.settings))
        elif different := rank.differing(self._first):
            place.add(self._settings(different))

    def _settings(self, settings: Sequence[Setting]) -> Table:
        return self._table((item.name, _value(item), reason_of(item)) for item in settings)

    def _table(self, rows: Iterable[tuple[str | None, Text, str]]) -> Table:
        table = Table.grid(padding=(0, 2), pad_edge=False)
        for name, value, why in rows:
            reason = Text(why, style="dim")
            cells = [value, reason] if self._wide else [Text.assemble(value, "  ", reason)]
            table.add_row(*([] if name is None else [Text(name, style="green")]), *cells)
        if name is not None:
            table.columns[0].no_wrap = True
        for column in table.columns[-2:]:
            column.overflow = "fold"
        return table


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _value(item: Setting) -> Text:
    shown = printable(item.shown)
    return Text(shown or "(empty)", style="" if item.known and shown else "yellow")

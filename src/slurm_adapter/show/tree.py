"""A dry run as a tree for people at a terminal, every value with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from slurm_adapter.quoting import shell_words
from slurm_adapter.setting import printable
from slurm_adapter.show.dryrun import differing, headline, node_line, shown_indices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from slurm_adapter.plan import Plan, RankPlan
    from slurm_adapter.setting import Setting
    from slurm_adapter.show.dryrun import DryRun


def tree(dry_run: DryRun) -> RenderableType:
    """Return the whole dry run as something rich can print."""
    return Group(*_parts(dry_run))


def _parts(dry_run: DryRun) -> Iterator[RenderableType]:
    yield _plan(dry_run.plan)
    if dry_run.files:
        yield _title("would be made")
        yield from (Text(f"  {path}", overflow="fold") for path in dry_run.files)
    if dry_run.script is not None:
        yield _title("script")
        script = dry_run.script.text.rstrip("\n")
        yield Padding(Syntax(script, "bash", theme="ansi_dark", word_wrap=True), (0, 2))
    if dry_run.slurm is not None:
        answer = dry_run.slurm
        yield _title("Slurm says" if answer.accepts else "Slurm refuses")
        yield Text(f"  {answer.says}", style="green" if answer.accepts else "red")
    for warning in dry_run.warnings:
        yield Text(f"warning: {warning}", style="yellow")


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _plan(plan: Plan) -> Tree:
    root = Tree(Text(headline(plan), style="bold"), guide_style="dim")
    first = next(iter(plan.node_ranks(0)))
    for index in shown_indices(len(plan.cluster.nodes)):
        if index is None:
            root.add(Text(f"... {len(plan.cluster.nodes) - 3:,} nodes more, alike", style="dim"))
        else:
            _add_node(root, plan, index, first)
    removed = root.add(Text("taken out of every rank's environment", style="bold cyan"))
    reasons: dict[str, list[str]] = {}
    for removal in plan.contract.removals:
        reasons.setdefault(removal.reason, []).append(removal.pattern)
    for reason, names in reasons.items():
        removed.add(Text.assemble(" ".join(names), ("  " + reason, "dim")))
    return root


def _add_node(root: Tree, plan: Plan, index: int, first: RankPlan) -> None:
    branch = root.add(Text(node_line(plan, index), style="bold cyan"))
    count = plan.ranks_per_node[index]
    ranks = list(plan.node_ranks(index))
    for local in shown_indices(count):
        if local is None:
            branch.add(Text(f"... {count - 3:,} ranks more, alike", style="dim"))
        else:
            _add_rank(branch, ranks[local], first)


def _add_rank(branch: Tree, rank: RankPlan, first: RankPlan) -> None:
    whole = rank.rank == first.rank
    place = branch.add(Text(f"rank {rank.rank}", style="bold"))
    place.add(Text.assemble(("command  ", "dim"), shell_words(rank.words)))
    if whole:
        reasons = [(word.value, word.reason) for word in rank.argv if word.reason]
        place.add(_rows([*reasons, (rank.cwd.value or ".", rank.cwd.reason)]))
        place.add(_settings(rank.settings))
    elif different := differing(rank, first):
        place.add(_settings(different))


def _settings(settings: Sequence[Setting]) -> Table:
    table = _table()
    for item in settings:
        value = printable(item.shown)
        shown = Text(value or "(empty)", style="" if item.known and value else "yellow")
        table.add_row(Text(item.name, style="green"), shown, Text(item.reason, style="dim"))
    return table


def _rows(rows: Sequence[tuple[str, str]]) -> Table:
    table = _table()
    for value, reason in rows:
        table.add_row(Text(value), Text(reason, style="dim"))
    return table


def _table() -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(overflow="fold", ratio=None)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    return table

"""A dry run as plain text: no colour, no box lines, one command per node to copy and paste."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.errors import printable
from slurm_adapter.network.choose import INTERFACE_PLACEHOLDER
from slurm_adapter.network.table import TITLES
from slurm_adapter.quoting import shell_words
from slurm_adapter.setting import is_secret
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
    from collections.abc import Iterator, Mapping, Sequence

    from slurm_adapter.network.table import Row
    from slurm_adapter.plan import Plan, RankPlan
    from slurm_adapter.setting import Setting
    from slurm_adapter.show.dry_run import DryRun


# Of the node itself: whoever pastes a command does without, as libraries then do.
_PLACEHOLDERS = ("<address>", INTERFACE_PLACEHOLDER)


def plain(dry_run: DryRun, inherited: Mapping[str, str]) -> str:
    """Return the whole dry run as text; `inherited` is the environment ranks would inherit."""
    return "\n".join(_lines(dry_run, inherited)) + "\n"


def _lines(dry_run: DryRun, inherited: Mapping[str, str]) -> Iterator[str]:
    plan = dry_run.plan
    yield headline(plan)
    yield from (f"warning: {warning}" for warning in dry_run.warnings)
    first = plan.first_rank
    for index, left_out in shown_nodes(plan):
        if left_out:
            yield f"... {left_out:,} nodes more, alike ..."
            continue
        yield ""
        yield from _node(plan, index, first)
    yield from _network(dry_run.network)
    if around := seen_around(plan):
        yield ""
        yield f"{plan.cluster.nodes[0].view} view, what each rank has to itself:"
        yield from (f"  {seen}  ({shows})" for seen, shows in around)
    yield ""
    yield "taken out of every rank's environment:"
    yield "  " + " ".join(removal.pattern for removal in plan.contract.removals)
    if dry_run.files:
        yield ""
        yield "would be made:"
        yield from (f"  {path}" for path in dry_run.files)
    if dry_run.copied:
        yield ""
        yield f"would be copied: {printable(dry_run.copied)}"
    if dry_run.script is not None:
        yield ""
        yield "script:"
        yield from (f"  {line}".rstrip() for line in dry_run.script.text.rstrip("\n").split("\n"))
    if dry_run.slurm is not None:
        yield ""
        yield f"sbatch --test-only says: {dry_run.slurm.says}"
    yield ""
    where = "" if plan.job.container is None else " inside the image"
    yield f"the same by hand{where}, a command for each node:"
    outside = plan.with_view("off")  # a shell has the machine's own names and directories
    for index, left_out in shown_nodes(plan):
        if left_out:
            yield f"# ... {left_out:,} nodes more ..."
            continue
        yield f"# {node_line(plan, index)}"
        command = by_hand(list(outside.node_ranks(index)), inherited)
        yield _over_ssh(plan, index, command) if dry_run.over_ssh else command


def _network(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how nodes reach each other, a line for each, and why not by what else they have."""
    if not rows:
        return
    yield ""
    yield "network:"
    cells = [TITLES, *(tuple(map(printable, row.cells)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for at in shown_indices(len(rows)):
        if at is None:
            yield f"  ... {len(rows) - 3:,} nodes more ..."
            continue
        if at == 0:
            yield _aligned(cells[0], widths)
        yield _aligned(cells[at + 1], widths)
    yield from (f"  {title}: {printable(line)}" for title, line in network_notes(rows))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(f"{c:{w}}" for c, w in zip(cells, widths, strict=True)).rstrip()


def _node(plan: Plan, index: int, first: RankPlan) -> Iterator[str]:
    yield node_line(plan, index)
    count = plan.ranks_per_node[index]
    ranks = list(plan.node_ranks(index)) if count else []
    for local in shown_indices(count):
        if local is None:
            yield f"  ... {count - 3:,} ranks more, alike ..."
            continue
        yield from _rank(plan, ranks[local], first)


def _rank(plan: Plan, rank: RankPlan, first: RankPlan) -> Iterator[str]:
    whole = rank.rank == first.rank
    yield f"  {started_line(plan, rank)}"
    yield f"    command: {shell_words(rank.words)}"
    if whole:
        yield from (f"      {words}  ({reason})" for words, reason in explained_words(rank))
        yield f"    directory: {rank.cwd.value or '.'}  ({rank.cwd.reason})"
    settings = list(rank.settings) if whole else rank.differing(first)
    other = f"{plan.contract.starts} {first.rank}"
    if settings:
        yield "    variables:" if whole else f"    variables that differ from {other}'s:"
    yield from (_setting(item) for item in settings)


def _setting(item: Setting) -> str:
    return f"      {item.name}={printable(item.shown)}  ({reason_of(item)})"


def _over_ssh(plan: Plan, index: int, command: str) -> str:
    """Return a command that runs another on a node, where the job's folder may not be there yet."""
    node = plan.cluster.nodes[index]
    words = ["ssh", *(["-l", node.user] if node.user else [])]
    words += ["-p", str(node.port)] if node.port else []
    make = shell_words(["mkdir", "-p", plan.job.folder])
    return shell_words([*words, node.name, f"{make} && {command}"])


def by_hand(ranks: list[RankPlan], inherited: Mapping[str, str]) -> str:
    """Return a command that starts the ranks of one node from a shell on it."""
    commands = [_by_hand(rank, inherited) for rank in ranks]
    return commands[0] if len(commands) == 1 else " & ".join(commands) + " & wait"


def _by_hand(rank: RankPlan, inherited: Mapping[str, str]) -> str:
    words = ["env"]
    for name in rank.removed_from(inherited):
        words += ["-u", name]
    # A secret is not printed: the shell this is pasted into has it, or the rank goes without.
    words += [
        f"{item.name}={item.value}"
        for item in rank.settings
        if not is_secret(item.name) and item.value not in _PLACEHOLDERS and item.hole is None
    ]
    command = shell_words([*words, *rank.words])
    return (
        f"(cd {shell_words([rank.cwd.value])} && {command})" if rank.cwd.value else f"({command})"
    )

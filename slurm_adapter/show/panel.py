"""The picture of a running job: a line for each node, or for those that deviate where many are.

Loads rich, which a pipe has no use for: imported only once there is something to draw.
"""

from __future__ import annotations

from collections import Counter
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slurm_adapter.errors import printable
from slurm_adapter.show.harmless import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_adapter.launch.observer import NodeState
    from slurm_adapter.show.progress import NodeProgress, Progress

_STYLES: dict[NodeState, str] = {
    "lost": "bold red",
    "connecting": "yellow",
    "looking": "yellow",
    "starting": "yellow",
    "ending": "magenta",
    "running": "green",
    "gone": "dim",
}
"""What needs attention first stands first."""
_URGENCY = {state: place for place, state in enumerate(_STYLES)}
_ALARMING = ("lost", "failed")
# From how many columns on there is room for a part, and for counts in words.
_ELAPSED_FROM, _RANKS_FROM, _LAST_FROM, _WORDS_FROM = 32, 48, 64, 110
_SHORTEST_NAME, _LONGEST_NAME = 8, 40


def draw(progress: Progress, now_s: float, size: tuple[int, int], *, colour: bool) -> list[str]:
    """Return the rows of the picture, at most half as many as the terminal has.

    Args:
        progress: what is known.
        now_s: on the clock of `progress`.
        size: (columns, rows) of the terminal.
        colour: whether styles may be used; else it is text alone.
    """
    width, most = size[0], size[1] // 2
    if most < 2:  # noqa: PLR2004 - a title and one node
        return []
    canvas = StringIO()
    console = Console(
        file=canvas,
        width=width,
        height=most,
        color_system="standard" if colour else None,
        force_terminal=colour,
        force_interactive=False,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},  # what it would read there is known better here
    )
    shown, folded = _choose(progress.nodes, most - 1)
    console.print(_title(progress, now_s, width))
    console.print(_table(shown, now_s, width))
    if folded:
        line = Text(f" … {len(folded):,} more: {_counted(_states(folded))}", style="dim")
        console.print(line, no_wrap=True, overflow="ellipsis")
    return canvas.getvalue().splitlines()


def _choose(
    nodes: Sequence[NodeProgress], most: int
) -> tuple[list[NodeProgress], list[NodeProgress]]:
    """Return (nodes to show, nodes to fold into one row): `most` rows in all, each in node order.

    The first node is always shown (its rank 0 tells how training goes), then what deviates from
    the others, the most urgent first.
    """
    if len(nodes) <= most:
        return list(nodes), []
    usual = max(_states(nodes).items(), key=lambda item: item[1])[0]
    deviating = [
        index for index, node in enumerate(nodes) if index and (node.failed or node.state != usual)
    ]
    deviating.sort(key=lambda index: (not nodes[index].failed, _URGENCY[nodes[index].state], index))
    if most == 1:  # the title counts them all
        return [nodes[next(iter(deviating), 0)]], []
    chosen = {0, *deviating[: most - 2]}
    shown = [node for index, node in enumerate(nodes) if index in chosen]
    return shown, [node for index, node in enumerate(nodes) if index not in chosen]


def _title(progress: Progress, now_s: float, width: int) -> Text:
    """Return a rule with the whole job's figures in it; the cursor rests on its first cell."""
    nodes = progress.nodes
    ends = Counter[str]()
    for node in nodes:
        ends.update(_ends(node))
    titles = []
    for in_full in (True, False):
        title = Text.assemble(("── ", "dim"), (_clock(now_s - progress.begun_s), "bold"))
        title.append(" · ", "dim").append(_summary("node", _states(nodes), in_full=in_full))
        if ends:
            title.append(" · ", "dim").append(_summary("rank", ends, in_full=in_full))
        titles.append(title)
    title = next((title for title in titles if title.cell_len <= width - 2), titles[-1])
    title.truncate(width - 2, overflow="ellipsis")
    title.append(" " + "─" * (width - title.cell_len - 1), "dim")
    title.no_wrap = True
    return title


def _summary(what: str, states: Counter[str], *, in_full: bool) -> Text:
    """Return `3 nodes running`, or `3 nodes: 2 running, 1 lost`, or in brief `3 nodes, 1 lost`."""
    count = sum(states.values())
    words = f"{count:,} {what}{'s' if count > 1 else ''}"
    if len(states) == 1:
        (state,) = states
        return Text.assemble(words, " ", (state, _alarm(state)))
    if in_full:
        return Text.assemble(words, ": ", _counted(states))
    alarming = Counter({state: states[state] for state in _ALARMING if state in states})
    return Text(", ").join([Text(words), _counted(alarming)] if alarming else [Text(words)])


def _counted(states: Counter[str]) -> Text:
    parts = [Text(f"{count:,} {state}", _alarm(state)) for state, count in states.items()]
    return Text(", ").join(parts)


def _alarm(state: str) -> str:
    return "bold red" if state in _ALARMING else ""


def _states(nodes: Iterable[NodeProgress]) -> Counter[str]:
    """Return how many nodes are in each state, in the order of a node's life."""
    found = Counter[str](node.state for node in nodes)
    return Counter({state: found[state] for state in reversed(_STYLES) if state in found})


def _ends(node: NodeProgress) -> Counter[str]:
    """Return how many ranks are how far, without what is nought."""
    living = {"running": "running", "ending": "running", "lost": "lost", "gone": "ended"}
    found = Counter({living.get(node.state, "waiting"): node.living})
    found.update({"ended": node.ended, "failed": node.failed})
    return +found


def _table(nodes: Sequence[NodeProgress], now_s: float, width: int) -> Table:
    has_last = width >= _LAST_FROM
    gap = 2 if width >= _WORDS_FROM else 1
    table = Table(box=None, show_header=False, padding=(0, gap, 0, 0), expand=has_last)
    name_width = min(
        max(len(printable(node.name)) for node in nodes),
        _LONGEST_NAME,
        max(_SHORTEST_NAME, width // 3),
    )
    table.add_column(no_wrap=True, min_width=1 + name_width)
    table.add_column(no_wrap=True, min_width=len("connecting"))
    if width >= _ELAPSED_FROM:
        table.add_column(no_wrap=True, justify="right", min_width=len("59:59"))
    if width >= _RANKS_FROM:
        table.add_column(no_wrap=True, max_width=width // 3)
    if has_last:
        table.add_column(no_wrap=True, ratio=1)
    for node in nodes:
        name = _shortened(printable(node.name), name_width)
        cells = [
            Text.assemble(" ", (name, "bold red" if node.failed else "bold")),
            Text(node.state, style=_STYLES[node.state]),
            Text(_clock(node.elapsed_s(now_s)), style="dim"),
            _ranks(node, in_words=width >= _WORDS_FROM),
            _last(node),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def _shortened(name: str, width: int) -> str:
    """Return a name without its middle: the number of a node stands at the end."""
    if len(name) <= width:
        return name
    end = (width - 1) * 2 // 3
    return f"{name[: width - 1 - end]}…{name[-end:]}"


def _ranks(node: NodeProgress, *, in_words: bool) -> Text:
    if not node.ended and not node.failed:
        text = f"{node.ranks} rank{'s' if node.ranks > 1 else ''}" if node.ranks else ""
        return Text(text, style="dim")
    if in_words:
        return _counted(_ends(node))
    parts = [Text(f"{node.living} of {node.ranks}")]
    if node.failed:
        parts.append(Text(f"{node.failed} failed", _alarm("failed")))
    return Text(", ").join(parts)


def _last(node: NodeProgress) -> Text:
    label = f"{node.last_rank}: " if node.last and node.ranks > 1 else ""
    return Text.assemble((label, "dim"), one_line(node.last))


def _clock(seconds: float) -> str:
    """Return `0:07`, `1:02:03` or `2d 1:02:03`."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if not hours:
        return f"{minute}:{second:02}"
    return f"{f'{days}d ' if days else ''}{hour}:{minute:02}:{second:02}"

"""A rank's variables as text: a table with reasons, or something a program reads."""

from __future__ import annotations

import json

from slurm_adapter.errors import printable
from slurm_adapter.quoting import export_line, unset_line
from slurm_adapter.setting import is_variable_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.network.table import Row
    from slurm_adapter.plan import RankPlan

_WIDEST_VALUE = 44


def render(
    form: str, rank: RankPlan, inherited: Mapping[str, str], network: Row | None = None
) -> str:
    """Return the variables of a rank as `table`, `shell`, `dotenv` or `json`.

    `shell` and `dotenv` hold the values themselves, for programs; the table masks what looks
    like a secret, and tells at its end how the node reaches the others.
    """
    if form == "shell":
        return _shell(rank, inherited)
    if form == "dotenv":
        return "".join(f"{item.name}={_dotenv(item.value)}\n" for item in rank.settings)
    if form == "json":
        values = {item.name: item.value for item in rank.settings}
        removed = rank.removed_from(inherited)
        return json.dumps({"schema": 1, "set": values, "removed": removed}, indent=2) + "\n"
    return _table(rank, inherited) + ("" if network is None else _network(network))


def _network(row: Row) -> str:
    """Return what this node uses to reach the others, and why not the rest."""
    from slurm_adapter.network.table import TITLES  # not for other forms

    lines = [f"{title:10} {printable(cell)}" for title, cell in zip(TITLES, row.cells, strict=True)]
    lines += [
        f"{'near' if not at else '':10} {name}: {why}" for at, (name, why) in enumerate(row.near)
    ]
    lines += [
        f"{'not used' if not at else '':10} {printable(name)}: {why}"
        for at, (name, why) in enumerate(row.unused)
    ]
    return "\n" + "\n".join(lines) + "\n"


def _shell(rank: RankPlan, inherited: Mapping[str, str]) -> str:
    lines = [export_line(item.name, item.value) for item in rank.settings]
    removed = [name for name in rank.removed_from(inherited) if is_variable_name(name)]
    if removed:
        lines.insert(0, unset_line(removed))
    return "\n".join(lines) + "\n"


def _dotenv(value: str) -> str:
    """Quote for .env readers: in double quotes they undo backslash, quote and newline.

    `$` stands in single quotes, where they leave it alone.
    """
    if "$" in value:
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        value = value.replace(plain, escaped)
    return f'"{value}"'


def _table(rank: RankPlan, inherited: Mapping[str, str]) -> str:
    rows = [(item.name, _cut(item.shown), item.reason) for item in rank.settings]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    lines = [f"{name:{name_width}}  {value:{value_width}}  {why}" for name, value, why in rows]
    removed = rank.removed_from(inherited)
    if removed:
        lines += ["", f"taken out: {' '.join(removed)}"]
    return "\n".join(lines) + "\n"


def _cut(value: str) -> str:
    text = printable(value)
    return text if len(text) <= _WIDEST_VALUE else f"{text[: _WIDEST_VALUE - 3]}..."

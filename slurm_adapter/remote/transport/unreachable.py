"""All nodes that could not be reached, and why, in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.cluster.hostlist import fold_hostlist
from slurm_adapter.errors import (
    WRONG_USE,
    AdapterError,
    BadValueError,
    ClusterUnfitError,
    NodeListError,
)
from slurm_adapter.remote.transport.connect_error import ConnectError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.cluster import Node

_SHOWN_REASONS = 5
_SHOWN_NAMES = 5
_LONGEST_NAMES = 300


@dataclass(frozen=True)
class Failure:
    """One node, and why it is not usable."""

    node: Node
    error: AdapterError

    @property
    def reason(self) -> str:
        """What is wrong, the same text for all nodes with the same trouble."""
        if isinstance(self.error, ConnectError):
            return self.error.reason
        # Others name the node first, which then is told for all of them.
        return self.error.found.removeprefix(f"{self.node.name}: ")


class UnreachableError(ClusterUnfitError):
    """Nodes that cannot be used; nothing was started."""

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        self.failures = tuple(failures)
        super().__init__(_told(self.failures, total))
        if all(isinstance(failure.error, BadValueError) for failure in failures):
            self.exit_status = WRONG_USE  # what was written is wrong, not a machine


def _told(failures: Sequence[Failure], total: int) -> str:
    groups: dict[str, list[Failure]] = {}
    for failure in failures:
        groups.setdefault(failure.reason, []).append(failure)
    largest_first = sorted(groups.items(), key=lambda group: -len(group[1]))
    count = f"{len(failures)} of {total} nodes" if total > 1 else failures[0].node.name
    lines = [f"{count} cannot be used; nothing was started"]
    for reason, group in largest_first[:_SHOWN_REASONS]:
        lines += _group_lines(reason, group)
    rest = largest_first[_SHOWN_REASONS:]
    if rest:
        nodes = sum(len(group) for _, group in rest)
        lines.append(f"and {nodes} more for {len(rest)} other reasons")
    return "\n".join(lines)


def _group_lines(reason: str, group: list[Failure]) -> list[str]:
    first = group[0]
    detail = first.error.detail if isinstance(first.error, ConnectError) else ""
    if detail:
        told = f"for {first.node.name}: {detail}" if len(group) > 1 else detail
        reason = f"{reason} ({told})"
    lines = [f"{_names(group)}: {reason}"]
    return [*lines, first.error.remedy] if first.error.remedy else lines


def _names(group: list[Failure]) -> str:
    names = [failure.node.name for failure in group]
    try:
        folded = fold_hostlist(names)
    except NodeListError:
        folded = ",".join(names)
    if len(folded) <= _LONGEST_NAMES:
        return folded
    shown = names[:_SHOWN_NAMES]
    return f"{','.join(shown)} and {len(names) - len(shown)} more"

"""What is known of each node while a job runs; how it is drawn is `panel`'s business."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.node.ranks.events import Ended, Lost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.launch.observer import NodeState
    from slurm_adapter.node.ranks.events import Event, Output

_LONGEST_LINE = 2048
"""Bytes kept of a node's last line: wider than any terminal."""


@dataclass
class NodeProgress:
    """One node."""

    name: str
    begun_s: float
    """When its first state began, on the clock of whoever draws."""
    since_s: float
    """When its present state began, on the same clock."""
    state: NodeState = "connecting"
    ranks: int = 0
    """How many there are; 0 while that is not known."""
    ended: int = 0
    """How many ended well, or because they were told to."""
    failed: int = 0
    last: bytes = b""
    """The last line that one of them printed, as it was."""
    last_rank: int = 0

    @property
    def living(self) -> int:
        """How many ranks' end is not known."""
        return self.ranks - self.ended - self.failed

    def elapsed_s(self, now_s: float) -> float:
        """Seconds in this state; of a node that is done with: how long it took part."""
        return self.since_s - self.begun_s if self.state == "gone" else now_s - self.since_s

    def enter(self, state: NodeState, now_s: float) -> None:
        """Note a new state; what was lost stays lost."""
        if self.state not in (state, "lost"):
            self.state, self.since_s = state, now_s


class Progress:
    """All nodes of a job."""

    def __init__(self, nodes: Sequence[str], now_s: float) -> None:
        self.begun_s = now_s
        self.nodes = [NodeProgress(name, now_s, now_s) for name in nodes]
        self._node_of: dict[int, NodeProgress] = {}

    def begin(self, ranks: Sequence[Sequence[int]]) -> None:
        """Learn which ranks are on each node."""
        for node, mine in zip(self.nodes, ranks, strict=True):
            node.ranks = len(mine)
            self._node_of.update(dict.fromkeys(mine, node))

    def take(self, event: Event, now_s: float) -> None:
        """Learn from what happened."""
        if isinstance(event, Lost):
            self.nodes[event.node_index].enter("lost", now_s)
        elif isinstance(event, Ended):
            self._take_end(event, now_s)
        else:
            self._take_line(event)

    def _take_end(self, event: Ended, now_s: float) -> None:
        node = self._node_of[event.rank]
        # A rank that ends by our own signal has not failed.
        if event.status and node.state != "ending":
            node.failed += 1
        else:
            node.ended += 1
        if not node.living:
            node.enter("ending", now_s)

    def _take_line(self, event: Output) -> None:
        lines = event.lines
        begin = lines.rfind(b"\n", 0, -1) + 1
        line = lines[begin : min(len(lines) - 1, begin + _LONGEST_LINE)]
        if line and not line.isspace():
            node = self._node_of[event.rank]
            node.last, node.last_rank = line, event.rank

    def states(self) -> Counter[NodeState]:
        """Return how many nodes are in each state."""
        return Counter(node.state for node in self.nodes)

"""Agents on all nodes at once: connections opened, and an interpreter with our code behind each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.remote.agent import Agent
from slurm_adapter.remote.agent_archive import agent_files
from slurm_adapter.remote.transport.connect_all import connect_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_adapter.cluster import Node
    from slurm_adapter.remote.transport.connect_all import Connected
    from slurm_adapter.remote.transport.port import Connection


def begin_agents(
    nodes: Sequence[Node], python: str, run: str, limit_s: float, say: Callable[[str], None]
) -> Connected[Agent]:
    """Connect to all nodes and have an agent greet us from each.

    Args:
        nodes: in rank order.
        python: the interpreter where a node names none of its own.
        run: the run's UUID.
        limit_s: the most seconds for a connection, and again for its agent.
        say: gets warnings.

    Returns:
        The agents in node order, and what failed; whoever gets it lets go of them.
    """
    files = agent_files()

    def begin(connection: Connection, index: int) -> Agent:
        agent = Agent(connection, index, connection.node.python or python, run)
        agent.begin(files, limit_s)
        return agent

    return connect_all(nodes, begin, retry_s=limit_s, say=say)

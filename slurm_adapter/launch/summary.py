"""One line's worth about a job, of whatever kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobSummary:
    """What a list of jobs says of one."""

    id: str
    name: str
    started_s: float | None = None
    """When it was started or submitted, in seconds since the epoch; None where nobody knows."""
    ranks: int | None = None
    """What scripts see as world size; None where that is not known."""
    state: str = ""
    """Words for how it is."""
    hosts: str = "-"
    """The list of its nodes, or how many it wants."""

"""What is asked of a launcher, checked before anything starts: values, and how long is waited."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError

if TYPE_CHECKING:
    from slurm_adapter.cluster import Node
    from slurm_adapter.job.job import Job

GRACE_S, LINK_S, CONNECT_S = 10.0, 30.0, 60.0
"""What is waited unless told otherwise: see `SshRequest`."""
_LONGEST_GRACE_S = 86_400
_SHORTEST_LINK_S = 0.2


@dataclass(frozen=True)
class LocalRequest:
    """A job to be started here, N nodes simulated."""

    job: Job
    grace_s: float = GRACE_S
    """From SIGTERM to SIGKILL when ending ranks."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_grace(self.grace_s)
        _refuse_components(self.job, "local")


@dataclass(frozen=True)
class SshRequest:
    """A job to be started on hosts."""

    job: Job
    """Sized for the hosts, its environment complete."""
    nodes: tuple[Node, ...]
    """In rank order."""
    grace_s: float = GRACE_S
    """From SIGTERM to SIGKILL when ending ranks."""
    link_s: float = LINK_S
    """Silence after which a host, or to a host the head, is taken for lost."""
    connect_s: float = CONNECT_S
    """How long a connection may take, retries included, and again its agent."""
    min_nodes: int | None = None
    """Start without hosts that cannot be connected to, as long as so many can; None: all."""
    sync: bool = False
    """Whether the code is copied to the hosts."""
    detach: bool = False
    """Whether the job goes on without the process that started it."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_grace(self.grace_s)
        _check_link(self.link_s)
        _check_connect(self.connect_s)
        if self.min_nodes is not None and not 1 <= self.min_nodes <= len(self.nodes):
            raise BadValueError(
                f"--min-nodes {self.min_nodes} of {len(self.nodes)} hosts",
                f"Give a number from 1 to {len(self.nodes)}.",
            )
        _refuse_components(self.job, "ssh")


def check_grace(grace_s: float) -> None:
    """Refuse what is no time to wait."""
    if not 0 <= grace_s < _LONGEST_GRACE_S:
        raise BadValueError(
            f"--grace {grace_s} is no time to wait",
            f"Give seconds from 0 to {_LONGEST_GRACE_S}.",
        )


def _check_link(link_s: float) -> None:
    if not _SHORTEST_LINK_S <= link_s < math.inf:
        raise BadValueError(
            f"--link-timeout {link_s:g} cannot tell silence from a busy machine",
            f"Give {_SHORTEST_LINK_S:g} seconds or more.",
        )


def _check_connect(connect_s: float) -> None:
    if not 0 < connect_s < math.inf:
        raise BadValueError(
            f"--connect-timeout {connect_s:g} is no time to wait",
            "Give seconds, as in --connect-timeout 60.",
        )


def _refuse_components(job: Job, command: str) -> None:
    """Refuse components where nothing but Slurm makes of them what they say."""
    if job.components:
        raise BadValueError(
            f"[[parts]] are nodes that Slurm is asked for, and {command} asks for none",
            "Use slurm-adapter sbatch, or a job file without [[parts]].",
        )

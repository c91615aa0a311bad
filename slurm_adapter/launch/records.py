"""What is kept of a job that was started from here: of one of Slurm, and of one over SSH.

Data alone; how they are written, found and removed is `store`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NOT_STARTED = "it could not be started"
"""The words for how a job ended that never ran."""
HEAD_KILLED = "its head was killed"
"""The words for one that was not detached: its hosts end it, and nobody hears how."""


@dataclass(frozen=True)
class SlurmRecord:
    """One job that was submitted. A site without accounting forgets it soon; this does not."""

    job_id: str
    cluster: str
    """Slurm's name of it where sbatch tells it, else empty."""
    name: str
    folder: str
    """The job's own, absolute."""
    log: str
    """The job's log, absolute; empty where its name is only known to Slurm."""
    nodes: int
    ranks: int | None
    """What scripts see as world size; None where the nodes' GPUs decide."""
    node_logs: bool
    """Whether each node's output has a file of its own."""
    submitted_s: float
    """Seconds since the epoch."""
    then: tuple[str, ...] = ()
    """The jobs that go on, one after the other, where this one runs into its time limit."""
    snapshot: str = ""
    """The folder of its own copy of the code, empty where it has none."""
    state: str = ""
    """Slurm's word for how it ended; empty while that is not known."""
    status: int | None = None
    """Its exit status, once that is known."""
    login: str = ""
    """The login node through which it was submitted, as the user named it; empty: here."""
    python: str = ""
    """The interpreter that was found there."""

    @property
    def key(self) -> str:
        """What tells it from every other job: job ids of two clusters may be equal."""
        return self.key_of(self.job_id)

    @property
    def next_key(self) -> str:
        """The same of the job that goes on after it."""
        return self.key_of(self.then[0])

    def key_of(self, job_id: str) -> str:
        """Return the same of another job of its cluster."""
        return f"{job_id}@{self.login}" if self.login else job_id


@dataclass(frozen=True)
class SshHost:
    """One node of a job, as far as it takes to reach it and its ranks again."""

    name: str
    address: str | None
    user: str | None
    port: int | None
    python: str
    first_rank: int
    ranks: int

    @property
    def its_ranks(self) -> range:
        """The global ranks on it."""
        return range(self.first_rank, self.first_rank + self.ranks)


@dataclass(frozen=True)
class SshRecord:
    """A job that was started over SSH."""

    name: str
    run: str
    """Its UUID, by which agents know it."""
    hosts: tuple[SshHost, ...]
    started_s: float
    """Seconds since the epoch."""
    detached: bool
    grace_s: float
    link_s: float
    head: str
    """The machine and process that started it, as `node.system.identity` has them."""
    starts: str = "rank"
    """What its contract starts, in the singular."""

    @property
    def ranks(self) -> int:
        """How many there are."""
        return sum(host.ranks for host in self.hosts)

    @property
    def host_names(self) -> list[str]:
        """The hosts' names, in rank order."""
        return [host.name for host in self.hosts]

    def name_of(self, rank: int) -> str:
        """Return words for a rank, as its head has them."""
        (host,) = [one for one in self.hosts if rank in one.its_ranks]
        return f"{self.starts} {rank} on {host.name}"


class End(NamedTuple):
    """How a job over SSH ended."""

    status: int
    words: str
    """Why, for people."""
    stopped: bool = False
    """Whether it was told to."""

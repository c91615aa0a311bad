"""What a contract is: how a script learns its place, as functions from data to data.

Only type checkers load this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_adapter.cluster.cluster import Cluster, Node
    from slurm_adapter.contracts.place import Place
    from slurm_adapter.job import Job
    from slurm_adapter.setting import Removal, Setting, Word


class Contract(Protocol):
    """How a script learns its place."""

    @property
    def name(self) -> str:
        """The name in `--contract NAME`."""

    @property
    def removals(self) -> tuple[Removal, ...]:
        """Variables that ranks must not inherit (those the user names stay)."""

    @property
    def per_gpu(self) -> bool:
        """Whether a node gets a rank for each of its GPUs rather than one."""

    @property
    def tells_master(self) -> bool:
        """Whether scripts read MASTER_ADDR under it, so that one the user exported counts."""

    @property
    def names_workers(self) -> bool:
        """Whether scripts reach nodes by ModelArts' names where those resolve."""

    def default_view(self, tasks: int) -> str:
        """Return the surroundings that its scripts are used to, with `tasks` ranks on a node."""

    def ranks_on(self, node: Node) -> int:
        """Return how many ranks this contract starts on a node, 1 or more."""

    def check(self, job: Job, cluster: Cluster) -> tuple[str, ...]:
        """Return what to warn of; raise an `AdapterError` where no job could run there."""

    def settings(self, place: Place) -> Iterable[Setting]:
        """Return the variables this rank is given, each with its reason."""

    def arguments(self, place: Place) -> Iterable[Word]:
        """Return what is appended between the boot file and the user's own arguments."""

"""What a contract is: how a script learns its place, as functions from data to data.

Only type checkers load this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_adapter.cluster import Cluster, Node
    from slurm_adapter.contracts.place import RankPlace
    from slurm_adapter.job.job import Job
    from slurm_adapter.setting import Removal, Setting, Word


class Contract(Protocol):
    """How a script learns its place."""

    @property
    def name(self) -> str:
        """The name in `--contract NAME`."""

    @property
    def starts(self) -> str:
        """What is started on a node, by name: `rank`, or what starts the ranks in its turn."""

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
        """Return the view that its scripts are used to, with `tasks` ranks on a node."""

    def ranks_on(self, node: Node) -> int:
        """Return how many processes are started on a node, 1 or more, each what `starts` says.

        Those of Slurm where it starts them, else as many as the contract wants there.
        """

    def fan_out(self, node: Node) -> int | None:
        """Return how many ranks come of each of them; None where that is not known yet."""

    def check(self, job: Job, cluster: Cluster) -> tuple[str, ...]:
        """Return what to warn of; raise an `AdapterError` where no job could run there."""

    def settings(self, place: RankPlace) -> Iterable[Setting]:
        """Return the variables this rank is given, each with its reason."""

    def arguments(self, place: RankPlace) -> Iterable[Word]:
        """Return what is appended between the boot file and the user's own arguments."""

    def command(self, place: RankPlace, words: Iterable[Word]) -> Iterable[Word]:
        """Return the whole command line for a program: boot file or command, with arguments."""

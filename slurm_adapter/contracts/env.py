"""The `env` contract: one rank per GPU, as `env://` and every launcher's scripts expect it."""

from __future__ import annotations

from slurm_adapter.contracts.place import MPI_VARIABLES, SLURM_TASK_VARIABLES, run_directly
from slurm_adapter.setting import Removal, Setting, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm_adapter.cluster import Cluster, Node
    from slurm_adapter.contracts.place import RankPlace
    from slurm_adapter.job.job import Job


_TASKS = "describes Slurm's tasks, one on each node, which frameworks take for ranks"
_MPI = "describes MPI's ranks, which are one on each node too"


class EnvContract:
    """`MASTER_ADDR`, `RANK`, `WORLD_SIZE` and their like (torch.distributed's `env://`)."""

    name = "env"
    starts = "rank"
    per_gpu = True
    tells_master = True
    names_workers = False
    removals: tuple[Removal, ...] = (
        Removal("TORCHELASTIC_*", "of a torchrun further out, which does not run this rank"),
        Removal("GROUP_RANK", "of a torchrun further out, which does not run this rank"),
    )

    def default_view(self, tasks: int) -> str:
        """Names that resolve at once; nothing for ranks that must share namespaces.

        CUDA's and NCCL's ways between processes of a node do not cross user namespaces.
        """
        return "hosts" if tasks == 1 else "off"

    def ranks_on(self, node: Node) -> int:
        """Return the tasks Slurm starts there; else one for each GPU, one on a CPU node."""
        return node.tasks or node.gpus or 1

    def fan_out(self, node: Node) -> int:
        """Each process is a rank."""
        del node
        return 1

    def check(self, job: Job, cluster: Cluster) -> tuple[str, ...]:
        """Every cluster can run jobs under this contract; some views part ranks of a node."""
        tasks = max((node.tasks or 1 for node in cluster.nodes), default=1)
        if job.view in (None, "off") or tasks == 1:
            return ()
        return (
            f"--view {job.view} gives each of the {tasks} ranks of a node namespaces of its own:"
            " CUDA's and NCCL's direct ways between their GPUs may be lost. --view off keeps them.",
        )

    def settings(self, place: RankPlace) -> Iterator[Setting]:
        """Yield the variables of `env://` and the node-level ones beside them."""
        known = place.cluster.known
        yield Setting("MASTER_ADDR", place.master, "the node of rank 0", known)
        yield Setting("MASTER_PORT", place.port, place.port_reason, place.run.port is not None)
        yield Setting("RANK", str(place.rank), f"rank {place.rank} of {place.world_size}")
        yield Setting("WORLD_SIZE", str(place.world_size), f"all ranks of {place.cluster.source}")
        yield Setting("LOCAL_RANK", str(place.local_rank), "counted on this node")
        yield Setting("LOCAL_WORLD_SIZE", str(place.local_size), "ranks on this node")
        nodes = len(place.cluster.nodes)
        yield Setting("NODE_RANK", str(place.node_index), f"node {place.node_index} of {nodes}")
        yield Setting("NNODES", str(nodes), f"nodes of {place.cluster.source}")

    def arguments(self, place: RankPlace) -> tuple[Word, ...]:
        """Nothing is appended: the place is told by variables."""
        del place
        return ()

    def command(self, place: RankPlace, words: Iterable[Word]) -> Iterator[Word]:
        """The rank is the boot file or the command itself."""
        return run_directly(place, words)


class EnvByNodeContract(EnvContract):
    """The same where one task on each node starts the ranks there: `--ranks-by node`."""

    removals = (
        *EnvContract.removals,
        *(
            Removal(name, _TASKS)
            for name in (
                *SLURM_TASK_VARIABLES,
                "SLURM_STEP_NUM_TASKS",
                "SLURM_STEP_TASKS_PER_NODE",
            )
        ),
        *(Removal(name, _MPI) for name in MPI_VARIABLES),
    )

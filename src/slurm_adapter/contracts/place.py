"""What every contract works from: one rank's place in a job."""

from __future__ import annotations

from slurm_adapter.layout import Layout
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.cluster.cluster import Cluster, Node, Run
    from slurm_adapter.contracts.workers import Workers
    from slurm_adapter.job import Job

# Inherited by whatever starts ranks and read by frameworks as "you are rank so-and-so".
RANK_VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "NNODES",
)


@record
class Place:
    """One rank's place in a job: everything a contract may base a value on."""

    job: Job
    cluster: Cluster
    run: Run
    rank: int
    world_size: int
    local_rank: int
    local_size: int
    node_index: int
    workers: Workers
    by_worker_name: bool
    """Whether nodes are reached by ModelArts' names, which resolve for this rank."""

    @property
    def node(self) -> Node:
        """The node this rank runs on."""
        return self.cluster.nodes[self.node_index]

    @property
    def master(self) -> str:
        """The host under which the other ranks reach rank 0: the user's choice comes first."""
        first = self.workers.dotted(0) if self.by_worker_name else self.cluster.host(0)
        return self.job.env.get("MASTER_ADDR") or first

    @property
    def layout(self) -> Layout:
        """The job's directories as this rank finds them."""
        return Layout(self.job, full=self.node.view == "full")

    @property
    def names_known(self) -> bool:
        """Whether the nodes' names are final."""
        return self.run.uuid is not None if self.by_worker_name else self.cluster.known

    @property
    def port(self) -> str:
        """The rendezvous port, or a placeholder while it is not known."""
        return "<port>" if self.run.port is None else str(self.run.port)

    @property
    def init_method(self) -> str:
        """Where the ranks meet, as torch.distributed writes it."""
        return tcp_url(self.master, self.port)

    @property
    def known(self) -> bool:
        """Whether master and port are final."""
        return self.names_known and self.run.port is not None

    @property
    def port_reason(self) -> str:
        """Where the port comes from."""
        return self.run.port_reason


def tcp_url(host: str, port: str) -> str:
    """Return `tcp://HOST:PORT`; an IPv6 address stands in brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

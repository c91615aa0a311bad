"""What every contract works from: one rank's place in a job, and the names its nodes have there.

On ModelArts a job is a Volcano job: pod `<job>-worker-<i>` in the subdomain `<job>` (Volcano's
`svc` plug-in), hence `ma-job-<uuid>-worker-0.ma-job-<uuid>` for the node of rank 0.
"""

from __future__ import annotations

from slurm_adapter.errors import StepError
from slurm_adapter.job.job import LONGEST_STRING, Argv, Boot, Command
from slurm_adapter.job.layout import Layout
from slurm_adapter.record import cached_property, record
from slurm_adapter.setting import Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from slurm_adapter.cluster import Cluster, Node, Run
    from slurm_adapter.job.job import Job

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
# Of one Slurm task, which under a contract of one task per node is not one rank per GPU.
SLURM_TASK_VARIABLES = (
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_NTASKS*",
    "SLURM_NPROCS*",
    "SLURM_TASKS_PER_NODE*",
)
MPI_VARIABLES = ("PMI_*", "PMIX_*", "OMPI_COMM_WORLD_*")

TASK_NAME = "worker"
NODE_LOGS = "slurm-adapter: each node's output is in its file:"
"""What a job's log says before the path of its first node's file; whoever follows it looks."""
_PREFIX = "ma-job-"
# Fewer digits of a UUID than this do not tell one job from another.
_FEWEST_DIGITS = 8


@record
class Workers:
    """The nodes of one run by ModelArts' names, counted from 0."""

    job_name: str
    """MA_VJ_NAME."""
    count: int

    def instance(self, index: int) -> str:
        """Return a node's short name, which is its host name too."""
        return f"{self.job_name}-{TASK_NAME}-{index}"

    def dotted(self, index: int) -> str:
        """Return the name under which scripts reach a node."""
        return f"{self.instance(index)}.{self.job_name}"

    @cached_property
    def host_list(self) -> str:
        """All dotted names in rank order, separated by commas: VC_WORKER_HOSTS."""
        return ",".join(map(self.dotted, range(self.count)))

    @property
    def shortened(self) -> bool:
        """Whether the job's name lacks digits so that VC_WORKER_HOSTS fits."""
        return len(self.job_name) != len(_PREFIX) + 36 and "<" not in self.job_name

    def log_name(self, index: int) -> str:
        """Return the name of a node's log file, as ModelArts' console has it."""
        return f"modelarts-job-{self.job_name.removeprefix(_PREFIX)}-{TASK_NAME}-{index}.log"

    def run_folder(self, job_folder: str) -> str:
        """Return the directory of what a job's folder holds for this run alone."""
        return f"{job_folder}/run/{self.job_name}"

    def node_folder(self, job_folder: str, index: int) -> str:
        """Return the part of it that belongs to one node."""
        return f"{self.run_folder(job_folder)}/{TASK_NAME}-{index}"

    def wrapper_hosts(self, job_folder: str, index: int) -> str:
        """Return the hosts file that nss_wrapper reads on a node without namespaces."""
        return f"{self.node_folder(job_folder, index)}/hosts"

    def last_line(self, index: int, status: int | None) -> str:
        """Return the line that ends a node's log; the status is None where nothing tells it."""
        code = "return code not known" if status is None else f"return code {status}"
        return f"slurm-adapter: {TASK_NAME}-{index} ended, {code}\n"


def name_workers(uuid: str | None, count: int) -> Workers:
    """Return the names for a run; a placeholder stands for a UUID that is not known yet.

    VC_WORKER_HOSTS must fit into one variable, 128 KiB: above 1,300 nodes the job's name is
    shortened as far as needed, to 8 digits of the UUID (2,900 nodes). Where that is not enough
    the name stays whole and the variable is left out.
    """
    if uuid is None:
        return Workers(f"{_PREFIX}<uuid>", count)
    room = (LONGEST_STRING - len("VC_WORKER_HOSTS=") - 1) // count
    # JOB-worker-INDEX.JOB and a comma
    length = (room - len(f"-{TASK_NAME}-.,") - len(str(count - 1))) // 2 - len(_PREFIX)
    if _FEWEST_DIGITS <= length < len(uuid):
        uuid = uuid[:length].rstrip("-")
    return Workers(f"{_PREFIX}{uuid}", count)


@record
class RankPlace:
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
    def python(self) -> str:
        """The interpreter of boot files: a path, or a name for this rank's PATH."""
        return self.node.python or self.job.python

    @property
    def master(self) -> str:
        """The host under which the other ranks reach rank 0: the user's choice comes first."""
        first = self.workers.dotted(0) if self.by_worker_name else self.cluster.host(0)
        wanted = self.node.env.get("MASTER_ADDR") or self.job.env.get("MASTER_ADDR")
        return wanted or first

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


def run_directly(place: RankPlace, words: Iterable[Word]) -> Iterator[Word]:
    """Yield the command line of a rank that nothing stands before: boot files need their Python."""
    if isinstance(place.job.program, Boot):
        why = "the job's interpreter" if place.node.python is None else "set for this host"
        yield Word(place.python, why)
    yield from words


def working_directory(place: RankPlace) -> Word:
    """Return where a rank starts; empty: in the directory that the launcher was started in."""
    layout = place.layout
    match place.job.program:
        case Boot():
            return Word(layout.code, layout.why("the code directory", place.job.code))
        case Command():
            return Word(layout.home, "MA_HOME, as ModelArts runs boot commands")
        case Argv():
            return Word("", "the directory you are in")


def check_one_task(cluster: Cluster, contract: str) -> None:
    """Refuse a step with several tasks on a node: each would think it owns all GPUs (SB-07)."""
    refuse_more_tasks(
        cluster.nodes,
        cluster.source,
        f"the {contract} contract starts one on each node",
        "--contract env for one rank per GPU",
    )


def refuse_more_tasks(nodes: Sequence[Node], step: str, why: str, otherwise: str) -> None:
    """Refuse a step with several tasks on a node.

    Args:
        nodes: the step's.
        step: what it is called.
        why: what wants a single one there, for people.
        otherwise: what could be said in place of another srun line.

    Raises:
        StepError: with the srun line that has one on each.
    """
    for node in nodes:
        if node.tasks is not None and node.tasks > 1:
            raise StepError(
                f"{node.name} has {node.tasks} tasks in {step}; {why}",
                f"srun --nodes={len(nodes)} --ntasks={len(nodes)} slurm-adapter exec ...   (or"
                f" {otherwise})",
            )

"""The `modelarts` contract: one rank per node, told as Huawei ModelArts training jobs tell it.

Sources: the ModelArts manual on the PyTorch engine (docker-modelarts_0122), on the variables of
a training container (develop-modelarts-0104, ma_drawer_129), and Volcano's `svc` and `env`
plug-ins, on which its jobs run.
"""

from __future__ import annotations

from slurm_adapter.contracts.place import (
    MPI_VARIABLES,
    RANK_VARIABLES,
    SLURM_TASK_VARIABLES,
    TASK_NAME,
    check_one_task,
    name_workers,
    run_directly,
)
from slurm_adapter.job.job import LONGEST_STRING, Boot
from slurm_adapter.setting import Removal, Setting, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm_adapter.cluster import Cluster, Node
    from slurm_adapter.contracts.place import RankPlace
    from slurm_adapter.job.job import Job

_ABSENT = "does not exist on ModelArts; many scripts prefer it where it does"
_PER_CARD = "set on ModelArts only where a process runs for each card"
_LAYOUT = "describes Slurm's tasks, which frameworks take for a launch per GPU"
_MPI = "describes MPI's ranks, which frameworks take for a launch per GPU"

_SLURM_LAYOUT = (
    *SLURM_TASK_VARIABLES,
    "SLURM_NODEID",
    "SLURM_NNODES*",
    "SLURM_NODELIST*",
    "SLURM_JOB_NODELIST*",
    "SLURM_JOB_NUM_NODES*",
    "SLURM_STEP_*",
    "SLURM_STEPID",
    "SLURM_STEPMGR",
    "SLURM_HET_*",
    "SLURM_DISTRIBUTION",
    "SLURM_DIST_PLANESIZE",
    "SLURM_ARBITRARY_NODELIST",
    "SLURM_HOSTFILE",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_SRUN_COMM_*",
    "SLURM_TOPOLOGY_ADDR*",
)


class ModelArtsContract:
    """`MA_*`, `VC_*` and the options that ModelArts appends to a boot file."""

    name = "modelarts"
    starts = "rank"
    per_gpu = False
    tells_master = False
    names_workers = True
    removals = (
        *(Removal(name, _ABSENT) for name in RANK_VARIABLES),
        *(Removal(name, _ABSENT) for name in ("GROUP_RANK", "TORCHELASTIC_*")),
        *(
            Removal(name, _PER_CARD)
            for name in ("RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE", "ASCEND_DEVICE_ID", "DEVICE_ID")
        ),
        *(Removal(name, _LAYOUT) for name in _SLURM_LAYOUT),
        *(Removal(name, _MPI) for name in MPI_VARIABLES),
    )

    def default_view(self, tasks: int) -> str:
        """A container's surroundings: names, host name, directories."""
        del tasks
        return "full"

    def ranks_on(self, node: Node) -> int:
        """One rank per node: fan-out to its GPUs is the script's own work."""
        return 1 if node.tasks is None else node.tasks

    def fan_out(self, node: Node) -> int:
        """To the platform the node is the rank, whatever the script starts."""
        del node
        return 1

    def check(self, job: Job, cluster: Cluster) -> tuple[str, ...]:
        """Refuse a step with several tasks on a node; warn of what scripts will miss."""
        check_one_task(cluster, self.name)
        if not _fits(_host_list(cluster)):
            return (
                f"VC_WORKER_HOSTS is left out: the names of {len(cluster.nodes)} nodes are longer"
                " than the 128 KiB that Linux allows one variable; "
                + (
                    "/etc/volcano/worker.host has them"
                    if cluster.nodes[0].view == "full"
                    else "scripts that read it will fail"
                ),
            )
        asked = any(name.startswith(("gpus", "gres")) for name in job.slurm)
        appending = isinstance(job.program, Boot) and not asked
        if appending and len(cluster.nodes) == 1 and cluster.nodes[0].gpus is None:
            return (
                "how many GPUs the node has is not known yet; with several, --init_method is"
                " appended too (--gpus-per-node N tells)",
            )
        return ()

    def settings(self, place: RankPlace) -> Iterator[Setting]:
        """Yield identity, topology and paths; the tables of the manual are its order."""
        yield from _identity(place)
        yield from _topology(place)
        yield from _paths(place)

    def arguments(self, place: RankPlace) -> Iterator[Word]:
        """Yield what ModelArts appends to a boot file, by mode.

        | one node, one GPU or none | nothing |
        | one node, several GPUs | `--init_method tcp://W0:PORT` |
        | several nodes | `--init_method tcp://W0:PORT --rank INDEX --world_size NODES` |
        """
        nodes = len(place.cluster.nodes)
        if nodes > 1 or (place.node.gpus or 0) > 1:
            why = f"{nodes} nodes" if nodes > 1 else f"one node with {place.node.gpus} GPUs"
            yield Word("--init_method", why)
            yield Word(
                place.init_method,
                f"rank 0's node; port: {place.port_reason}",
                place.known,
            )
        if nodes > 1:
            yield Word("--rank", why)
            yield Word(str(place.node_index), "the node's index")
            yield Word("--world_size", why)
            yield Word(str(nodes), "the number of nodes")

    def command(self, place: RankPlace, words: Iterable[Word]) -> Iterator[Word]:
        """The rank is the boot file or the command itself."""
        return run_directly(place, words)


def _identity(place: RankPlace) -> Iterator[Setting]:
    known = place.run.uuid is not None
    instance = place.workers.instance(place.node_index)
    shortened = "; shortened so that VC_WORKER_HOSTS fits" if place.workers.shortened else ""
    yield Setting("MA_VJ_NAME", place.workers.job_name, place.run.uuid_reason + shortened, known)
    yield Setting("MA_TASK_NAME", TASK_NAME, "PyTorch nodes are workers")
    yield Setting(
        "MA_CURRENT_INSTANCE_NAME", instance, "<MA_VJ_NAME>-<MA_TASK_NAME>-<index>", known
    )
    yield Setting("HOSTNAME", instance, "ModelArts names a container like its instance", known)


def _topology(place: RankPlace) -> Iterator[Setting]:
    nodes = len(place.cluster.nodes)
    source = f"nodes of {place.cluster.source}"
    index = f"node {place.node_index} of {nodes} in the order of {place.cluster.source}"
    yield Setting("MA_NUM_HOSTS", str(nodes), source)
    yield _gpus(place.node)
    yield Setting("VC_TASK_INDEX", str(place.node_index), index)
    yield Setting("VK_TASK_INDEX", str(place.node_index), "the older spelling of VC_TASK_INDEX")
    yield Setting("VC_WORKER_NUM", str(nodes), source)
    hosts = place.workers.host_list if place.by_worker_name else place.cluster.host_list
    if _fits(hosts):
        yield Setting("VC_WORKER_HOSTS", hosts, "all nodes in rank order", place.names_known)
    yield from _addresses(place.node)


def _host_list(cluster: Cluster) -> str:
    """Return VC_WORKER_HOSTS as the first node would have it, for its length."""
    if cluster.nodes[0].view == "off":
        return cluster.host_list
    return name_workers("0" * 36, len(cluster.nodes)).host_list


def _fits(host_list: str) -> bool:
    return len("VC_WORKER_HOSTS=") + len(host_list) < LONGEST_STRING


def _gpus(node: Node) -> Setting:
    if node.gpus is None:
        return Setting(
            "MA_NUM_GPUS",
            "<GPUs>",
            node.gpus_reason or "counted on the node when the step runs",
            known=False,
        )
    return Setting("MA_NUM_GPUS", str(node.gpus), node.gpus_reason or "GPUs of this node")


def _addresses(node: Node) -> Iterator[Setting]:
    known = node.address is not None
    address = node.address or "<address>"
    yield Setting("MA_CURRENT_IP", address, node.address_reason, known)
    yield Setting("MA_CURRENT_HOST_IP", address, "the same: no container in between", known)


def _paths(place: RankPlace) -> Iterator[Setting]:
    job, layout = place.job, place.layout
    why = layout.why("the job's own folder", job.folder)
    yield Setting("MA_HOME", layout.home, why)
    yield Setting("MA_MOUNT_PATH", layout.mount, "where code, inputs, outputs and logs are")
    yield Setting("MA_JOB_DIR", layout.job_dir, "the parent of the code directory")
    yield Setting("WORKSPACE", layout.code, layout.why("the code directory", job.code))
    why = layout.why("the job's log folder", job.log_folder)
    yield Setting("MA_LOG_DIR", layout.log, why)
    yield Setting("MA_SCRIPT_INTERPRETER", "", "empty on ModelArts")

"""The `torchrun` contract: one torchrun on each node, which starts a rank for each of its GPUs.

Its rendezvous is static: ranks follow the order of the nodes (MA-07), and no node has to find out
by its own name that it is the first (MA-05); `elastic.py` has the other one. Nodes may have
different numbers of GPUs: torchrun adds up what each node says. Source of each rule:
`torch.distributed.run` and `torch.distributed.elastic`, read in torch 2.1 and 2.13.
"""

from __future__ import annotations

from slurm_adapter.contracts.place import (
    MPI_VARIABLES,
    RANK_VARIABLES,
    SLURM_TASK_VARIABLES,
    check_one_task,
)
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import Argv, Boot, Command
from slurm_adapter.setting import Removal, Setting, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from slurm_adapter.cluster import Cluster, Node
    from slurm_adapter.contracts.place import RankPlace
    from slurm_adapter.job.job import Job, Program

_OUTER = "of a launch further out; torchrun tells its ranks their own"
_OPTIONS = "read by torchrun as options, whose values are those on its command line"
_TASKS = "describes Slurm's tasks, one torchrun each, which frameworks take for ranks"
_MPI = "describes MPI's ranks, which frameworks take for a launch per GPU"

# What torchrun itself sets. TORCHELASTIC_ variables that steer it are the user's and stay.
_OF_TORCHRUN = tuple(
    f"TORCHELASTIC_{name}"
    for name in (
        "RUN_ID",
        "RESTART_COUNT",
        "MAX_RESTARTS",
        "USE_AGENT_STORE",
        "ERROR_FILE",
        "TIMER_FILE",
        "SIGNALS_TO_HANDLE",
    )
)
_PROGRAM = "torchrun"
_MODULES = ("torch.distributed.run", "torch.distributed.launch")


class TorchrunContract:
    """`python -m torch.distributed.run` with everything that it has to be told on a node."""

    name = "torchrun"
    starts = "torchrun"
    per_gpu = False
    tells_master = True
    names_workers = False
    removals = (
        *(Removal(name, _OUTER) for name in (*RANK_VARIABLES, "GROUP_RANK", *_OF_TORCHRUN)),
        Removal("PET_*", _OPTIONS),
        Removal("PYTHON_EXEC", "torchrun would start ranks with it, not with its own interpreter"),
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

    def default_view(self, tasks: int) -> str:
        """Names that resolve at once; torchrun's children share the namespaces it is in."""
        del tasks
        return "hosts"

    def ranks_on(self, node: Node) -> int:
        """One torchrun per node (SB-07)."""
        return 1 if node.tasks is None else node.tasks

    def fan_out(self, node: Node) -> int | None:
        """A rank for each GPU, one on a CPU node."""
        return None if node.gpus is None else node.gpus or 1

    def check(self, job: Job, cluster: Cluster) -> tuple[str, ...]:
        """Refuse several torchruns on a node, and a torchrun in each rank of one (SB-07)."""
        check_one_task(cluster, self.name)
        _check_program(job.program)
        if job.elastic is not None:
            from slurm_adapter.contracts.elastic import check_elastic

            check_elastic(job.elastic, cluster)
        return (*_warn_of_restarts(job, cluster), *_warn_of_gpus(job, cluster))

    def settings(self, place: RankPlace) -> tuple[Setting, ...]:
        """Nothing but what a rendezvous of its own needs: torchrun sets its ranks' variables.

        OMP_NUM_THREADS too is left to it: 1 where a node has several ranks, with a warning, unless
        the user has set it. Whoever is used to torchrun counts on that.
        """
        if place.job.elastic is None:
            return ()
        from slurm_adapter.contracts.elastic import OWN_STORE

        return (OWN_STORE,)

    def arguments(self, place: RankPlace) -> tuple[Word, ...]:
        """Nothing is appended: ranks are told by variables."""
        del place
        return ()

    def command(self, place: RankPlace, words: Iterable[Word]) -> Iterator[Word]:
        """Yield torchrun by the job's own interpreter, then the program as each rank runs it.

        What follows `--` is the program's even where it looks like an option of torchrun: `--n 3`
        of a script would be refused as ambiguous.
        """
        yield Word(place.python, "the job's interpreter, and the ranks'")
        yield Word("-m", "not the torchrun of PATH, which may belong to another interpreter")
        yield Word("torch.distributed.run", "torchrun's module")
        yield from _options(place)
        boot = isinstance(place.job.program, Boot)
        if not boot:
            yield Word("--no-python", "each rank runs the command")
        yield Word("--", "what follows is the program's")
        for position, word in enumerate(words):
            # torchrun fills in arguments, a boot file's name among them, but not a command's.
            filled = boot or position > 0
            yield Word(_literal(word.value), word.reason, word.known) if filled else word


def _warn_of_restarts(job: Job, cluster: Cluster) -> Iterator[str]:
    """Warn of torch's static rendezvous: its one store is not emptied, and no key has a round."""
    nodes = len(cluster.nodes)
    alone = nodes == 1 and cluster.nodes[0].gpus in (0, 1)
    if job.max_restarts and job.elastic is None and not alone:
        yield (
            "ranks that torchrun starts again may find the addresses of those before them, and"
            " wait for these in vain: its static rendezvous keeps one store (seen with torch 2.13)."
            f" --elastic {nodes}:{nodes} gives each round a store of its own"
        )


def _warn_of_gpus(job: Job, cluster: Cluster) -> Iterator[str]:
    asked = any(name.startswith(("gpus", "gres")) for name in job.slurm)
    if cluster.nodes[0].gpus is None and not asked:
        yield (
            "how many GPUs a node has is not known yet: torchrun will start a rank for each,"
            " or one where there is none (--gpus-per-node N tells)"
        )


def _options(place: RankPlace) -> Iterator[Word]:
    """Yield torchrun's options, as torch 2.1 has them."""
    job, run, node = place.job, place.run, place.node
    yield from _nodes(place)
    yield _processes(node)
    if job.elastic is None:
        yield Word("--rdzv-backend=static", "ranks in the order of the nodes")
    else:
        yield Word("--rdzv-backend=c10d", "nodes may leave and come back; ranks in any order")
    yield Word(
        f"--rdzv-id={run.uuid or '<uuid>'}",
        "the same on all nodes, another for each run",
        run.uuid is not None,
    )
    yield from _meeting_point(place)
    if job.max_restarts is not None:
        yield Word(f"--max-restarts={job.max_restarts}", "given by --max-restarts")
    if node.address is not None:
        yield Word(f"--local-addr={node.address}", node.address_reason)
    elif run.uuid is None:
        yield Word("--local-addr=<address>", node.address_reason, known=False)


def _nodes(place: RankPlace) -> Iterator[Word]:
    """Yield how many nodes there are, and which this one is where that counts (MA-07)."""
    if place.job.elastic is not None:
        fewest, most = place.job.elastic
        yield Word(f"--nnodes={fewest}:{most}", "the fewest and the most nodes, by --elastic")
        return
    nodes, index, source = len(place.cluster.nodes), place.node_index, place.cluster.source
    yield Word(f"--nnodes={nodes}", f"nodes of {source}")
    yield Word(f"--node-rank={index}", f"node {index} of {nodes} in the order of {source}")


def _meeting_point(place: RankPlace) -> Iterator[Word]:
    if place.job.elastic is not None:
        from slurm_adapter.contracts.elastic import store_words

        yield from store_words(place)
        return
    master = f"[{place.master}]" if ":" in place.master else place.master
    yield Word(f"--master-addr={master}", "the node of rank 0", place.cluster.known)
    yield Word(f"--master-port={place.port}", place.port_reason, place.run.port is not None)


def _processes(node: Node) -> Word:
    if node.gpus is None:
        return Word(
            "--nproc-per-node=<GPUs>", "counted on the node when the step runs", known=False
        )
    why = node.gpus_reason or "GPUs of this node"
    if node.gpus == 0:
        return Word("--nproc-per-node=1", f"one rank on the CPU: {why}")
    return Word(f"--nproc-per-node={node.gpus}", f"one rank for each GPU: {why}")


def _check_program(program: Program) -> None:
    """Refuse a command that starts torchrun: each rank of ours would (SB-07)."""
    match program:
        case Boot():
            return
        case Command(text):
            words: Sequence[str] = text.split()
        case Argv(words):
            pass
    if any(map(_starts_torchrun, ("", *words), words)):
        raise BadValueError(
            "under the torchrun contract each rank runs the command, and this one would start"
            " torchrun once more in each",
            "Give the boot file alone, or --contract modelarts for one command per node.",
        )


def _starts_torchrun(before: str, word: str) -> bool:
    if before == "-m":
        return word in _MODULES
    return word.rpartition("/")[2] == _PROGRAM and not before.startswith("-")


def _literal(text: str) -> str:
    """Return an argument as torchrun must be given it for its ranks to get this one.

    It fills in `$local_rank` and takes `$$` for `$` (torch.distributed.elastic.utils.macros).
    """
    return text.replace("$", "$$") if "$$" in text or "local_rank" in text else text

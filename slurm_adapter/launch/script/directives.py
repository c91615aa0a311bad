"""A job becomes the `#SBATCH` lines of its script, each with the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.cluster import Node
from slurm_adapter.contracts import contract_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.script.options import GPUS, MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_adapter.job.job import Job
    from slurm_adapter.launch.script.time_and_failures import Life

# What contradicts a flag of the job -> how that is given.
_AGAINST = {"exclusive": ("oversubscribe",), "requeue": ("no-requeue",)}
_CARDS = ("gpu", "npu")


@dataclass(frozen=True)
class Directive:
    """One `#SBATCH` line as data, with the reason for its value."""

    name: str
    value: str | None
    reason: str

    @property
    def option(self) -> str:
        """The option as sbatch itself takes it."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


def make_directives(job: Job, options: dict[str, str | None], life: Life) -> list[Directive]:
    """Return the directives of a job: its own, then what the user gave beside.

    Args:
        job: what to run.
        options: the user's own sbatch options, as `check_options` returns them.
        life: what is to happen before its time limit.

    Raises:
        BadValueError: where the user's options contradict the job.
    """
    options = dict(options)
    ours = [
        Directive("job-name", job.name, "the job's name"),
        Directive("nodes", str(job.nodes), "the job's nodes"),
        Directive("ntasks-per-node", str(tasks_per_node(job)), f"contract {job.contract}"),
        *make_resources(job, options),
    ]
    if "output" not in options:
        path = f"{job.log_folder.replace('%', '%%')}/{job.file_stem}-%j.out"
        ours.append(Directive("output", path, "the job's log folder"))
    if "open-mode" not in options:
        # A site may requeue jobs by itself.
        ours.append(Directive("open-mode", "append", "a requeued job keeps its first log (SB-12)"))
    if life.warn is not None:
        name, seconds = life.warn
        why = f"every rank gets SIG{name} so many seconds before the time limit"
        ours.append(Directive("signal", f"{name}@{seconds}", why))
    given = {item.name for item in ours}
    return ours + [
        Directive(name, value, "given by you")
        for name, value in options.items()
        if name not in given
    ]


def make_resources(job: Job, options: dict[str, str | None]) -> Iterator[Directive]:
    """Yield what each node of a job, or of a component of one, must have.

    Raises:
        BadValueError: where the user's options contradict the job.
    """
    yield from _gpus(job, options)
    yield from _cpus_and_memory(job, options)
    yield from _flags(job, options)


def tasks_per_node(job: Job) -> int:
    """Return how many tasks Slurm starts on a node: one, or one per GPU."""
    ranks = ranks_per_node(job)
    return 1 if job.node_starts_ranks else ranks


def ranks_per_node(job: Job) -> int:
    """Return how many of what the contract starts there are on a node."""
    contract = contract_of(job)
    if contract.per_gpu and job.gpus_per_node is None:
        raise BadValueError(
            f"the {job.contract} contract starts one rank for each GPU, and nothing says how many"
            " a node has",
            "Give --gpus-per-node N (0 for one rank per node on the CPU), or --flavor TEXT.",
        )
    return contract.ranks_on(Node("", gpus=job.gpus_per_node))


def _gpus(job: Job, options: dict[str, str | None]) -> Iterator[Directive]:
    """Yield the request for a node's cards, in the one way that the site takes (SB-06)."""
    if not job.gpus_per_node or job.gpu_option == "none":
        return
    gres = options.get("gres") or ""
    theirs = [name for name in GPUS if name in options]
    if any(part.split(":")[0] in _CARDS for part in gres.split(",")):
        theirs.append("gres")
    if theirs:
        raise BadValueError(
            f"the job asks for {job.gpus_per_node} GPUs per node, and so does the sbatch option"
            f" {theirs[0]}={options[theirs[0]]}",
            "Leave one of them out, or keep yours alone with --gpu-option none.",
        )
    if job.accelerator == "npu" or job.gpu_option == "gres":
        count = f"{job.accelerator}:{job.gpus_per_node}"
        reason = f"{job.accelerator.upper()}s of one node"
        yield Directive("gres", f"{gres},{count}" if gres else count, reason)
    else:
        yield Directive("gpus-per-node", str(job.gpus_per_node), "GPUs of one node")


def _cpus_and_memory(job: Job, options: dict[str, str | None]) -> Iterator[Directive]:
    """Yield the job's own request where the user's sbatch options do not take its place."""
    if job.cpus_per_task is not None and not {"cpus-per-task", "cpus-per-gpu"} & options.keys():
        cpus = max(1, job.cpus_per_task // tasks_per_node(job))
        yield Directive("cpus-per-task", str(cpus), "CPUs of one node, shared by its tasks")
    if job.memory_mib is not None and not set(MEMORY) & options.keys():
        yield Directive("mem", f"{job.memory_mib}M", "memory of one node, MiB")


def _flags(job: Job, options: dict[str, str | None]) -> Iterator[Directive]:
    """Yield the flags that the job wants; one that the user also gave with a value stays so."""
    wanted = {"exclusive": job.exclusive, "requeue": job.requeue}
    for name in [name for name, is_wanted in wanted.items() if is_wanted]:
        for other in _AGAINST[name]:
            if other in options:
                raise BadValueError(
                    f"--{name} and the sbatch option {other} exclude each other",
                    "Leave one of them out.",
                )
        if name not in options:
            yield Directive(name, None, "given by you")

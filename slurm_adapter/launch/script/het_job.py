"""Nodes of several kinds in one job: Slurm's heterogeneous job, a component for each kind.

Slurm 22.05 hands some options on from the first component to those behind it (time, account, mem,
output, ...) and others not (partition, exclusive, CPUs, GPUs). What belongs to the whole job is
written once; what all nodes need is written out in each component, whatever Slurm does by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.contracts import contract_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.script.directives import Directive, make_resources, tasks_per_node
from slurm_adapter.launch.script.options import GPUS, MEMORY, VALUED, read_options
from slurm_adapter.quoting import directive, shell_words
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from slurm_adapter.job.component import HetComponent
    from slurm_adapter.job.job import Job

SEPARATOR = "#SBATCH hetjob"
_OWN = ("nodes", "gpus-per-node", "flavor")
"""What a component may say beside options of sbatch."""
_CPUS = ("cpus-per-task", "cpus-per-gpu")
_SHARING = ("exclusive", "oversubscribe")
_GROUPS = (MEMORY, _CPUS, _SHARING)
"""Options of which a component has one: its own, or that of the first nodes."""
_REPEATED_TEXT = """account cpus-per-gpu cpus-per-task exclude exclusive mem mem-per-cpu
mem-per-gpu no-requeue oversubscribe partition qos requeue reservation signal time"""
_REPEATED = frozenset(_REPEATED_TEXT.split())
_PER_GPU = ("mem-per-gpu", "cpus-per-gpu")
# What sbatch takes once for all components, or what would make one of them another job.
_WHOLE_JOB_TEXT = """acctg-freq array batch begin chdir cluster-constraint clusters comment
container container-id deadline delay-boot dependency error get-user-env gid hold ignore-pbs input
kill-on-invalid-dep mail-type mail-user mcs-label nice no-kill no-requeue open-mode output priority
profile propagate requeue resv-ports signal stepmgr uid verbose wait wckey"""
_WHOLE_JOB = frozenset(_WHOLE_JOB_TEXT.split())


def jobs_of_components(job: Job) -> list[Job]:
    """Return each component of a job as a job of its own: the first nodes, then the others."""
    return [replace(job, components=()), *(_as_job(job, one) for one in job.components)]


def _as_job(job: Job, component: HetComponent) -> Job:
    return replace(
        job,
        components=(),
        nodes=component.nodes,
        gpus_per_node=component.gpus_per_node,
        accelerator=component.accelerator,
        cpus_per_task=component.cpus_per_task,
        memory_mib=component.memory_mib,
        slurm=component.slurm,
    )


def make_components(
    job: Job, first: Sequence[Directive], site_options: Collection[str], warnings: list[str]
) -> list[list[Directive]]:
    """Return the directives of the components behind the first one.

    Args:
        job: what to run.
        first: the directives of the first component.
        site_options: as `make_script` has them.
        warnings: gets what is to be warned of.

    Raises:
        BadValueError: for options that do not exist, belong to the whole job, or contradict
            the component or the first one.
    """
    if job.components and any(item.name == "array" for item in first):
        raise BadValueError(
            "Slurm has no arrays of jobs with nodes of several kinds",
            "Leave --sbatch array out, or the further parts.",
        )
    made = []
    for number, component in enumerate(jobs_of_components(job)[1:], 1):
        try:
            made.append(_make_component(component, first, site_options, warnings))
        except BadValueError as error:
            raise BadValueError(f"part {number}: {error.found}", error.remedy) from error
    return made


def _make_component(
    component: Job, first: Sequence[Directive], site_options: Collection[str], warnings: list[str]
) -> list[Directive]:
    options, more = read_options(component.slurm, site_options, "", _OWN)
    warnings += more
    for name in options:
        if name in _WHOLE_JOB:
            value = "=VALUE" if name in VALUED else ""
            raise BadValueError(
                f"the sbatch option {name} is for the whole job",
                f"Write it outside the parts, as in --sbatch {name}{value}.",
            )
    if contract_of(component).per_gpu and component.gpus_per_node is None:
        raise BadValueError(
            f"the {component.contract} contract starts one rank for each GPU, and nothing says how"
            " many a node has",
            "Give gpus-per-node=N in it (0 for one rank per node on the CPU), or flavor=TEXT.",
        )
    _check_memory(options, first)
    ours = [
        Directive("nodes", str(component.nodes), "the part's nodes"),
        Directive(
            "ntasks-per-node", str(tasks_per_node(component)), f"contract {component.contract}"
        ),
        *make_resources(component, options),
    ]
    own = {item.name for item in ours} | options.keys()
    given = [
        Directive(name, value, "given by you")
        for name, value in options.items()
        if name not in {item.name for item in ours}
    ]
    return [*ours, *given, *_shared(component, first, own)]


def _shared(
    component: Job, first: Sequence[Directive], own: Collection[str]
) -> Iterator[Directive]:
    """Yield what the first component has and this one is to have as well."""
    taken = set(own)
    for group in _GROUPS:
        taken |= set(group) if taken & set(group) else set()
    asks = component.gpus_per_node or taken & {*GPUS, "gres"}
    for item in first:
        if item.name in _REPEATED - taken and (asks or item.name not in _PER_GPU):
            yield Directive(item.name, item.value, "as for the first nodes")


def _check_memory(options: Collection[str], first: Sequence[Directive]) -> None:
    """Refuse memory in another way than the first nodes' `mem`, which Slurm hands on."""
    own = next((name for name in MEMORY if name in options), None)
    if own not in (None, "mem") and any(item.name == "mem" for item in first):
        raise BadValueError(
            f"it asks for memory with {own}, and the first nodes with mem: sbatch does not take"
            " both in one job",
            "Write mem=SIZE in it, or the memory of all nodes in another way.",
        )


def directive_lines(components: Sequence[Sequence[Directive]]) -> Iterator[str]:
    """Yield the `#SBATCH` lines of the components behind the first one."""
    for component in components:
        yield SEPARATOR
        yield from (directive(item.name, item.value) for item in component)


def node_lists(further: int) -> str:
    """Return what a script with `further` components calls the list of its nodes, for the shell."""
    if not further:
        return "$SLURM_JOB_NODELIST"
    return ",".join(f"$SLURM_JOB_NODELIST_HET_GROUP_{number}" for number in range(further + 1))


def srun_lines(
    srun: Sequence[str],
    components: Sequence[Mapping[str, str | None]],
    options: Sequence[Sequence[str]] = (),
) -> list[str]:
    """Return srun's own words, quoted: lines for each component that wants others than the rest.

    `--cpus-per-task`: srun does not take it from the job since Slurm 22.05 (SB-09).

    Args:
        srun: the words that are the same for all.
        components: the directives of each component by name.
        options: more of such words, a line each.
    """
    cpus = [one.get("cpus-per-task") for one in components]
    own = [[] if count is None else [f"--cpus-per-task={count}"] for count in cpus]
    if len(components) == 1:
        heads = [[*srun, *own[0]]]
    elif len(set(cpus)) == 1:
        groups = ",".join(map(str, range(len(components))))
        heads = [[*srun, f"--het-group={groups}", *own[0]]]
    else:
        heads = [[*srun, f"--het-group={number}", *more] for number, more in enumerate(own)]
    first, *others = (shell_words(head) for head in heads)
    more = [shell_words(words) for words in options]
    lines = [first, *more]
    for head in others:
        lines[-1] += " :"
        lines += [head.removeprefix(f"{srun[0]} "), *more]
    return lines

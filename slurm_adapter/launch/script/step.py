"""The step in a script: an srun line on which each task becomes its rank, and what is behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.contracts import contract_of
from slurm_adapter.job.job import Argv, Boot, Command
from slurm_adapter.job.option import CHANNELS, FLAG, REPEATED, VARIABLES, options_of
from slurm_adapter.job.options import JobOptions
from slurm_adapter.launch.script.container import program_words, srun_options
from slurm_adapter.launch.script.het_job import jobs_of_components, node_lists, srun_lines
from slurm_adapter.network.overrides import as_options
from slurm_adapter.node.step.finish import START
from slurm_adapter.quoting import shell_word, shell_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurm_adapter.job.job import Job
    from slurm_adapter.job.option import Option


def step_lines(
    job: Job,
    adapter: Sequence[str],
    node_side: Sequence[str],
    components: Sequence[Mapping[str, str | None]],
    retries: int,
) -> Iterator[str]:
    """Yield the lines that start a job's ranks, see them end, and tell how.

    Args:
        job: what to run.
        adapter: the words that start slurm-adapter where the script runs.
        node_side: those that start it where the ranks run: in the job's image, should it have one.
        components: the directives of each component, by name.
        retries: how often ranks that failed are started again.
    """
    starts = contract_of(job).starts
    task, becomes = starts, f"becomes its {starts}"
    if job.node_starts_ranks:
        task, becomes = "task", "starts its node's ranks"
    ends = [job.folder, *([] if task == "rank" else [task])]
    finish = f'{shell_words([*adapter, "finish"])} "$1" /proc/self/fd/2'
    yield f"# Each task {becomes}; the first that fails ends the others."
    if not retries:
        yield from _attempt(job, node_side, components)
        yield "# srun returns the highest status of all, this that of the first failure; it"
        yield "# ends the nodes' logs and takes away what was for this run alone."
        yield f"{finish} {shell_words(ends)}"
        return
    yield f"# Where that happens all are started again, up to {retries} times; not after the"
    yield "# loss of a node (4), without which the job cannot go on here."
    on = node_lists(len(job.components))
    again = f'echo "{START} job $SLURM_JOB_ID on {on} again" >&2'
    yield f"for attempt in $(seq 0 {retries}); do"
    yield f'    [ "$attempt" -eq 0 ] || {again}'
    yield from (f"    {line}" for line in _attempt(job, node_side, components))
    yield "    # srun returns the highest status of all, this that of the first failure; it"
    yield "    # ends the nodes' logs and takes away what was for this run alone."
    rest = shell_words([job.folder, task])
    yield f'    {finish} {rest} "$attempt" && exit 0 || status=$?'
    yield '    [ "$status" -ne 4 ] || break'
    yield "done"
    yield 'exit "$status"'


def _attempt(
    job: Job, node_side: Sequence[str], components: Sequence[Mapping[str, str | None]]
) -> Iterator[str]:
    # --export: srun would inherit a reduced --export of sbatch (SB-04).
    by_node = job.node_starts_ranks  # exec itself puts each line behind its rank's number then
    label = [] if by_node else ["--label"]
    srun = ["srun", *label, "--kill-on-bad-exit=1", "--export=ALL"]
    node_side = [*node_side, "exec"]
    if contract_of(job).names_workers:  # one rank, and one log file, on each node
        node_side.append("--log")
    options, inside = srun_options(job), program_words(job)
    if job.container is not None:
        node_side.append("--in-container")
    yield "set -- 0"
    first, *others = [*srun_lines(srun, components, options), *map(shell_words, inside)]
    yield f"{first} \\"
    yield from (f"    {line} \\" for line in others)
    yield f"    {shell_words(node_side)} \\"
    yield from (f"    {option} \\" for option in _exec_options(job))
    yield f'    {_program(job)} || set -- "$?"'


def _exec_options(job: Job) -> Iterator[str]:
    """Yield one line of options each, quoted: what the table says that ranks are told of."""
    for option in options_of(JobOptions):
        if "exec" in option.node and not option.into and option.job_field != "program":
            yield from map(shell_word, _words(option, job))
    yield from map(shell_word, as_options(job.network))
    # Slurm does not tell a node of the others', and of cards by another name not at all.
    if job.node_starts_ranks:
        yield shell_word(f"--gpus-per-node={_gpus_of_components(job)}")


def _words(option: Option, job: Job) -> Iterator[str]:
    """Yield the words that make a job what it is in the matter of one option."""
    value = job.said_by(option)
    if option.kind == VARIABLES:  # their values are in the script already
        yield from (f"{option.long}={name}" for name in (*job.env, *job.keep))
    elif option.kind == CHANNELS:
        yield from (f"{option.long}={channel.name}={channel.path}" for channel in value)
    elif option.kind == FLAG:
        yield from [option.long] if value else []
    elif option.kind in REPEATED:
        yield from (f"{option.long}={text}" for text in value or ())
    elif value is not None and value != option.implied:
        text = ":".join(map(str, value)) if isinstance(value, tuple) else value
        yield f"{option.long}={text}"


def _gpus_of_components(job: Job) -> str:
    return ",".join(str(one.gpus_per_node) for one in jobs_of_components(job))


def _program(job: Job) -> str:
    match job.program:
        case Boot(path):
            words = [f"--boot={path}", *(["--", *job.args] if job.args else [])]
        case Command(text):
            words = [f"--command={text}", *(["--", *job.args] if job.args else [])]
        case Argv(given):
            words = ["--", *given, *job.args]
    return shell_words(words)

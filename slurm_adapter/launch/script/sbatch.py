"""A job becomes the text of an sbatch script. Pure: what is shown is what is submitted.

Directives first, all of them before the first command (SB-11); then the variables, then modules
and environments; then one srun line, on which each node becomes its rank by `slurm-adapter exec`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_adapter import __version__
from slurm_adapter.contracts import contract_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.script.container import check_container, handed_over, interpreter
from slurm_adapter.launch.script.directives import Directive, make_directives, ranks_per_node
from slurm_adapter.launch.script.environment import environment_lines
from slurm_adapter.launch.script.het_job import (
    directive_lines,
    jobs_of_components,
    make_components,
    node_lists,
)
from slurm_adapter.launch.script.log_path import folder_of, read_log_path
from slurm_adapter.launch.script.options import read_options
from slurm_adapter.launch.script.step import step_lines
from slurm_adapter.launch.script.time_and_failures import CHAIN, Life
from slurm_adapter.launch.script.zipapp import PLAIN_NAME, zipapp_words
from slurm_adapter.node.step.finish import START
from slurm_adapter.quoting import directive, export_line, shell_word
from slurm_adapter.setting import is_secret

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from slurm_adapter.job.job import Job

# Variables that bash keeps to itself: read-only, or with a life of their own (bash(1)).
_BASH_OWN_TEXT = """_ BASHOPTS BASHPID BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_COMMAND BASH_LINENO
BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS
HISTCMD LINENO PIPESTATUS PPID RANDOM SECONDS SHELLOPTS SRANDOM UID"""
_BASH_OWN = frozenset(_BASH_OWN_TEXT.split())
HEADER = b"# Written by slurm-adapter"
"""How the second line of every script begins."""
_LOG_OPTIONS = ("output", "error")


@dataclass(frozen=True)
class Script:
    """An sbatch script, ready to be written or submitted."""

    text: str
    directives: tuple[Directive, ...]
    folders: tuple[str, ...]
    """Folders that must exist before submission, absolute."""
    environment: dict[str, str] = field(default_factory=dict)
    """Secret variables: given to sbatch's own environment, never written into the text."""
    warnings: tuple[str, ...] = ()
    components: tuple[tuple[Directive, ...], ...] = ()
    """Those of each further component of a heterogeneous job."""
    resubmissions: int = 0
    """How many more jobs of this script may go on where one runs into its time limit."""

    @property
    def summary(self) -> dict[str, str | None]:
        """Directives by name, those of the first component."""
        return {directive.name: directive.value for directive in self.directives}

    @property
    def all_directives(self) -> tuple[Directive, ...]:
        """The directives of all components."""
        return (*self.directives, *(one for component in self.components for one in component))


def make_script(
    job: Job,
    adapter: Sequence[str],
    base: str,
    site_options: Collection[str] = (),
    zipapp: str = PLAIN_NAME,
) -> Script:
    """Return the script that runs a job.

    Args:
        job: what to run.
        adapter: the words that start slurm-adapter on the nodes, e.g. its absolute path.
        base: the directory that relative log paths mean, absolute.
        site_options: long options that the site's sbatch knows beside Slurm's own.
        zipapp: the name that the node side's file has in the job's folder, where ranks run in an
            image.

    Raises:
        BadValueError: for sbatch options that do not exist, contradict the job, or would lose
            the log; for modules and environments that cannot be meant.
    """
    options, warnings = read_options(job.slurm, site_options)
    for name in _LOG_OPTIONS:
        if options.get(name) is not None:
            options[name] = read_log_path(name, str(options[name]))
    base = os.path.join(base, options.get("chdir") or "")  # what Slurm does
    if "\\" in job.folder:
        raise BadValueError(
            f"the job's folder {job.folder} holds a backslash, which Slurm takes for an escape",
            "Name another with --job-folder DIR.",
        )
    check_container(job)
    life = Life.parse(job.warn, job.retries, job.on_timeout)
    life.check(contract_of(job).starts, options)
    directives = make_directives(job, options, life)
    further = make_components(job, directives, site_options, warnings)
    by_name = [{item.name: item.value for item in one} for one in (directives, *further)]
    values = by_name[0]
    logs = [str(values[name]) for name in _LOG_OPTIONS if values.get(name)]
    # A directory that is not there cannot be mounted into a container.
    mounted = [channel.path for channel in job.outputs] if job.container is not None else []
    folders = dict.fromkeys([job.log_folder, *mounted, *(folder_of(log, base) for log in logs)])
    secrets = {name: value for name, value in job.env.items() if is_secret(name)}
    node_side = adapter
    if job.container is not None:
        node_side = zipapp_words(interpreter(job), f"{job.folder}/{zipapp}")
    lines = [
        "#!/bin/bash",
        _head(job),
        *(directive(item.name, item.value) for item in directives),
        *directive_lines(further),
        "",
        "set -euo pipefail",
        *_go_on(job, life),
        f'echo "{START} job $SLURM_JOB_ID on {node_lists(len(further))}" >&2',
        *_variables(job),
        *environment_lines(job),
        *(handed_over(job) if job.container is not None else ()),
        "",
        *step_lines(job, adapter, node_side, by_name, life.retries),
    ]
    return Script(
        text="\n".join(lines) + "\n",
        directives=tuple(directives),
        components=tuple(map(tuple, further)),
        folders=tuple(folder for folder in folders if folder is not None),
        environment=secrets,
        warnings=tuple(warnings),
        resubmissions=life.resubmissions,
    )


def _head(job: Job) -> str:
    sizes = "; ".join(map(_size, jobs_of_components(job)))
    return f"{HEADER.decode()} {__version__}: {sizes}, contract {job.contract}."


def _size(job: Job) -> str:
    nodes = "1 node" if job.nodes == 1 else f"{job.nodes} nodes"
    count, starts = ranks_per_node(job), contract_of(job).starts
    ranks = f"one {starts}" if count == 1 else f"{count} {starts}s"
    each = "" if job.nodes == 1 else " each"
    return f"{nodes}, {ranks}{each}"


def _variables(job: Job) -> Iterator[str]:
    if not job.env:
        return
    yield ""
    yield "# The job's variables; srun passes them on."
    for name, value in job.env.items():
        if name in _BASH_OWN:
            raise BadValueError(
                f"bash, which runs the job's script, does not pass the variable {name} on",
                "Give it another name, or set it in the script itself.",
            )
        if is_secret(name):
            yield f': "${{{name}?must be in the environment of sbatch; it is never written here}}"'
        else:
            yield export_line(name, value)


def _go_on(job: Job, life: Life) -> Iterator[str]:
    """Yield the lines before all others: a job of a chain may have nothing left to do."""
    if life.resubmissions:
        yield ""
        yield "# Submitted ahead, to go on where the job before it ran into its time limit: where"
        yield "# that one ended by itself, this one has nothing to do, and ends likewise."
        yield f'ended={shell_word(job.folder)}/ended-"${{{CHAIN}-}}"'
        yield 'if [ -e "$ended" ]; then exit "$(cat "$ended")"; fi'
        yield ""

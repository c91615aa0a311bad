"""The long options of sbatch: which exist, which take a value, and which are ours to set."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.script.time_limit import read_time_limit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# sbatch(1) of Slurm 22.05 to 25.05. A site's plug-ins add more: `sbatch --help` is asked too.
_FLAGS = """contiguous hold ignore-pbs no-requeue overcommit oversubscribe reboot requeue
spread-job use-min-nodes verbose wait"""
_OPTIONAL = "exclusive get-user-env nice no-kill propagate"
_VALUED = """account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment
consolidate-segments constraint container container-id core-spec cores-per-socket cpu-freq
cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude export
export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user
mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition power
prefer priority profile qos reservation resv-ports segment signal sockets-per-node stepmgr
switches thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes
wckey"""

FLAGS = frozenset(_FLAGS.split())
OPTIONAL = frozenset(_OPTIONAL.split())
VALUED = frozenset(_VALUED.split())
MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
GPUS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")

# What the job itself says: name -> what to use instead.
_OURS = {
    "nodes": "--nodes (or `nodes` in the job file)",
    "job-name": "--name (or `name` in the job file)",
    "ntasks": "--contract, which decides how many tasks a node gets",
    "ntasks-per-node": "--contract, which decides how many tasks a node gets",
    "ntasks-per-gpu": "--contract, which decides how many tasks a node gets",
    "ntasks-per-core": "--contract, which decides how many tasks a node gets",
    "ntasks-per-socket": "--contract, which decides how many tasks a node gets",
    "export": "--env NAME=VALUE; the script passes the whole environment on",
    "export-file": "--env NAME=VALUE; the script passes the whole environment on",
    "distribution": "no distribution: ranks follow the order of the nodes",
}
# What is done to sbatch rather than told to the job.
_SUBMISSION = {
    "parsable": "slurm-adapter sbatch --parsable",
    "test-only": "slurm-adapter sbatch --dry-run",
    "wrap": "slurm-adapter sbatch --command TEXT",
    "help": "sbatch --help",
    "usage": "sbatch --usage",
    "version": "sbatch --version",
    "quiet": "slurm-adapter sbatch --quiet",
}


def read_options(
    options: Mapping[str, str | None],
    site_options: Collection[str] = (),
    how: str = "--sbatch ",
    beside: Sequence[str] = (),
) -> tuple[dict[str, str | None], list[str]]:
    """Return the user's sbatch options as `check_options`, time limits plainly; and warnings."""
    checked = check_options(options, site_options, how, beside)
    if checked.get("time") is None:
        return checked, []
    checked["time"], warning = read_time_limit(str(checked["time"]))
    return checked, [warning] if warning else []


def check_options(
    options: Mapping[str, str | None],
    site_options: Collection[str] = (),
    how: str = "--sbatch ",
    beside: Sequence[str] = (),
) -> dict[str, str | None]:
    """Return the user's sbatch options, each known, of the right kind and not ours to set.

    Args:
        options: long names without dashes; None for a flag without a value.
        site_options: further long names that the site's own `sbatch --help` lists.
        how: what an option stands behind where it is typed, for the remedy.
        beside: what else may be said there, for the remedy.

    Raises:
        BadValueError: with the nearest right name, or with what to use instead.
    """
    checked: dict[str, str | None] = {}
    for written, value in options.items():
        name = written.removeprefix("--").replace("_", "-")
        _check_name(name, written, site_options, beside)
        if value is None and name in VALUED:
            raise BadValueError(
                f"the sbatch option {name} wants a value", f"Write {how}{name}=VALUE."
            )
        if value is not None and name in FLAGS:
            raise BadValueError(
                f"the sbatch option {name} takes no value, not {value!r}",
                f"Write {how}{name} (`{name} = true` in a job file).",
            )
        checked[name] = value
    memory = [name for name in MEMORY if name in checked]
    if len(memory) > 1:
        raise BadValueError(
            f"sbatch takes one of {' and '.join(memory)}, not both", "Leave one of them out."
        )
    return checked


def _check_name(
    name: str, written: str, site_options: Collection[str], beside: Sequence[str]
) -> None:
    for table, what in ((_OURS, "set by slurm-adapter"), (_SUBMISSION, "not a directive")):
        if name in table:
            raise BadValueError(f"the sbatch option {name} is {what}", f"Use {table[name]}.")
    known = FLAGS | OPTIONAL | VALUED | set(site_options)
    if name not in known:
        near = difflib.get_close_matches(name, [*beside, *sorted(known)], n=1)
        listed = "`sbatch --help` lists the options here."
        if beside:
            listed = f"It may say {', '.join(beside)} and sbatch's options; {listed}"
        raise BadValueError(
            f"sbatch has no long option {written!r}",
            f"Did you mean {near[0]}?" if near else listed,
        )

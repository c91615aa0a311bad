"""What a launching command says on stderr beside its errors, and how a dry run is printed."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import Boot
from slurm_adapter.job.options import DRY_RUN_FORMATS
from slurm_adapter.output import write_stdout
from slurm_adapter.show.dry_run import DryRun, made_on_nodes
from slurm_adapter.show.lines import has_colour

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_adapter.job.job import Program
    from slurm_adapter.network.table import Row
    from slurm_adapter.plan import Plan

# What a boot file may count on: the views that give it, what to say without them.
_SIGNS = {
    b"/home/ma-user": (
        ("full",),
        "names /home/ma-user, which is not there without a full view: use the MA_ variables, or"
        " --input and --output",
    ),
    b"MA_TASK_NAME": (
        ("full", "hosts"),
        "uses MA_TASK_NAME: if it builds a node's name from it, that name does not resolve without"
        " a view; the first of VC_WORKER_HOSTS does",
    ),
}


def say(text: str) -> None:
    """Say one thing on stderr; where nobody hears it any more, the job's end goes on."""
    with suppress(OSError):
        os.write(2, os.fsencode(f"slurm-adapter: {text}\n"))


def warn(warnings: Iterable[str]) -> None:
    """Say each warning on stderr."""
    for warning in warnings:
        say(f"warning: {warning}")


def check_format(form: str) -> None:
    """Refuse a dry run in a form that does not exist."""
    if form not in DRY_RUN_FORMATS:
        raise BadValueError(
            f"there is no format {form!r}", f"Choose one of: {', '.join(DRY_RUN_FORMATS)}."
        )


def print_dry_run(dry_run: DryRun, form: str) -> None:
    """Print a dry run to stdout."""
    if form == "json":
        write_stdout(dry_run.to_json() + "\n")
    elif form == "plain":
        from slurm_adapter.show.plain import plain

        write_stdout(plain(dry_run, os.environ))
    else:
        from slurm_adapter.show.tree import drawn

        write_stdout(drawn(dry_run, colour=has_colour(sys.stdout)))


def show_ssh_dry_run(plan: Plan, form: str, network: Sequence[Row] = ()) -> None:
    """Print the dry run of a plan for hosts that are reached with ssh."""
    warnings = (*plan.warnings, *boot_warnings(plan))
    files = tuple(made_on_nodes(plan))
    shown = DryRun(plan, files, warnings=warnings, network=tuple(network), over_ssh=True)
    print_dry_run(shown, form)


def boot_warnings(plan: Plan, program: Program | None = None) -> list[str]:
    """Notice what a job's boot file counts on that is not there.

    `program` is where it lies here, should the plan's own be elsewhere.
    """
    program = program or plan.job.program
    if not isinstance(program, Boot):
        return []
    boot = Path(program.path)
    try:
        text = boot.read_bytes()
    except OSError:
        return []
    view = plan.cluster.nodes[0].view
    return [
        f"{boot} {warning}"
        for sign, (views, warning) in _SIGNS.items()
        if sign in text and view not in views
    ]

"""How a launching command's dry run is printed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.options import DRY_RUN_FORMATS
from slurm_adapter.launch.boot_files import boot_warnings
from slurm_adapter.output import write_stdout
from slurm_adapter.show.dry_run import DryRun, made_on_nodes
from slurm_adapter.show.lines import has_colour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.network.table import Row
    from slurm_adapter.plan import Plan


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

        colour = has_colour(sys.stdout)
        write_stdout(drawn(dry_run, colour=colour), styled=colour)


def show_ssh_dry_run(plan: Plan, form: str, network: Sequence[Row] = ()) -> None:
    """Print the dry run of a plan for hosts that are reached with ssh."""
    warnings = (*plan.warnings, *boot_warnings(plan))
    files = tuple(made_on_nodes(plan))
    shown = DryRun(plan, files, warnings=warnings, network=tuple(network), over_ssh=True)
    print_dry_run(shown, form)

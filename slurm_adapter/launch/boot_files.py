"""What a job's boot file counts on that it will not find: noticed before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.job.job import Boot

if TYPE_CHECKING:
    from slurm_adapter.job.job import Program
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

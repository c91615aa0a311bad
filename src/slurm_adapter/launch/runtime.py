"""Which container runtime this site has: asked of the machine that submits."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.job import CONTAINER_RUNTIMES
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from slurm_adapter.job import Job

_PYXIS, *_PROGRAMS = CONTAINER_RUNTIMES
_PYXIS_OPTION = "--container-image="


def in_container(job: Job) -> Job:
    """Return a job with the runtime that this machine has, where it names none.

    Raises:
        ClusterUnfitError: there is none here.
    """
    if job.container is None or job.container.runtime is not None:
        return job
    return replace(job, container=replace(job.container, runtime=_find_runtime()))


def warn_of_image(job: Job) -> tuple[str, ...]:
    """Return a warning where the image is a file that is not here: it may be on the nodes."""
    if job.container is None or not job.container.image.startswith("/"):
        return ()
    if Path(job.container.image).exists():
        return ()
    return (f"{job.container.image} is not on this machine: the job needs it on its nodes",)


def _find_runtime() -> str:
    if shutil.which("srun") is not None:
        shown = subprocess.run(
            ["srun", "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if _PYXIS_OPTION in shown.stdout:
            return _PYXIS
    for program in _PROGRAMS:
        if shutil.which(program) is not None:
            return program
    raise ClusterUnfitError(
        "this machine has no container runtime: srun knows no --container-image (Pyxis), and"
        f" neither {' nor '.join(_PROGRAMS)} is on its PATH",
        f"Where the nodes have one, name it: --container-runtime {'|'.join(CONTAINER_RUNTIMES)}.",
    )

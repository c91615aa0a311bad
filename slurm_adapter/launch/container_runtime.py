"""Which container runtime a site has: asked of the machine that submits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.job.options import CONTAINER_RUNTIMES
from slurm_adapter.record import replace
from slurm_adapter.remote.submit_host import place_of

if TYPE_CHECKING:
    from slurm_adapter.job.job import Job
    from slurm_adapter.remote.submit_host import SubmitHost

_PYXIS, *_PROGRAMS = CONTAINER_RUNTIMES
_PYXIS_OPTION = "--container-image="


def in_container(job: Job, submit_host: SubmitHost | None) -> Job:
    """Return a job with the runtime that the submit host's machine has, where it names none.

    Args:
        job: the job.
        submit_host: where it is submitted; None where that is not to be asked.

    Raises:
        ClusterUnfitError: there is none.
        BadValueError: nobody is to be asked.
    """
    if job.container is None or job.container.runtime is not None:
        return job
    return replace(job, container=replace(job.container, runtime=_find_runtime(submit_host)))


def warn_of_image(job: Job, submit_host: SubmitHost) -> tuple[str, ...]:
    """Return a warning where the image is a file that is not there: it may be on the nodes."""
    if job.container is None or not job.container.image.startswith("/"):
        return ()
    if submit_host.exists(job.container.image):
        return ()
    return (
        f"{job.container.image} is not on {place_of(submit_host)}: the job needs it on its nodes",
    )


def _find_runtime(submit_host: SubmitHost | None) -> str:
    if submit_host is None:
        raise BadValueError(
            "which container runtime the login node has is not known without connecting",
            f"Name it with --container-runtime {'|'.join(CONTAINER_RUNTIMES)}, or look with"
            " --probe.",
        )
    if submit_host.has("srun") and _PYXIS_OPTION in submit_host.run(["srun", "--help"]).out:
        return _PYXIS
    for program in _PROGRAMS:
        if submit_host.has(program):
            return program
    raise ClusterUnfitError(
        f"{place_of(submit_host)} has no container runtime: srun knows no --container-image"
        f" (Pyxis), and neither {' nor '.join(_PROGRAMS)} is on its PATH",
        f"Where the nodes have one, name it: --container-runtime {'|'.join(CONTAINER_RUNTIMES)}.",
    )

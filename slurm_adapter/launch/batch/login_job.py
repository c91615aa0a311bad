"""A job whose places lie where a login node leads, and its code on the way there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.job.job import Boot
from slurm_adapter.job.remote_paths import HOME, at_home
from slurm_adapter.launch.container_runtime import warn_of_image
from slurm_adapter.launch.snapshot import check_boot
from slurm_adapter.record import replace
from slurm_adapter.remote.code import find_code, sync

if TYPE_CHECKING:
    from typing import Any

    from slurm_adapter.job.job import Channel, Job
    from slurm_adapter.remote.code import Code, Synced
    from slurm_adapter.remote.login_host import LoginHost
    from slurm_adapter.remote.submit_host import SubmitHost


def with_default_folder(job: Job) -> Job:
    """Return a job with the folder that jobs have there unless told otherwise."""
    return replace(job, folder=f"{HOME}/slurm-adapter/{job.file_stem}")


def rebased(job: Job, home: str) -> Job:
    """Return a job with the home directory there in all its places."""

    def put(path: str) -> str:
        written_out = HOME + path[1:] if path == "~" or path.startswith("~/") else path
        return at_home(written_out, home)

    def channels(given: tuple[Channel, ...]) -> tuple[Channel, ...]:
        return tuple(replace(channel, path=put(channel.path)) for channel in given)

    optional: dict[str, Any] = {
        name: put(value)
        for name in ("cache", "venv", "conda", "pre_start")
        if (value := getattr(job, name)) is not None
    }
    if job.container is not None:
        mounts = tuple(map(put, job.container.mounts))
        optional["container"] = replace(
            job.container, image=put(job.container.image), mounts=mounts
        )
    program = job.program
    return replace(
        job,
        folder=put(job.folder),
        code=put(job.code),
        program=Boot(put(program.path)) if isinstance(program, Boot) else program,
        python=put(job.python),
        inputs=channels(job.inputs),
        outputs=channels(job.outputs),
        slurm={name: value and put(value) for name, value in job.slurm.items()},
        **optional,
    )


def code_of(job: Job) -> Code:
    """Return what would be copied of a job's code, which lies here.

    Raises:
        BadValueError: there is more than can be code, or its boot file is left out.
    """
    code = find_code(job.code, (f"{job.code}/slurm-adapter",))
    check_boot(job, code, "copy")
    return code


def missing(job: Job, submit_host: SubmitHost) -> tuple[str, ...]:
    """Return warnings of what a job needs and is not on its login node: its nodes may differ."""
    if job.venv and not submit_host.exists(f"{job.venv}/bin/activate"):
        return (f"{job.venv} is no virtual environment on {submit_host.login}",)
    if job.container is not None:
        return warn_of_image(job, submit_host)
    brought = job.venv or job.conda or job.modules or job.prologue
    if isinstance(job.program, Boot) and not brought and not submit_host.has(job.python):
        return (
            f"{job.python} is no program on {submit_host.login}: name the job's interpreter with"
            " --python, or what brings it with --venv, --conda or --module",
        )
    return ()


def copy(code: Code, job: Job, submit_host: LoginHost) -> Synced:
    """Copy the code to where the job has it; what an earlier job's copy has is not sent again.

    Raises:
        ClusterUnfitError: it cannot be written there.
    """
    return sync(code, job.code, [submit_host.agent], with_basis=True)

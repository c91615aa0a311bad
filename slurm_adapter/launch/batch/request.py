"""What is submitted, and where: a job as it will run, and the submit host."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.launch.container_runtime import in_container, warn_of_image
from slurm_adapter.launch.script.environment import check_syntax, warn_of_venv
from slurm_adapter.launch.script.zipapp import write_zipapp, zipapp_name
from slurm_adapter.launch.snapshot import folder_of, planned, take
from slurm_adapter.node.job_files import working_directory
from slurm_adapter.remote.submit_host import LocalHost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_adapter.job.job import Job, Program
    from slurm_adapter.remote.submit_host import SubmitHost


@dataclass(frozen=True)
class UploadResult:
    """What came of taking along what a job needs."""

    warnings: tuple[str, ...] = ()
    done: str = ""
    """What was done, for people."""


@dataclass(frozen=True)
class SubmitRequest:
    """A job, and where it is submitted."""

    job: Job
    """As it will run: from a copy of its code, should it get one."""
    program: Program
    """What it runs, where that lies here."""
    submit_host: SubmitHost | None
    """None for a dry run that connects to nothing."""
    adapter: list[str]
    """What starts slurm-adapter on a node."""
    base: str
    """The directory that relative log paths mean."""
    upload: Callable[[], UploadResult]
    """Has everything there that the job takes along: a copy of its code, where it gets one.

    Raises `AdapterError` where that cannot be.
    """
    snapshot: str = ""
    """The folder of its own copy of the code; empty: it has none."""
    warnings: tuple[str, ...] = ()
    """What is to be said of the job as it was asked for."""
    login: str = ""
    """The login node; empty: none."""
    files: tuple[str, ...] = ()
    """What is made of what it takes along."""
    copied: str = ""
    """What is copied there, for people."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Variables that are taken along there."""

    def close(self) -> None:
        """Let go of the submit host."""
        if self.submit_host is not None:
            self.submit_host.close()


def request_here(job: Job, *, snapshot: bool) -> SubmitRequest:
    """Return what is submitted on this machine.

    Args:
        job: as it was asked for.
        snapshot: whether it gets a copy of its code.

    Raises:
        AdapterError: for what cannot be meant, or is not here.
    """
    check_syntax(job.prologue)
    submit_host = LocalHost()
    job = in_container(job, submit_host)
    code, program = job.code, job.program
    if snapshot:
        job = planned(job)

    def upload() -> UploadResult:
        warnings = take(code, job) if snapshot else ()
        if job.container is not None:
            write_zipapp(submit_host, job.folder)
        return UploadResult(warnings)

    return SubmitRequest(
        job,
        program,
        submit_host,
        adapter_words(),
        working_directory(),
        upload,
        snapshot=folder_of(job) if snapshot else "",
        warnings=(*warn_of_venv(job), *warn_of_image(job, submit_host)),
        files=(zipapp_path(job),) if job.container is not None else (),
    )


def zipapp_path(job: Job) -> str:
    """Return where the node side lies as a file, for what it is not installed in."""
    return f"{job.folder}/{zipapp_name()}"


def adapter_words() -> list[str]:
    """Return what starts slurm-adapter on a node: the absolute path of the installed command.

    A path, because nodes need not have the same PATH; the installed command rather than
    `python -m`, which would put the working directory, and any `types.py` in it, before the
    standard library.
    """
    beside = Path(sys.executable).with_name("slurm-adapter")
    if beside.is_file():
        return [str(beside)]
    return [sys.executable, "-m", "slurm_adapter.node"]

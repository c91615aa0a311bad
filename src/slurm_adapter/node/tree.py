"""The real directories of a job on a node, made before its rank starts."""

from __future__ import annotations

import os

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.layout import CACHE, mount_point
from slurm_adapter.node.program import make_folder, make_outputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_adapter.job import Job


def make(job: Job, mounts: Iterable[tuple[str, str]]) -> None:
    """Make what a full view mounts, and in the job's folder what it is mounted on.

    Outputs and the job's own folders are made; inputs, the code and a cache of the user's must
    be there.

    Raises:
        ClusterUnfitError: naming the directory.
    """
    outputs = {os.path.abspath(channel.path) for channel in job.outputs}  # noqa: PTH100
    make_folder(job.log_folder)
    make_outputs(job)
    for real, seen in mounts:
        if seen == CACHE and real != job.cache:
            make_folder(real)
        elif real not in outputs and not os.path.exists(real):  # noqa: PTH110
            raise ClusterUnfitError(
                f"{os.uname().nodename} has no {real}, which {seen} is to show",
                "It must be there, under the same path, on every node.",
            )
        point = mount_point(job, seen)
        if point is not None and os.path.isfile(real):  # noqa: PTH113
            make_folder(os.path.dirname(point))  # noqa: PTH120
            write_text(point, "")
        elif point is not None:
            make_folder(point)
    _link_job_dir(job)


def write_text(path: str, text: str) -> None:
    """Write a file of the job, with the folder it is in; it is whole or not there."""
    make_folder(os.path.dirname(path))  # noqa: PTH120
    try:
        if text or not os.path.exists(path):  # noqa: PTH110
            own = f"{path}.{os.uname().nodename}"  # of several nodes at once, the last one wins
            with open(own, "w", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
                file.write(text)
            os.replace(own, path)  # noqa: PTH105
    except OSError as error:
        raise ClusterUnfitError(
            f"{os.uname().nodename} cannot write {path}: {error.strerror}",
            "Name a folder that every node can write with --job-folder DIR.",
        ) from error


def _link_job_dir(job: Job) -> None:
    """Let `user-job-dir` lead to ModelArts' directory of that name: its pages use both paths."""
    try:
        os.symlink("modelarts/user-job-dir", f"{job.folder}/user-job-dir")  # noqa: PTH211
    except FileExistsError:
        return
    except OSError as error:
        raise ClusterUnfitError(
            f"{job.folder}/user-job-dir cannot be made: {error.strerror}",
            "Name a folder that every node can write with --job-folder DIR.",
        ) from error

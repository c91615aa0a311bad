"""The real directories of a job on a node, made before its rank starts."""

from __future__ import annotations

import os

from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.job.layout import CACHE, INPUTS, mount_point
from slurm_adapter.node.job_files import cannot_make, make_folder, make_outputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_adapter.contracts.place import Workers
    from slurm_adapter.job.job import Job


def make(job: Job, mounts: Iterable[tuple[str, str]]) -> None:
    """Make what a full view mounts, and in the job's folder what it is mounted on.

    Outputs and the job's own folders are made; inputs, the code and a cache of the user's must
    be there.

    Raises:
        AdapterError: naming the directory.
    """
    outputs = {os.path.abspath(channel.path) for channel in job.outputs}
    make_folder(job.log_folder, job.folder)
    make_outputs(job)
    for real, seen in mounts:
        if seen == CACHE and real != job.cache:
            make_folder(real, job.folder)
        elif real not in outputs and not os.path.exists(real):
            raise ClusterUnfitError(
                f"{os.uname().nodename} has no {real}, which {seen} is to show",
                "It must be there, under the same path, on every node.",
            )
        elif seen == CACHE and not os.path.isdir(real):
            raise BadValueError(f"--cache {real} is a file", "Give a directory.")
        point = mount_point(job, seen)
        if point is not None:
            in_inputs = os.path.dirname(seen) == INPUTS  # whose places the view makes itself
            _make_place(job, point, is_file=os.path.isfile(real) and not in_inputs)
    _link_job_dir(job)


def _make_place(job: Job, point: str, *, is_file: bool) -> None:
    """Make what something is mounted on; an earlier run's of the other kind gives way if empty."""
    try:
        if is_file and os.path.isdir(point):
            os.rmdir(point)
        elif not is_file and os.path.isfile(point) and not os.path.getsize(point):
            os.unlink(point)
    except OSError as error:
        raise ClusterUnfitError(
            f"{point} is left from another run and cannot be taken away: {error.strerror}",
            "Name another folder with --job-folder DIR.",
        ) from error
    if is_file:
        write_text(job, point, "")
    else:
        make_folder(point, job.folder)


def write_text(job: Job, path: str, text: str) -> None:
    """Write a file of the job, with the folder it is in; it is whole or not there."""
    make_folder(os.path.dirname(path), job.folder)
    try:
        if text or not os.path.exists(path):
            own = f"{path}.{os.uname().nodename}.{os.getpid()}"  # of several at once the last wins
            with open(own, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            os.replace(own, path)
    except OSError as error:
        raise cannot_make(path, error) from error


def remove_run(job_folder: str, workers: Workers) -> None:
    """Take away what a job's folder holds for one run alone: caches, packages."""
    folder = workers.run_folder(job_folder)
    if not os.path.isdir(folder):
        return
    import shutil  # 4 ms, seldom needed

    shutil.rmtree(folder, ignore_errors=True)
    _remove_empty(os.path.dirname(folder))


def remove_node(job_folder: str, workers: Workers, index: int) -> None:
    """Take away one node's part of that, and the rest where no other node has any."""
    folder = workers.node_folder(job_folder, index)
    if not os.path.isdir(folder):
        return
    import shutil  # 4 ms, seldom needed

    shutil.rmtree(folder, ignore_errors=True)
    _remove_empty(workers.run_folder(job_folder))
    _remove_empty(os.path.dirname(workers.run_folder(job_folder)))


def _remove_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # others go on in it
        return


def _link_job_dir(job: Job) -> None:
    """Let `user-job-dir` lead to ModelArts' directory of that name: its pages use both paths."""
    try:
        os.symlink("modelarts/user-job-dir", f"{job.folder}/user-job-dir")
    except FileExistsError:
        return
    except OSError as error:
        raise cannot_make(f"{job.folder}/user-job-dir", error) from error

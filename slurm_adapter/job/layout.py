"""Where a job's directories are as its ranks find them: ModelArts' own paths, or the real ones.

Under a full view the paths are those of a ModelArts container, each showing a real directory of
the job. Without one the same variables name the real directories.
"""

from __future__ import annotations

import os.path

from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.job.job import Channel, Job

HOME = "/home/ma-user"
_MOUNT = f"{HOME}/modelarts"
INPUTS = f"{_MOUNT}/inputs"
CACHE = "/cache"
VOLCANO = "/etc/volcano"


@record
class Layout:
    """The directories of a job for ranks with a full view (`full`) or without."""

    job: Job
    full: bool

    @property
    def home(self) -> str:
        """MA_HOME, in which boot commands run: the job's own folder."""
        return HOME if self.full else self.job.folder

    @property
    def mount(self) -> str:
        """MA_MOUNT_PATH."""
        return _MOUNT if self.full else f"{self.job.folder}/modelarts"

    @property
    def job_dir(self) -> str:
        """MA_JOB_DIR: the parent of the code directory."""
        return os.path.dirname(self.code)

    @property
    def code(self) -> str:
        """The code directory."""
        return f"{_MOUNT}/user-job-dir/{_leaf(self.job)}" if self.full else self.job.code

    @property
    def log(self) -> str:
        """MA_LOG_DIR."""
        return f"{_MOUNT}/log" if self.full else self.job.log_folder

    def in_code(self, path: str) -> str:
        """Return where a file of the code directory is found."""
        if not self.full:
            return path
        return os.path.join(self.code, os.path.relpath(path, self.job.code))

    def channel(self, channel: Channel) -> str:
        """Return the local path of an input or output that a script is told."""
        if not self.full:
            return channel.path
        kind = "inputs" if channel in self.job.inputs else "outputs"
        return f"{_MOUNT}/{kind}/{channel.name}_0"

    def why(self, what: str, real: str) -> str:
        """Return the reason for a directory of ModelArts' own, or a real one."""
        return f"{what}: shows {real}" if self.full else what

    def mounts(self, cache: str) -> tuple[tuple[str, str], ...]:
        """Return what a full view shows on a node, as (real path, path of ModelArts'), in order.

        Args:
            cache: the node's own directory for /cache.
        """
        job = self.job
        return (
            (job.folder, HOME),
            (job.log_folder, self.log),
            (job.code, self.code),
            *((os.path.abspath(one.path), self.channel(one)) for one in job.channels),
            (cache, CACHE),
        )


def mount_point(job: Job, path: str) -> str | None:
    """Return the real directory on which a path below `HOME` is mounted; None for others.

    ModelArts' tree lies in the job's folder, so that what a script writes beside the mounts is
    kept there; only the inputs have a directory of their own, with this run's alone.
    """
    if not path.startswith(f"{HOME}/"):
        return None
    folder = os.path.dirname(path) if path.startswith(f"{INPUTS}/") else path
    return f"{job.folder}{folder[len(HOME) :]}"


def _leaf(job: Job) -> str:
    return os.path.basename(job.code) or "code"

"""A copy of the code as it is now, for one job: later edits do not reach it in the queue."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.job.job import Boot
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from slurm_adapter.job.job import Job
    from slurm_adapter.remote.code import Code

FOLDER = "snapshots"
"""Where snapshots lie in a job's folder."""


def planned(job: Job) -> Job:
    """Return the job as it will run from a snapshot that is yet to be taken."""
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid4().hex[:4]}"
    return rebase(job, f"{job.folder}/{FOLDER}/{stamp}/{os.path.basename(job.code)}")


def take(code: str, job: Job) -> tuple[str, ...]:
    """Copy a code directory to where a planned job has it; return warnings.

    What belongs to the code is as with `ssh --sync`: no `.git`, nothing that ignore files leave
    out; work that is not committed is taken along.

    Raises:
        BadValueError: where there is more than can be code, or where it cannot be read.
        ClusterUnfitError: where it cannot be written.
    """
    from slurm_adapter.remote.code import find_code  # pathspec

    jobs = f"{code}/slurm-adapter"  # where jobs have their folders unless told otherwise
    found = find_code(code, (job.folder, jobs))
    check_boot(job, found, "snapshot")
    target = Path(job.code)
    try:
        target.parent.mkdir(mode=0o700, parents=True)
        target.mkdir(mode=0o700)
        _copy(found, target)
    except OSError as error:
        shutil.rmtree(target.parent, ignore_errors=True)
        raise ClusterUnfitError(
            f"no snapshot of {code} can be made in {target}: {error.strerror}",
            "Make room there, name another place with --job-folder, or go without --snapshot.",
        ) from error
    return found.warnings


def check_boot(job: Job, code: Code, what: str) -> None:
    """Refuse a copy of the code without the file that the job starts; `what` the copy is called.

    Raises:
        BadValueError: it is left out.
    """
    if not isinstance(job.program, Boot):
        return
    if not code.holds(os.path.relpath(job.program.path, job.code)):
        raise BadValueError(
            f"the boot file is left out of the {what} by an ignore file of {code.folder}",
            "Take it out of .gitignore, or put !NAME into .slurm-adapter-ignore.",
        )


def folder_of(job: Job) -> str:
    """Return the folder of a job's snapshot, all of which goes with it."""
    return os.path.dirname(job.code)


def _copy(code: Code, target: Path) -> None:
    for entry in code.entries:
        place = target / entry.path
        if entry.kind == "folder":
            place.mkdir(mode=0o700)
        elif entry.kind == "link":
            place.symlink_to(entry.target)
        else:
            shutil.copyfile(code.source(entry), place)
            place.chmod(entry.mode)
            os.utime(place, ns=(entry.modified_ns, entry.modified_ns))
    for entry in reversed(code.entries):  # only now: into some of them nothing could be written
        if entry.kind == "folder":
            (target / entry.path).chmod(entry.mode | 0o700)


def rebase(job: Job, code: str) -> Job:
    """Return a job that is run from a copy of its code directory."""

    def there(path: str) -> str:
        return os.path.join(code, os.path.relpath(path, job.code))

    program = job.program
    if isinstance(program, Boot):
        program = Boot(there(program.path))
    pre_start = None if job.pre_start is None else there(job.pre_start)
    return replace(job, code=code, program=program, pre_start=pre_start)

"""Where sbatch may write a log: its folder must exist before the job is submitted (SB-02)."""

from __future__ import annotations

import os.path
import re

from slurm_adapter.errors import BadValueError

_VARIABLE = re.compile(r"\$(?:\w|\{)")


def read_log_path(option: str, value: str) -> str:
    """Return the path with `~` and variables put in: sbatch itself expands neither.

    Raises:
        BadValueError: where a variable is not set, or the folder part holds a `%` pattern, which
            only exists when it is too late to make the folder.
    """
    path = os.path.expandvars(os.path.expanduser(value))
    if _VARIABLE.search(path):
        raise BadValueError(
            f"the sbatch option {option}={value!r} names a variable that is not set",
            "sbatch expands none itself; write the path out.",
        )
    folder = os.path.dirname(path)
    if "%" in folder.replace("%%", ""):
        raise BadValueError(
            f"the folder of the sbatch option {option}={value!r} holds a % pattern; it must"
            " exist before the job has an id",
            "Put the pattern into the file's name, as in logs/%x-%j.out.",
        )
    return path


def folder_of(path: str, base: str) -> str | None:
    """Return the folder that must exist for a log path; None for /dev/null and its like."""
    folder = os.path.dirname(os.path.join(base, path.replace("%%", "%")))
    return None if folder == "/dev" else folder


def log_file(path: str, base: str, job_id: str) -> str:
    """Return the file that a log path stands for, absolute; empty where only Slurm knows it.

    Args:
        path: as the directive has it; `%j` and `%%` are filled in here.
        base: the directory that a relative path is meant from.
        job_id: the job's number.
    """
    parts = [part.replace("%j", job_id) for part in path.split("%%")]
    if any("%" in part for part in parts):
        return ""
    return os.path.join(base, "%".join(parts))

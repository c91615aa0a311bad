"""Files and folders of a job, found or made before anything starts."""

from __future__ import annotations

import errno
import os

from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.job.job import Boot
from slurm_adapter.job.layout import Layout
from slurm_adapter.paths import absolute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_adapter.job.job import Job, Program

_LONG_PATH = 200
_TRIES = 100
# Whose files are shown as this user's are those of root on some network file systems.
_NOBODY = 65534
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


def working_directory() -> str:
    """Return the working directory, absolute; it may have been taken away meanwhile."""
    try:
        return os.getcwd()  # pathlib costs start-up time here and below
    except OSError as error:
        raise ClusterUnfitError(
            f"the working directory is gone: {error.strerror}", "cd to one that exists."
        ) from error


def make_folder(path: str, own: str | None = None) -> None:
    """Make a folder of the job and those above it, readable by their owner only.

    One that is there is left alone. With `own`, the job's own folder, nothing from there down to
    `path` may belong to another user: who could put things there that this job then trusts.
    """
    try:
        _make_missing(path)
        if own is not None:
            _check_owner(own, path)
    except OSError as error:
        raise cannot_make(f"the folder {path}", error) from error


def cannot_make(what: str, error: OSError) -> ClusterUnfitError:
    """Return why something of a job's folder could not be made, with what to do about it."""
    return ClusterUnfitError(
        f"{os.uname().nodename} cannot make {what}: {error.strerror}",
        "Name a folder that every node can write with --job-folder DIR.",
    )


def _check_owner(own: str, path: str) -> None:
    while path.startswith(own):
        owner = os.stat(path).st_uid
        if owner not in (os.geteuid(), 0, _NOBODY):
            raise BadValueError(
                f"{path} belongs to another user (uid {owner})",
                "Name a folder of your own with --job-folder DIR.",
            )
        path = os.path.dirname(path)


def make_referenced_directories(job: Job, referenced: Iterable[str]) -> None:
    """Make the job's directories that a rank without a full view is told of; no others.

    Args:
        job: the job.
        referenced: a rank's working directory and the values of its variables.

    Raises:
        ClusterUnfitError: naming the directory.
    """
    layout = Layout(job, full=False)
    referenced = set(referenced)
    for folder in (layout.home, layout.mount, layout.log):
        if folder in referenced:
            make_folder(folder, job.folder)
    make_outputs(job)


def make_outputs(job: Job) -> None:
    """Make the directories of a job's outputs; ModelArts has them ready, too."""
    for channel in job.outputs:
        if os.path.exists(channel.path):
            continue
        try:
            os.makedirs(channel.path, exist_ok=True)
        except OSError as error:
            raise ClusterUnfitError(
                f"{os.uname().nodename} cannot make the output {channel.path}: {error.strerror}",
                f"Name another with --output {channel.name}=PATH.",
            ) from error


def _make_missing(path: str) -> None:
    for tries_left in reversed(range(_TRIES)):
        try:
            for folder in _missing_folders(path):
                _make_one(folder)
        except (FileNotFoundError, FileExistsError):
            # The end of another node's run may have taken an empty one away meanwhile.
            if not tries_left:
                raise
        else:
            return


def _missing_folders(path: str) -> list[str]:
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.insert(0, path)
        path = os.path.dirname(path)
    return missing


def _make_one(folder: str) -> None:
    try:
        os.mkdir(folder, mode=0o700)
    except FileExistsError:
        # Another node was faster; a file of that name stays an error.
        if not os.path.isdir(folder):
            raise


def find_program(name: str, environment: Mapping[str, str], folder: str) -> str:
    """Return the path of a program as the rank's own PATH names it, or as given from `folder`."""
    where = os.path.join(folder, name) if "/" in name else name
    path = environment.get("PATH", os.defpath)
    found = next((file for file in _candidates(where, path) if _is_program(file)), None)
    if found is None:
        raise ClusterUnfitError(
            f"{name} is not a program on this node"
            + (f" (PATH={path})" if "/" not in name and len(path) < _LONG_PATH else ""),
            "Activate the environment that has it before submitting, or name the interpreter"
            " with --python /path/to/python."
            if name.startswith("python")
            else "Give its full path.",
        )
    return found


def _candidates(name: str, path: str) -> list[str]:
    # As shutil.which does it, whose import alone would cost a rank 4 ms.
    if "/" in name:
        return [name]
    return [os.path.join(folder or ".", name) for folder in path.split(":")]


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def cannot_run(program: str, error: OSError) -> ClusterUnfitError:
    """Return why a program could not be started, with what to do about it."""
    found = f"{os.uname().nodename} cannot run {program}: {error.strerror}"
    if error.errno in _LIMITS:
        remedy = "A limit of that machine is reached: see ulimit -n, ulimit -u and its memory."
    elif error.errno == errno.E2BIG:
        remedy = "Arguments and variables together are too long: put some into a file."
    else:
        remedy = "Check the file, its first line and its permissions there."
    return ClusterUnfitError(found, remedy)


def find_pre_start(program: Program, contract: str) -> str | None:
    """Return the script that ModelArts reads before a boot file, where it stands beside it."""
    if contract != "modelarts" or not isinstance(program, Boot):
        return None
    path = os.path.join(os.path.dirname(program.path), "ma-pre-start.sh")
    return path if os.path.isfile(path) else None


def check_requirements(job: Job) -> None:
    """Raise `BadValueError` where packages are to be installed and no file lists them."""
    if job.install_requirements and not os.path.isfile(job.requirements):
        raise BadValueError(
            f"--install-requirements: there is no {job.requirements}",
            "Put the file into the code directory, or leave the option out.",
        )


def locate_code(code: str, base: str) -> str:
    """Return the absolute path of a code directory given relative to `base`; it must be there."""
    path = absolute(code, base)
    if os.path.isdir(path):
        return path
    if os.path.exists(path):
        raise BadValueError(
            f"the code directory {path} is a file",
            f"Give its directory: --code {os.path.dirname(path)}",
        )
    raise BadValueError(
        f"there is no code directory {path}", "Give an existing directory with --code DIR."
    )


def locate_boot(boot: str, code: str | None, base: str) -> tuple[str, str]:
    """Return (boot file, code directory), both absolute.

    The boot file is looked for in the code directory, as on ModelArts, then relative to `base`;
    without a code directory its own directory is the code directory.

    Raises:
        BadValueError: where the file is not there, is a directory, or lies outside the code.
    """
    folders = [base] if code is None else [code, base]
    for folder in folders:
        path = absolute(boot, folder)
        if os.path.isfile(path):
            return path, _code_of(path, code)
        if os.path.isdir(path):
            raise BadValueError(
                f"{path} is a directory, not a boot file", f"Name the file in it: {boot}/train.py"
            )
    places = " or in ".join(dict.fromkeys(folders))
    raise BadValueError(
        f"there is no boot file {boot!r} in {places}",
        "Check the name, or give the directory that holds it with --code DIR.",
    )


def _code_of(boot: str, code: str | None) -> str:
    if code is None:
        return os.path.dirname(boot)
    if os.path.commonpath((boot, code)) != code:
        raise BadValueError(
            f"the boot file {boot} lies outside the code directory {code}",
            "Give a directory that holds it with --code DIR.",
        )
    return code

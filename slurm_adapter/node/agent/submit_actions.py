"""What a submit host does, called on the machine itself: by the head, or by an agent of its.

Programs are run, files read and written by their paths' bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress

from slurm_adapter.errors import ClusterUnfitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MOST_BYTES = 1 << 20
"""How much of one file is read at a time."""
_MOST_IN_ALL = 4 << 20
_SLICE_S = 0.25
_SHELL_S = 60.0
_MARK = b"\nslurm-adapter-environment\n"
_LOGIN_SHELL = ("bash", "-l", "-c", 'printf "\\nslurm-adapter-environment\\n"; exec env -0')


def has(program: str, environment: Mapping[str, str]) -> bool:
    """Say whether a program is found in an environment's PATH."""
    return shutil.which(program, path=environment.get("PATH", os.defpath)) is not None


def changed(
    environment: Mapping[str, str], more: Mapping[str, str], without: Iterable[str]
) -> dict[str, str]:
    """Return an environment without some variables, and with others."""
    left_out = set(without)
    kept = {name: value for name, value in environment.items() if name not in left_out}
    return {**kept, **more}


def run(
    words: Sequence[bytes | str],
    environment: Mapping[str, str],
    data: bytes | None,
    limit_s: float | None,
    alive: Callable[[], None],
) -> tuple[int, bytes, bytes]:
    """Run a program to its end; return its exit status and what it wrote.

    Raises:
        FileNotFoundError: there is no such program that this user may run.
        ClusterUnfitError: it cannot be started.
        TimeoutError: it took longer than `limit_s`, and was killed.
    """
    try:
        process = subprocess.Popen(
            words,
            env=dict(environment),
            stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (FileNotFoundError, PermissionError):  # one that this user may not run is none
        raise FileNotFoundError(os.fsdecode(words[0])) from None
    except OSError as refused:
        program = os.fsdecode(words[0])
        why = f"{program} cannot be started: {refused.strerror}"
        raise ClusterUnfitError(why, f"See `type {program}` there.") from refused
    deadline = None if limit_s is None else time.monotonic() + limit_s
    with process:
        try:
            while True:
                try:
                    out, error = process.communicate(data, timeout=_SLICE_S)
                except subprocess.TimeoutExpired:
                    if deadline is not None and time.monotonic() > deadline:
                        raise TimeoutError from None
                    alive()
                else:
                    return process.returncode, out, error
        except BaseException:
            process.kill()
            raise


def read_all(places: Iterable[tuple[bytes, int]]) -> list[tuple[int, bytes]]:
    """Return of each file what stands behind an offset, with the offset it really begins at.

    A file that is not there, or cannot be read just now, has nothing new; one that has become
    shorter was written anew, and begins at 0. At most `MOST_BYTES` of each: there may be more.
    """
    pieces, left = [], _MOST_IN_ALL
    for path, offset in places:
        try:
            piece = _read_from(path, offset, min(left, MOST_BYTES))
        except OSError:
            piece = offset, b""
        left -= len(piece[1])
        pieces.append(piece)
    return pieces


def _read_from(path: bytes, offset: int, most: int) -> tuple[int, bytes]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(file).st_size < offset:
            offset = 0
        return offset, os.pread(file, most, offset)
    finally:
        os.close(file)


def write(path: bytes, data: bytes) -> None:
    """Write a file, readable by its owner only; a reader never sees half of it."""
    folder, name = os.path.split(path)
    partial = folder + b"/." + name + b"." + str(os.getpid()).encode()
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            os.unlink(partial)
        raise


def login_environment() -> dict[str, str]:
    """Return what a login shell has set in the end, whatever it prints; empty where none runs.

    Sites put Slurm's commands into its PATH, often with a module that sets more than that.
    """
    try:
        _, out, _ = run(_LOGIN_SHELL, os.environ, None, _SHELL_S, lambda: None)
    except OSError:
        return {}
    texts = out.rpartition(_MARK)[2].split(b"\0")
    pairs = (os.fsdecode(text).partition("=") for text in texts if b"=" in text)
    return {name: value for name, _, value in pairs}

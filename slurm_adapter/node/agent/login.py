"""A place where Slurm's commands are run and a job's files lie: the calls, and their answering end.

Sent to a login node, it answers the head's requests there; where the head's own machine is the
place, the head calls the same functions.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.agent.requests import Pulse, as_answer, begin, converse
from slurm_adapter.node.system.files import as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

MOST_BYTES = 1 << 20
"""How much of one file is read at a time."""
_MOST_IN_ALL = 4 << 20
_IDLE_S = 12 * 3600  # code is copied meanwhile; nothing is held that others wait for
_SLICE_S = 0.5
_SHELL_S = 60.0
_MARK = b"\nslurm-adapter-environment\n"
_LOGIN_SHELL = ("bash", "-l", "-c", 'printf "\\nslurm-adapter-environment\\n"; exec env -0')


def main(token: str) -> int:
    """Answer requests until the input ends."""
    source, sink = begin(token)
    answering = _Answering(Pulse(sink))
    return converse(source, sink, answering.answer)


class _Answering:
    def __init__(self, alive: Callable[[], None]) -> None:
        self._alive = alive
        self._environment: Mapping[str, str] = os.environ

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request; what cannot be done ends nothing."""
        what = request.pop("do")
        try:
            answer: dict[str, Any] = getattr(self, f"_{what}")(**request)
        except (ClusterUnfitError, OSError) as error:
            return {"failed": as_answer(error)}
        finally:
            signal.alarm(_IDLE_S)
        return answer

    def _begin(self) -> dict[str, Any]:
        found = has("sbatch", os.environ)
        if not found:
            of_login = login_environment()
            if has("sbatch", of_login):
                self._environment = of_login
        home = os.path.expanduser("~")
        return {"home": home, "python": sys.executable}

    def _has(self, program: str) -> dict[str, Any]:
        return {"found": has(program, self._environment)}

    def _run(
        self,
        words: list[str],
        more: dict[str, str],
        without: list[str],
        data: str | None,
        limit_s: float | None,
    ) -> dict[str, Any]:
        values = {name: _native(value) for name, value in more.items()}
        environment = changed(self._environment, values, without)
        given = None if data is None else as_bytes(data)
        try:
            done = run(list(map(_native, words)), environment, given, limit_s, self._alive)
        except FileNotFoundError:
            return {"lacks": True}
        except TimeoutError:
            return {"late": True}
        return {"status": done[0], "out": _text(done[1]), "err": _text(done[2])}

    def _make(self, folder: str) -> dict[str, Any]:
        os.makedirs(as_bytes(folder), 0o700, exist_ok=True)
        return {}

    def _write(self, path: str, data: str) -> dict[str, Any]:
        write(as_bytes(path), data.encode("latin-1"))
        return {}

    def _read(self, places: list[tuple[str, int]]) -> dict[str, Any]:
        pieces = read_all((as_bytes(path), offset) for path, offset in places)
        return {"pieces": [(offset, _text(data)) for offset, data in pieces]}

    def _exists(self, path: str) -> dict[str, Any]:
        return {"found": os.path.exists(as_bytes(path))}

    def _remove(self, path: str) -> dict[str, Any]:
        shutil.rmtree(as_bytes(path), ignore_errors=True)
        return {}


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
    words: list[str],
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
        raise FileNotFoundError(words[0]) from None
    except OSError as refused:
        why = f"{words[0]} cannot be started: {refused.strerror}"
        raise ClusterUnfitError(why, f"See `type {words[0]}` there.") from refused
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
        try:  # noqa: SIM105 - contextlib would have to be sent along
            os.unlink(partial)
        except OSError:
            pass
        raise


def login_environment() -> dict[str, str]:
    """Return what a login shell has set in the end, whatever it prints; empty where none runs.

    Sites put Slurm's commands into its PATH, often with a module that sets more than that.
    """
    try:
        _, out, _ = run(list(_LOGIN_SHELL), os.environ, None, _SHELL_S, lambda: None)
    except OSError:
        return {}
    texts = out.rpartition(_MARK)[2].split(b"\0")
    pairs = (os.fsdecode(text).partition("=") for text in texts if b"=" in text)
    return {name: value for name, _, value in pairs}


def _native(text: str) -> str:
    """Return text from the wire as it has to be here to become the same bytes again."""
    return os.fsdecode(as_bytes(text))


def _text(data: bytes) -> str:
    """Return bytes as text of as many characters, as JSON takes it."""
    return data.decode("latin-1")

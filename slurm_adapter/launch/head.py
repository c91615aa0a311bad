"""A head: a process of our own that starts a job and watches it, begun from this one.

By a new interpreter, not by a fork: this process may be anybody's, with threads of its own. Its
request goes to it over a socket, and it answers with messages, a line of JSON each; when this
process ends, the socket tells it.
"""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from slurm_adapter import errors
from slurm_adapter.errors import AdapterError, exit_status
from slurm_adapter.launch.records import End

if TYPE_CHECKING:
    from slurm_adapter.launch.observer import Observer

# With the same modules as this process, wherever they come from; -I keeps others away.
_PROGRAM = """\
import json, socket, sys
try:
    channel = socket.socket(fileno=int(sys.argv[1]))
    sys.path[:] = json.loads(channel.makefile("rb", buffering=0).readline())
    from slurm_adapter.launch.head_main import main
    sys.exit(main(channel))
except KeyboardInterrupt:
    sys.exit(130)
"""
Kind = Literal["ssh", "local"]


class HeadEndedError(AdapterError):
    """A head ended before its job began, and has said why, or was told to by a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the process that was to start the job ended with status {status}")
        self.exit_status = status


class Head:
    """A process that has been told what to start."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self._process, self._channel = process, channel
        self._messages = channel.makefile("rb")
        self._observer: Observer
        self.end: End | None = None
        """How the job ended, once that was told."""

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def listen(self, observer: Observer) -> None:
        """Name who is told what it says."""
        self._observer = observer

    def begun(self) -> str:
        """Wait until all ranks run; return the job's id, or of one here how many ranks it has.

        Raises:
            AdapterError: the job could not be started.
        """
        try:
            return self._until_begun()
        except AdapterError:
            self.leave()
            raise
        except BaseException as error:
            # Of Ctrl-C at the terminal the head of a job over SSH knows itself.
            if not isinstance(error, KeyboardInterrupt):
                self._process.terminate()
            self.let_end()
            with suppress(AdapterError):
                self.attend()
            self.leave()
            raise

    def _until_begun(self) -> str:
        for message in self._messages:
            word, *values = json.loads(message)
            if word == "begun":
                return str(values[0])
            self._take(word, values)
        raise HeadEndedError(self._status())

    def attend(self) -> int:
        """Pass on what it says until its job has ended; return the exit status."""
        for message in self._messages:
            word, *values = json.loads(message)
            self._take(word, values)
        return self._status()

    def let_end(self) -> None:
        """Have it end its job in order."""
        with suppress(OSError):  # it is gone by itself
            self._channel.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Let go of it; what stands between a head that goes on and us ends now."""
        self._messages.close()
        self._channel.close()
        self._process.wait()

    def _status(self) -> int:
        return exit_status(self._process.wait())

    def _take(self, word: str, values: list[Any]) -> None:
        if word == "begun":  # whoever waited for that has given up
            return
        if word == "error":
            raise _error(*values)
        if word == "ended":
            self.end = End(*values)
            self._observer.ended(self.end)
            return
        tell = {
            "say": self._observer.say,
            "warn": self._observer.warn,
            "note": self._observer.note,
            "detail": self._observer.detail,
        }[word]
        tell(*values)


def start_head(kind: Kind, request: object, observer: Observer) -> Head:
    """Start a head for a job.

    Args:
        kind: what it is to do with the request.
        request: see `head_main`.
        observer: told what it says.

    Raises:
        ClusterUnfitError: where there may be no process more.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                # Over SSH it may have to ask at the terminal, whose keys are for it, too.
                stdin=None if kind == "ssh" else subprocess.DEVNULL,
                start_new_session=kind == "local",
            )
        except OSError as error:
            ours.close()
            raise errors.ClusterUnfitError(
                f"no process can be started here: {error.strerror}",
                "A limit of this machine is reached: see ulimit -u and its memory.",
            ) from error
    body = pickle.dumps((kind, request))
    ours.sendall(
        json.dumps(list(map(str, sys.path))).encode() + b"\n" + len(body).to_bytes(8, "big") + body
    )
    head = Head(process, ours)
    head.listen(observer)
    return head


def _error(name: str, status: int, found: str, remedy: str) -> AdapterError:
    """Return an error of a head as it was there."""
    kind = getattr(errors, name, AdapterError)
    error: AdapterError = kind(found, remedy)
    error.exit_status = status
    return error

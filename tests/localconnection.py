"""Connections to this very machine: commands as children, behind the same port as SSH."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from slurm_adapter.cluster import Node
from slurm_adapter.remote.transport import run
from slurm_adapter.remote.transport.port import (
    RUN_LIMIT_S,
    Answer,
    ConnectionLostError,
    NoAnswerError,
)

# Commands that ran on when their channel was closed: reaped when the next one starts.
_let_go: list[subprocess.Popen[bytes]] = []


def _reap() -> None:
    for process in tuple(_let_go):
        if process.poll() is not None:
            with contextlib.suppress(ValueError):  # another thread was faster
                _let_go.remove(process)


def end_let_go() -> None:
    """End the commands that run on though their channel was closed, and wait for each."""
    while _let_go:
        process = _let_go.pop()
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class LocalConnection:
    """This machine as a node; commands start in `folder` (default: home), as sessions."""

    def __init__(
        self, node: Node, folder: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.node = node
        self._folder = Path.home() if folder is None else folder
        self._environment = environment
        self._open = True

    def start(self, command: str) -> "LocalChannel":
        """See `Connection.start`; the shell is `/bin/sh`."""
        if not self._open:
            raise ConnectionLostError(f"{self.node.name}: the connection was closed")
        _reap()
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise NoAnswerError(f"{self.node.name}: cannot start a shell: {error}") from error
        return LocalChannel(process)

    def run(self, command: str, data: bytes = b"", limit_s: float = RUN_LIMIT_S) -> Answer:
        """See `Connection.run`."""
        return run.run(self, command, data, limit_s)

    def alive(self) -> bool:
        """See `Connection.alive`."""
        return self._open

    def close(self) -> None:
        """See `Connection.close`; commands run on."""
        self._open = False


class LocalChannel:
    """A child with pipes for its streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        streams = (process.stdin, process.stdout, process.stderr)
        if None in streams:  # pragma: no cover - they were asked for as pipes
            raise ValueError("a channel needs a pipe for every stream")
        self._input, self._output, self._error = (stream for stream in streams if stream)
        for stream in (self._input, self._output, self._error):
            os.set_blocking(stream.fileno(), False)
        self._end = os.pidfd_open(process.pid)
        self._events = select.epoll()
        self._watched: set[int] = set()
        for descriptor in (self._output.fileno(), self._error.fileno(), self._end):
            self._events.register(descriptor, select.EPOLLIN)
            self._watched.add(descriptor)

    def fileno(self) -> int:
        """See `CommandChannel.fileno`."""
        return self._events.fileno()

    def read(self, limit: int) -> bytes | None:
        """See `CommandChannel.read`."""
        return self._read(self._output, limit)

    def read_error(self, limit: int) -> bytes | None:
        """See `CommandChannel.read_error`."""
        return self._read(self._error, limit)

    def _read(self, stream: IO[bytes], limit: int) -> bytes | None:
        if stream.closed:
            return b""
        try:
            data = os.read(stream.fileno(), limit)
        except BlockingIOError:
            return None
        if not data:
            self._ignore(stream.fileno())
            stream.close()
        return data

    def write(self, data: bytes) -> int:
        """See `CommandChannel.write`."""
        if self._input.closed:
            return len(data)
        try:
            taken = os.write(self._input.fileno(), data)
        except BlockingIOError:
            # Only while it is full: a pipe with room would be ready all the time.
            self._watch(self._input.fileno(), select.EPOLLOUT)
            return 0
        except BrokenPipeError:
            self.close_input()
            return len(data)
        self._ignore(self._input.fileno())
        return taken

    def close_input(self) -> None:
        """See `CommandChannel.close_input`."""
        if not self._input.closed:
            self._ignore(self._input.fileno())
            self._input.close()

    def status(self) -> int | None:
        """See `CommandChannel.status`."""
        code = self._process.poll()
        if code is None:
            return None
        self._ignore(self._end)
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """See `CommandChannel.close`."""
        if self._events.closed:
            return
        self._events.close()
        os.close(self._end)
        for stream in (self._input, self._output, self._error):
            stream.close()
        if self._process.poll() is None:
            _let_go.append(self._process)

    def _watch(self, descriptor: int, what: int) -> None:
        if descriptor not in self._watched and not self._events.closed:
            self._events.register(descriptor, what)
            self._watched.add(descriptor)

    def _ignore(self, descriptor: int) -> None:
        if descriptor in self._watched and not self._events.closed:
            with contextlib.suppress(FileNotFoundError):
                self._events.unregister(descriptor)
            self._watched.discard(descriptor)

"""rsync over a connection of ours, for large files of which a host has an older version.

It sends only what differs within them. Whether it succeeded is for the caller to find out from
the files: one that it did not bring up to date is sent whole.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.code import rsync_shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from slurm_adapter.remote.transport.port import CommandChannel, Connection

_CHUNK = 1 << 16
_SLICE_S = 0.25
_SOON_S = 5.0
_LONGEST_COMMAND = 1 << 16


def rsync(
    connection: Connection,
    folder: str,
    paths: Iterable[str],
    destination: str,
    temporary: str,
    *,
    patience_s: float,
    wanted: Callable[[], bool],
) -> int:
    """Let rsync bring files of a host up to date as far as it can; return the bytes sent.

    Args:
        connection: to the host.
        folder: the directory of the files here.
        paths: the files, from there; links are followed.
        destination: the directory there.
        temporary: a directory there for files that are not whole yet.
        patience_s: how long nothing may pass before it is broken off.
        wanted: says whether to go on.
    """
    ours, theirs = socket.socketpair()
    with ExitStack() as stack:
        stack.enter_context(ours)
        listed = stack.enter_context(tempfile.TemporaryFile())
        listed.write(b"\0".join(os.fsencode(path) for path in paths))
        listed.seek(0)
        with theirs:
            words = _words(folder, destination, temporary, theirs.fileno())
            process = subprocess.Popen(
                words,
                stdin=listed,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the head's affair
            )
        stack.callback(_end, process)
        ours.settimeout(_SOON_S)
        try:
            command, descriptors, _, _ = socket.recv_fds(ours, _LONGEST_COMMAND, 2)
        except OSError:
            return 0
        if not descriptors:  # rsync ended before it asked for anything
            return 0
        with _owned(descriptors) as (source, sink):
            channel = stack.enter_context(
                closing(connection.start(shell_words(command.decode().split("\0"))))
            )
            pump = _Pump(channel, source, sink)
            status = pump.run(lambda: wanted() and process.poll() is None, patience_s)
        with suppress(OSError):  # rsync has ended, and the relay with it
            ours.sendall(bytes([status]))
        return pump.sent


@contextmanager
def _owned(descriptors: Sequence[int]) -> Iterator[Sequence[int]]:
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(_SOON_S)
        return
    process.kill()
    process.wait()


def installed() -> bool:
    """Say whether rsync is installed here."""
    return shutil.which("rsync") is not None


def _words(folder: str, destination: str, temporary: str, descriptor: int) -> list[str]:
    program = (sys.executable, "-I", "-S", str(Path(rsync_shell.__file__)), str(descriptor))
    # rsync's own way of quoting within -e.
    connect = " ".join("'" + word.replace("'", "''") + "'" for word in program)
    options = ["--ignore-times", "--copy-links", "--perms", "--times", "--files-from=-", "--from0"]
    # With --secluded-args no path stands in the command that is run there.
    options += ["--no-implied-dirs", "-s", f"--temp-dir={temporary}", "-e", connect]
    return ["rsync", *options, f"{folder}/", f"host:{destination}/"]


class _Pump:
    """Carries bytes between rsync here, behind two descriptors, and rsync there."""

    def __init__(self, channel: CommandChannel, source: int, sink: int) -> None:
        self.sent = 0
        self._channel = channel
        self._source: int | None = source
        self._sink = sink
        self._up = b""
        self._down = bytearray()
        for descriptor in (source, sink):
            os.set_blocking(descriptor, False)

    def run(self, wanted: Callable[[], bool], patience_s: float) -> int:
        """Carry until the other side has ended; return its status, 255 where it did not end."""
        moved = time.monotonic()
        while wanted() and time.monotonic() - moved < patience_s:
            up, down = self._carry_up(), self._carry_down()
            if down is None:
                return self._channel.status() or 0
            if up or down:
                moved = time.monotonic()
            else:
                self._wait()
        return 255

    def _carry_up(self) -> bool:
        if self._up:
            taken = self._channel.write(self._up)
            self._up = self._up[taken:]
            self.sent += taken
            return taken > 0
        if self._source is None:
            return False
        try:
            self._up = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return False
        if not self._up:
            self._source = None
            self._channel.close_input()
        return True

    def _carry_down(self) -> bool | None:
        """Carry what the other side says; None: it has ended, and all is carried."""
        data = self._channel.read(_CHUNK)
        self._channel.read_error(_CHUNK)
        self._channel.status()  # its descriptor is quiet only once everything was asked
        self._down += data or b""
        if not self._down:
            return None if data == b"" else False
        try:
            del self._down[: os.write(self._sink, self._down)]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return None
        return True

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        if self._source is not None and not self._up:
            poll.register(self._source, select.POLLIN)
        if self._down:
            poll.register(self._sink, select.POLLOUT)
        poll.poll(_SLICE_S * 1000)

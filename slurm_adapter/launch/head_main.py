"""What runs in a head (`head` starts it): a job of one kind, and the messages about it.

Two processes. The first one is its starter's child: it ends with the job, or once a detached job
has begun; it passes on that the starter is gone. The second one does everything, and is the head
that a record names.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import traceback
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from slurm_adapter.errors import AdapterError, ClusterUnfitError, signal_status
from slurm_adapter.launch.observer import Observer
from slurm_adapter.node.system import processes
from slurm_adapter.output import complain, say

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from slurm_adapter.launch.local_job import HeadRequest
    from slurm_adapter.launch.records import End
    from slurm_adapter.launch.request import SshRequest
    from slurm_adapter.launch.store import SshEntry
    from slurm_adapter.plan import Plan

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


def main(channel: socket.socket) -> int:
    """Do what the starter asks for; return the exit status."""
    kind, request = pickle.loads(_request(channel))  # noqa: S301 - our own starter's
    begun, tell = os.pipe()
    die = processes.dying_with_parent(signal.SIGTERM)
    child = os.fork()
    if child == 0:
        os.close(begun)
        if kind == "local":
            die()
            _end_with(lambda: _local(request, channel))
        _end_with(lambda: _detached(request, channel, tell))
    os.close(tell)
    for number in _PASSED_ON:  # whoever sends one knows only this process
        signal.signal(number, lambda sent, _: _send(child, sent))
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal has sent it to both
    if kind == "local":
        return _attend(channel, begun, child, request)
    return 0 if os.read(begun, 1) else processes.wait_for(child)


def _request(channel: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(channel, 8), "big")
    return _exactly(channel, size)


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise SystemExit(1)
        data += piece
    return data


def _attend(channel: socket.socket, over: int, child: int, request: HeadRequest) -> int:
    """Stay until a local job has ended, and end it when its starter wants that or is gone."""
    ready, _, _ = select.select([channel.fileno(), over], [], [])
    if over not in ready:
        _send(child, signal.SIGTERM)
    status = processes.wait_for(child)
    if not _is_there(channel):
        shutil.rmtree(request.folder, ignore_errors=True)
    return status


def _is_there(channel: socket.socket) -> bool:
    """Say whether the starter still holds the other end."""
    held = select.poll()
    held.register(channel, 0)
    return not any(what & select.POLLHUP for _, what in held.poll(0))


def _send(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _end_with(command: Callable[[], int]) -> NoReturn:
    """End this process with a command's status, whatever it raises."""
    status = 1
    try:
        status = command()
    except SystemExit as end:
        status = int(end.code or 0)
    except KeyboardInterrupt:  # while modules were being loaded
        status = signal_status(signal.SIGINT)
    except BaseException:  # noqa: BLE001 - nobody above it would print it
        traceback.print_exc()
    finally:
        os._exit(status)


class _Teller(Observer):
    """Passes on what is told to the starter; to the head's own log once that has gone."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel: socket.socket | None = channel

    def send(self, word: str, *values: object) -> None:
        """Send a message, should somebody be there to read it."""
        if self._channel is not None:
            with suppress(OSError):
                self._channel.sendall(json.dumps([word, *values]).encode() + b"\n")
        elif word in ("say", "warn", "note"):
            text = f"warning: {values[0]}" if word == "warn" else values[0]
            say(str(text))

    def refused(self, error: AdapterError) -> int:
        """Pass on an error; return the exit status."""
        if self._channel is None:
            return complain(error)
        self.send("error", type(error).__name__, error.exit_status, error.found, error.remedy)
        return error.exit_status

    def go_on_alone(self) -> None:
        """Let the starter go."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def say(self, text: str) -> None:
        """See `Observer.say`."""
        self.send("say", text)

    def warn(self, text: str) -> None:
        """See `Observer.warn`."""
        self.send("warn", text)

    def note(self, text: str) -> None:
        """See `Observer.note`."""
        self.send("note", text)

    def detail(self, text: str) -> None:
        """See `Observer.detail`."""
        self.send("detail", text)

    def ended(self, end: End) -> None:
        """See `Observer.ended`."""
        self.send("ended", *end)


def _local(request: HeadRequest, channel: socket.socket) -> int:
    """Run a job on this machine."""
    from slurm_adapter.launch.local_job import run_in_head

    teller = _LocalTeller(channel)
    try:
        return run_in_head(request, teller, teller.refused)
    except AdapterError as error:
        return teller.refused(error)


class _LocalTeller(_Teller):
    """The same for a job here, which begins when its ranks run."""

    @contextmanager
    def running(self, plan: Plan, job_id: str) -> Iterator[None]:
        """See `Observer.running`."""
        del job_id
        self.send("begun", plan.world_size)
        yield


def _detached(request: SshRequest, channel: socket.socket, tell: int) -> int:
    """Start a job on hosts, and watch it from the background until it ends."""
    from slurm_adapter.launch.exit_signals import exiting_when_stopped
    from slurm_adapter.launch.ssh.run import SshRun
    from slurm_adapter.node.ranks.supervise import STOP_DETACHED

    processes.raise_descriptor_limit()
    teller = _Teller(channel)

    def begun(entry: SshEntry) -> None:
        if select.select([channel.fileno()], [], [], 0)[0]:  # its starter is gone, or gives up
            raise SystemExit(signal_status(signal.SIGTERM))
        log = os.open(entry.head_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        os.setsid()
        for descriptor, number in ((null, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, number)
        teller.send("begun", entry.job_id)
        teller.go_on_alone()
        os.write(tell, b"!")
        os.close(tell)

    try:
        with exiting_when_stopped(STOP_DETACHED):
            return SshRun(request, teller, heed_signals=True).run(begun)
    except AdapterError as error:
        return teller.refused(error)
    except OSError as error:
        return teller.refused(_unforeseen(error))


def _unforeseen(error: OSError) -> ClusterUnfitError:
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return ClusterUnfitError(
        f"this process cannot go on: {where}{error.strerror or error}",
        "Make room there, or permit it; slurm-adapter jobs tells whether the job runs by now.",
    )

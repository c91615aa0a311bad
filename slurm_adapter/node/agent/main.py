"""The node's side of a job over SSH: look, be told the plan, start the ranks, end them all.

Everything comes over stdin and goes over stdout, as `frames` has it. The agent outlives nothing:
it ends its ranks when it is told to, when stdin ends, and when the head is silent for too long.
"""

from __future__ import annotations

import gc
import os
import select

from slurm_adapter.errors import AdapterError
from slurm_adapter.node.agent import prepare
from slurm_adapter.node.protocol import framing
from slurm_adapter.node.protocol.framing import FrameReader, frame
from slurm_adapter.node.protocol.records import unpack, unpack_plan
from slurm_adapter.node.system.namespaces import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket
    from typing import Any

    from slurm_adapter.node.agent.prepare import Prepared

_READ_BYTES = 1 << 16
_FIRST_WORD_S = 3600.0
"""Until the head asks something: it may still be waiting for a password, or copying code."""


class Line:
    """The messages of the head, one after the other, while nothing else has to be watched."""

    def __init__(self) -> None:
        self.reader = FrameReader()
        """Whoever listens after this goes on with it: it may hold half a message."""
        self._waiting: list[tuple[bytes, bytes]] = []

    def next(self, limit_s: float) -> tuple[bytes, bytes] | None:
        """Return the next message other than a heartbeat; None where there will be no more.

        `limit_s` are seconds of silence after which the head is taken for lost.
        """
        while True:
            while self._waiting:
                kind, body = self._waiting.pop(0)
                if kind != framing.BEAT:
                    return kind, body
            if not select.select([0], [], [], limit_s)[0]:
                return None
            data = os.read(0, _READ_BYTES)
            if not data:
                return None
            self._waiting += self.reader.feed(data)


def main(arguments: list[str]) -> int:
    """Serve one head; return the exit status of this process."""
    del arguments  # they are there for whoever reads a list of processes
    line = Line()
    try:
        return _serve(line)
    except AdapterError as error:
        say(framing.UNFIT, *refusal(error))
        return error.exit_status


def _serve(line: Line) -> int:
    asked = line.next(_FIRST_WORD_S)
    if asked is None:
        return 0
    request: dict[str, Any] = unpack(asked[1])
    if asked[0] == framing.FOLLOW:
        from slurm_adapter.node.agent.follow import follow  # a run's start needs it not

        gc.enable()
        return follow(request, line.reader)
    listener = _listener(request)
    for kind, texts in prepare.look(request, listener):
        say(kind, *texts)
    told = line.next(float(request["link_s"]))
    while told is not None and told[0] == framing.TRY:
        from slurm_adapter.node.agent.connectivity import try_all  # only between machines

        say(framing.TRIED, *try_all(unpack(told[1])))
        told = line.next(float(request["link_s"]))
    if listener is not None:
        listener.close()
    if told is None or told[0] != framing.PLAN:
        return 0
    plan = unpack_plan(told[1][1:])
    prepared = prepare.prepare(request, plan, only_try=told[1][:1] == framing.ONLY_TRY)
    if prepared.folder is not None:
        prepared.folder.make()
    try:
        return _nested(prepared, request, line.reader)
    finally:
        prepared.clean_up()


def _listener(request: dict[str, Any]) -> socket | None:
    """Return what the other nodes may connect to, None where the job has no others."""
    if not prepare.has_network(request):
        return None
    from slurm_adapter.node.agent.connectivity import listen  # only between machines

    return listen()


def _nested(prepared: Prepared, request: dict[str, Any], reader: FrameReader) -> int:
    """Run the ranks in a PID namespace where that is allowed, else as they are."""
    from slurm_adapter.node.agent.serve import serve
    from slurm_adapter.node.system.pid_namespace import run_in_pid_namespace  # not needed to look

    def inner() -> int:
        return serve(prepared, request, reader)

    try:
        return run_in_pid_namespace(inner)
    except RefusedError:
        pass
    mark = prepare.mark(request)
    try:
        return serve(prepared, request, reader)
    finally:
        if mark is not None:
            mark.take_away()


def refusal(error: AdapterError) -> tuple[str, str, str]:
    """Return an error as the texts of its message."""
    return str(error.exit_status), error.found, error.remedy


def say(kind: bytes, *texts: str) -> None:
    """Send a message made of texts, at once."""
    data = frame(kind, "\0".join(texts).encode("utf-8", "surrogateescape"))
    while data:
        data = data[os.write(1, data) :]

"""The far end of everything: one agent that does what its head asks for, and then ends.

What it may be asked for is known here, how that is done is not: ranks of a job, which it does not
outlive; a detached run to be followed; a copy of the code; what a login node has to do.
"""

from __future__ import annotations

import gc

from slurm_adapter.errors import AdapterError
from slurm_adapter.node.agent import prepare
from slurm_adapter.node.agent.head_channel import HeadChannel, HeadGoneError, unfit
from slurm_adapter.node.protocol.messages import (
    Data,
    Follow,
    Look,
    TakePlan,
    Tried,
    TryConnections,
)
from slurm_adapter.node.protocol.records import unpack_plan
from slurm_adapter.node.system.namespaces import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket
    from typing import Protocol

    from slurm_adapter.node.agent.prepare import Prepared
    from slurm_adapter.node.protocol.messages import Request

    class Answering(Protocol):
        """What answers requests of one kind."""

        @property
        def patience_s(self) -> float:
            """Seconds of silence after which the head is taken for lost."""

        def answer(self, request: Request) -> None:
            """Do what is asked for, and tell the head."""

        def close(self) -> None:
            """Leave nothing behind that is nobody's any more."""


_FIRST_WORD_S = 3600.0
"""Until the head asks something: it may still be waiting for a password."""


def main(arguments: list[str]) -> int:
    """Serve one head; return the exit status of this process."""
    del arguments  # they are there for whoever reads a list of processes
    channel = HeadChannel()
    try:
        request = _answer_all(channel)
        if isinstance(request, Look):
            return _run_ranks(request, channel)
        if isinstance(request, Follow):
            from slurm_adapter.node.agent.follow import follow

            gc.enable()
            return follow(request, channel)
    except HeadGoneError:
        return 0
    except AdapterError as error:
        channel.tell(unfit(error))
        channel.finish()
        return error.exit_status
    return 0


def _answer_all(channel: HeadChannel) -> Request | None:
    """Answer requests one after the other; return the first that this agent ends with, or None."""
    answering: dict[str, Answering] = {}
    try:
        while (request := channel.next(_patience_s(answering))) is not None:
            kind = type(request).__module__.rpartition(".")[2]
            if kind not in answering and (new := _answering(kind, channel)) is not None:
                answering[kind] = new
                gc.enable()
            if kind in answering:
                answering[kind].answer(request)
            elif not isinstance(request, Data):  # of files that could not be written
                return request
        return None
    finally:
        for one in answering.values():
            one.close()


def _answering(kind: str, channel: HeadChannel) -> Answering | None:
    """Return what answers the messages of a module, None where that is not here."""
    if kind == "copy_messages":
        from slurm_adapter.node.agent.copy_requests import CopyRequests

        return CopyRequests(channel)
    if kind == "login_messages":
        from slurm_adapter.node.agent.login_requests import LoginRequests

        return LoginRequests(channel)
    return None


def _patience_s(answering: dict[str, Answering]) -> float:
    return min([one.patience_s for one in answering.values()], default=_FIRST_WORD_S)


def _run_ranks(look: Look, channel: HeadChannel) -> int:
    """Look at this node, be told the plan, run the ranks and end them all."""
    listener = _listener(look)
    for message in prepare.look(look, listener):
        channel.tell(message)
    request = channel.next(look.link_s)
    while isinstance(request, TryConnections):
        from slurm_adapter.node.agent.connectivity import try_all

        channel.tell(Tried(tuple(try_all(request.tries))))
        request = channel.next(look.link_s)
    if listener is not None:
        listener.close()
    if not isinstance(request, TakePlan):
        return 0
    prepared = prepare.prepare(look, unpack_plan(request.plan), only_try=request.only_try)
    if prepared.folder is not None:
        prepared.folder.make()
    try:
        return _nested(prepared, look, channel)
    finally:
        prepared.clean_up()


def _listener(look: Look) -> socket | None:
    """Return what the other nodes may connect to, None where the job has no others."""
    if not prepare.has_network(look):
        return None
    from slurm_adapter.node.agent.connectivity import listen  # only between machines

    return listen()


def _nested(prepared: Prepared, look: Look, channel: HeadChannel) -> int:
    """Run the ranks in a PID namespace where that is allowed, else as they are."""
    from slurm_adapter.node.agent.serve import serve
    from slurm_adapter.node.system.pid_namespace import run_in_pid_namespace  # not needed to look

    def inner() -> int:
        return serve(prepared, look, channel)

    try:
        return run_in_pid_namespace(inner)
    except RefusedError:
        pass
    mark = prepare.mark(look)
    try:
        return serve(prepared, look, channel)
    finally:
        if mark is not None:
            mark.take_away()

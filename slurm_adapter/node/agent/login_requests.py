"""What the head asks of a login node; `submit_actions` does it."""

from __future__ import annotations

import os
import shutil
import sys

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.agent import submit_actions
from slurm_adapter.node.agent.head_channel import refused
from slurm_adapter.node.protocol.login_messages import (
    FilesRead,
    FindPath,
    FindProgram,
    Found,
    LoginOpened,
    MakeFolder,
    OpenLogin,
    Ran,
    ReadFiles,
    RemoveFolder,
    RunProgram,
    WriteFile,
)
from slurm_adapter.node.protocol.messages import Data, RequestDone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.node.agent.head_channel import HeadChannel
    from slurm_adapter.node.protocol.messages import AgentMessage, Request

_IDLE_S = 12 * 3600.0
_PRIVATE = 0o077
_PIECE_BYTES = 1 << 18


class LoginRequests:
    """Answers them, in the environment that has Slurm's commands."""

    patience_s = _IDLE_S
    """Seconds of silence after which the head is taken for lost; nothing is held meanwhile."""

    def __init__(self, channel: HeadChannel) -> None:
        self._channel = channel
        self._environment: Mapping[str, str] = os.environ

    def answer(self, request: Request) -> None:
        """Do what is asked for and tell the head; what cannot be done ends nothing."""
        try:
            answer = self._do(request)
        except (ClusterUnfitError, OSError) as error:
            answer = refused(error)
        self._channel.tell(answer)

    def close(self) -> None:
        """Nothing is held."""

    def _do(self, request: Request) -> AgentMessage:
        match request:
            case OpenLogin():
                return self._open()
            case FindProgram():
                return Found(submit_actions.has(request.program, self._environment))
            case RunProgram():
                return self._run(request)
            case ReadFiles():
                return self._read(request)
            case FindPath():
                return Found(os.path.exists(request.path))
            case MakeFolder():
                os.makedirs(request.path, 0o700, exist_ok=True)
            case WriteFile():
                submit_actions.write(request.path, request.data)
            case RemoveFolder():
                shutil.rmtree(request.path, ignore_errors=True)
        return RequestDone()

    def _open(self) -> LoginOpened:
        os.umask(_PRIVATE)
        if not submit_actions.has("sbatch", os.environ):
            of_login = submit_actions.login_environment()
            if submit_actions.has("sbatch", of_login):
                self._environment = of_login
        return LoginOpened(os.path.expanduser("~"), sys.executable)

    def _run(self, request: RunProgram) -> Ran:
        more = {name: os.fsdecode(value) for name, value in request.more.items()}
        environment = submit_actions.changed(self._environment, more, request.without)
        try:
            status, *written = submit_actions.run(
                request.words,
                environment,
                request.data,
                request.limit_s,
                self._channel.heed_head,
            )
        except FileNotFoundError:
            return Ran("missing", 0)
        except TimeoutError:
            return Ran("late", 0)
        for number, data in enumerate(written):
            self._send(number, data)
        return Ran("ended", status)

    def _read(self, request: ReadFiles) -> FilesRead:
        pieces = submit_actions.read_all(request.places)
        for number, (_, data) in enumerate(pieces):
            self._send(number, data)
        return FilesRead(tuple(offset for offset, _ in pieces))

    def _send(self, number: int, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES):
            self._channel.tell(Data(number, data[start : start + _PIECE_BYTES]))

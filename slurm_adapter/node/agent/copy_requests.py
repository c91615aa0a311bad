"""A copy of the code as the head asks for it, step by step: `code_copy` does it."""

from __future__ import annotations

import os

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.agent.code_copy import CodeCopy
from slurm_adapter.node.agent.head_channel import refused
from slurm_adapter.node.protocol.copy_messages import (
    ArrangeCopy,
    Arranged,
    BeginCopy,
    ClaimCopy,
    CloseCopy,
    Compare,
    FillFiles,
    FindSigns,
    FinishCopy,
    Finished,
    Signs,
)
from slurm_adapter.node.protocol.messages import Data, RequestDone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_adapter.node.agent.head_channel import HeadChannel
    from slurm_adapter.node.protocol.messages import AgentMessage, Request

_IDLE_S = 12 * 3600.0
"""Other hosts are copied to meanwhile; nothing is held that others wait for."""
_HELD_S = 900.0
"""Others cannot have the directory until a head that holds it is known to be gone."""
_PRIVATE = 0o077


class _BrokenOffError(Exception):
    """The head sends no more of the files that it meant to send."""


class CopyRequests:
    """Answers them, about one copy at a time."""

    def __init__(self, channel: HeadChannel) -> None:
        self._channel = channel
        self._copy: CodeCopy | None = None
        self._umask: int | None = None
        self.patience_s = _IDLE_S
        """Seconds of silence after which the head is taken for lost."""

    def answer(self, request: Request) -> None:
        """Take a step and tell the head what came of it."""
        if isinstance(request, CloseCopy):
            self.close()
            return
        try:
            answer = self._begin(request) if isinstance(request, BeginCopy) else self._take(request)
        except (ClusterUnfitError, OSError) as error:
            answer = refused(error)
        except _BrokenOffError:
            self.close()
            return
        self._channel.tell(answer)

    def close(self) -> None:
        """Let go of the copy."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
        if self._umask is not None:  # ranks may start from here
            os.umask(self._umask)
            self._umask = None
        self.patience_s = _IDLE_S

    def _begin(self, request: BeginCopy) -> AgentMessage:
        self.close()
        self._umask = os.umask(_PRIVATE)
        self._copy = CodeCopy(request.folder, request.token, self._channel.heed_head)
        self._copy.begin()
        return RequestDone()

    def _take(self, request: Request) -> AgentMessage:
        copy = self._copy
        if copy is None:
            raise ClusterUnfitError("no copy was begun")
        match request:
            case FindSigns():
                return Signs(tuple(copy.look(request.tokens)))
            case ClaimCopy():
                self.patience_s = _HELD_S
                copy.claim()
                if request.with_basis:
                    copy.begin_with_basis()
            case Compare():
                return copy.compare(request.listing)
            case ArrangeCopy():
                return Arranged(copy.arrange(changed=request.changed))
            case FillFiles():
                copy.fill(request.numbers, self._pieces())
            case FinishCopy():
                return Finished(tuple(copy.finish(request.same)), copy.version)
        return RequestDone()

    def _pieces(self) -> Iterator[bytes]:
        """Yield what the head sends of files, as long as it does."""
        while isinstance(request := self._channel.next(_HELD_S), Data):
            yield request.piece
        raise _BrokenOffError

"""The head's side of a host's receiving end (`node.receive`): a conversation about one copy."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from slurm_adapter import errors
from slurm_adapter.node.agent import basis, code_copy, copy_lock, receive, requests
from slurm_adapter.node.system import files
from slurm_adapter.remote.conversation import Conversation, program_of, request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_adapter.remote.transport.port import Connection


class Receiver(Conversation):
    """A host's receiving end for one copy."""

    def __init__(
        self, connection: Connection, python: str, destination: str, patience_s: float
    ) -> None:
        """Start a command for it; `start` waits until it runs.

        Args:
            connection: to the host.
            python: the interpreter there.
            destination: the copy's directory there, absolute.
            patience_s: how long it may say nothing before it counts as hanging.
        """
        super().__init__(connection, python, _program(), [destination], patience_s)

    def fill(self, contents: Iterable[bytes]) -> None:
        """Send the contents of files, as `node.receive` reads them."""
        self.write(request("fill"))
        for part in contents:
            self.write(part)
        self.answer()


@cache
def _program() -> bytes:
    return program_of(errors, files, copy_lock, basis, code_copy, requests, receive)

"""Why a node could not be reached: one kind of error, with what can be done about it."""

from __future__ import annotations

from slurm_adapter.errors import ClusterUnfitError


class ConnectError(ClusterUnfitError):
    """A connection to one node could not be made.

    Args:
        reason: what is wrong, without the node's name: nodes with the same reason are told
            together.
        remedy: what to type or change.
        detail: what only this node's case adds to the reason.
        again: whether the next attempt may well succeed (a server that sheds load).
    """

    def __init__(
        self, reason: str, remedy: str = "", *, detail: str = "", again: bool = False
    ) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason, remedy)
        self.reason = reason
        self.detail = detail
        self.again = again


class TurnedAwayError(ConnectError):
    """The host's key or the login was not accepted: by itself that does not change."""

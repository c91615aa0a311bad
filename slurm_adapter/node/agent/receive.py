"""The receiving end of `ssh --sync` on a host: answers the head's requests about one copy."""

from __future__ import annotations

import signal

from slurm_adapter.node.agent.code_copy import CodeCopy
from slurm_adapter.node.agent.requests import SILENCE_S, Pulse, begin, converse
from slurm_adapter.node.system.files import has_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

_RSYNC_S = 4 * 3600


def main(token: str, destination: str) -> int:
    """Answer requests until the input ends."""
    source, sink = begin(token)
    replica = CodeCopy(destination, token, Pulse(sink))
    try:
        return converse(source, sink, lambda request: _answer(replica, request, source))
    finally:
        replica.close()


def _answer(replica: CodeCopy, request: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    what = request["do"]
    _arm(what)
    if what == "begin":
        replica.begin()
        return {"rsync": has_program("rsync")}
    if what == "look":
        return {"seen": replica.look(request["tokens"])}
    if what == "claim":
        replica.claim()
    elif what == "seed":
        replica.seed()
    elif what == "compare":
        return replica.compare(request["entries"])
    elif what == "prepare":
        return {"removed": replica.prepare(changed=request["changed"])}
    elif what == "fill":
        replica.fill(stream)
    elif what == "finish":
        return {"nowhere": replica.finish(request["same"]), "version": replica.version}
    return {}


def _arm(what: str) -> None:
    """End this process when a head that has the lock falls silent: others could never get it."""
    # rsync may have its turn after `prepare`; before `claim` nothing is held.
    signal.alarm({"begin": 0, "look": 0, "prepare": _RSYNC_S}.get(what, SILENCE_S))

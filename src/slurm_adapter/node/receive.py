"""The receiving end of `ssh --sync` on a host: answers the head's requests about one copy.

Sent to the host as text, with what it imports, and run there by a bare interpreter. Requests and
answers are a length and compressed JSON, paths in them UTF-8 with undecodable bytes as surrogates.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import zlib

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.files import as_text, has_program
from slurm_adapter.node.replica import Replica, exactly, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

_SILENCE_S = 900
_RSYNC_S = 4 * 3600


def main(destination: str, token: str) -> int:
    """Answer requests until the input ends; what start-up files print is before the token."""
    os.umask(0o077)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(f"\n{token}\n".encode())
    sink.flush()
    replica = Replica(destination, token)
    try:
        while True:
            _send(sink, _answer(replica, _next(source), source))
    except EOFError:
        return 0
    except ClusterUnfitError as error:
        _send(sink, {"error": error.found})
    except OSError as error:
        where = f"{as_text(error.filename)}: " if isinstance(error.filename, bytes) else ""
        _send(sink, {"error": f"{where}{error.strerror}"})
    finally:
        replica.close()
    return 1


def _answer(replica: Replica, request: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    what = request["do"]
    _arm(what)
    if what == "begin":
        replica.begin()
        return {"rsync": has_program("rsync")}
    if what == "look":
        return {"seen": replica.look(request["tokens"])}
    if what == "claim":
        replica.claim()
    elif what == "compare":
        return replica.compare(request["entries"])
    elif what == "prepare":
        return {"removed": replica.prepare()}
    elif what == "fill":
        replica.fill(stream, lambda: _arm(what))
    elif what == "finish":
        return {"nowhere": replica.finish(request["same"])}
    return {}


def _arm(what: str) -> None:
    """End this process when a head that has the lock falls silent: others could never get it."""
    # rsync may have its turn after `prepare`; before `claim` nothing is held.
    signal.alarm({"begin": 0, "look": 0, "prepare": _RSYNC_S}.get(what, _SILENCE_S))


def _next(stream: BinaryIO) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(zlib.decompress(exactly(stream, number(stream))))
    return request


def _send(stream: BinaryIO, answer: dict[str, Any]) -> None:
    data = zlib.compress(json.dumps(answer).encode())
    stream.write(len(data).to_bytes(4, "big") + data)
    stream.flush()

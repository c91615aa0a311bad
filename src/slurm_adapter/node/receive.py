"""The receiving end of `ssh --sync` on a host: answers the head's requests about one copy.

Sent to the host as text, with what it imports, and run there by a bare interpreter. Requests and
answers are a length and compressed JSON, paths in them UTF-8 with undecodable bytes as surrogates.
Before the answer to a request that takes long come beats.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zlib

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.files import as_text, has_program
from slurm_adapter.node.replica import Replica, exactly, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

_BEAT_S = 5
_SILENCE_S = 900
_RSYNC_S = 4 * 3600


def main(destination: str, token: str) -> int:
    """Answer requests until the input ends; what start-up files print is before the token."""
    os.umask(0o077)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(f"\n{token}\n".encode())
    sink.flush()
    replica = Replica(destination, token, _Pulse(sink))
    try:
        while True:
            _send(sink, _answer(replica, _next(source), source))
    except EOFError:
        return 0
    except ClusterUnfitError as error:
        _send(sink, {"error": error.found, "remedy": error.remedy})
    except OSError as error:
        where = f"{as_text(error.filename)}: " if isinstance(error.filename, bytes) else ""
        _send(sink, {"error": f"{where}{error.strerror}"})
    finally:
        replica.close()
    return 1


class _Pulse:
    """Called while there is much to do: tells the head now and then that it goes on."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._last = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._last > _BEAT_S:
            self._last = time.monotonic()
            signal.alarm(_SILENCE_S)
            _send(self._sink, {"beat": True})


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
        return {"removed": replica.prepare(changed=request["changed"])}
    elif what == "fill":
        replica.fill(stream)
    elif what == "finish":
        return {"nowhere": replica.finish(request["same"]), "version": replica.version}
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

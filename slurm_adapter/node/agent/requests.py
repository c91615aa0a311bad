"""The answering end of a conversation with the head, over the streams of one SSH channel.

Sent to a machine as text, with what it imports, and run there by a bare interpreter. Requests and
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
from slurm_adapter.node.agent.code_copy import exactly, number
from slurm_adapter.node.system.files import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

_BEAT_S = 5
SILENCE_S = 900
"""Seconds after which a head that says nothing is gone."""


def begin(token: str) -> tuple[BinaryIO, BinaryIO]:
    """Return (source, sink); what start-up files print is before the token, which is told."""
    os.umask(0o077)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(f"\n{token}\n".encode())
    sink.flush()
    return source, sink


def converse(
    source: BinaryIO, sink: BinaryIO, answer: Callable[[dict[str, Any]], dict[str, Any]]
) -> int:
    """Answer requests until the input ends; an error is told and ends it, too.

    Returns:
        The exit status.
    """
    try:
        while True:
            send(sink, answer(_next(source)))
    except EOFError:
        return 0
    except (ClusterUnfitError, OSError) as error:
        send(sink, as_answer(error))
    return 1


def as_answer(error: ClusterUnfitError | OSError) -> dict[str, Any]:
    """Return an error as an answer."""
    if isinstance(error, ClusterUnfitError):
        return {"error": error.found, "remedy": error.remedy}
    name = error.filename
    where = as_text(name) if isinstance(name, bytes) else name
    return {"error": f"{where}: {error.strerror}" if where else str(error.strerror)}


class Pulse:
    """Called while there is much to do: tells the head now and then that it goes on."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._last = time.monotonic()

    def __call__(self) -> None:
        """Do so, where it is time."""
        if time.monotonic() - self._last > _BEAT_S:
            self._last = time.monotonic()
            signal.alarm(SILENCE_S)
            send(self._sink, {"beat": True})


def _next(stream: BinaryIO) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(zlib.decompress(exactly(stream, number(stream))))
    return request


def send(stream: BinaryIO, answer: dict[str, Any]) -> None:
    """Send an answer."""
    data = zlib.compress(json.dumps(answer).encode())
    stream.write(len(data).to_bytes(4, "big") + data)
    stream.flush()

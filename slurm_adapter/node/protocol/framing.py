"""One framing for all that the head and an agent send: a length, a kind, a body.

Before the first frame an agent writes one line that begins with `GREETING`: what the start-up
files of a login shell print before it does not matter. What bodies mean is `encoding`'s affair.
"""

from __future__ import annotations

import struct

from slurm_adapter.errors import AdapterError

GREETING = b"slurm-adapter-agent "
HAVE, NEED, NEED_SOURCE, OLD = b"have", b"need", b"need source", b"old"
"""The word behind it: the code is there, or has to be sent; or this Python is too old."""

MESSAGE = b"M"
"""A record of `messages`, or of a module beside it."""
OUTPUT = b"O"
"""Whole lines of a rank, behind its number."""
ENDED = b"X"
"""How a rank ended."""
DATA = b"D"
"""Bytes of a file or of a command's output, behind a number that says of which."""
BEAT = b"H"
"""Still here; from both."""

UNHEARD = 71
"""Exit status of an agent that heard nothing for too long, and ended all that ran there."""

_BEATS_IN_TIME = 4
LONGEST_BEAT_S = 5.0

_HEAD = struct.Struct(">IB")
_MOST_BYTES = 64 << 20


class BrokenMessageError(AdapterError):
    """What came is no message: something else wrote into the channel, or a node is broken."""


def beat_s(link_s: float) -> float:
    """Return the seconds between heartbeats where so much silence means that a link is lost."""
    return min(link_s / _BEATS_IN_TIME, LONGEST_BEAT_S)


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """Return one message as bytes."""
    return _HEAD.pack(len(body), kind[0]) + body


class FrameReader:
    """Bytes as they come become frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the frames that are complete now, as (kind, body).

        Raises:
            BrokenMessageError: where a length makes no sense.
        """
        self._buffer += data
        found: list[tuple[bytes, bytes]] = []
        start = 0
        while len(self._buffer) - start >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._buffer, start)
            if length > _MOST_BYTES:
                raise BrokenMessageError(f"a message of {length} bytes is none of ours")
            end = start + _HEAD.size + length
            if len(self._buffer) < end:
                break
            found.append((bytes([kind]), bytes(self._buffer[start + _HEAD.size : end])))
            start = end
        del self._buffer[:start]
        return found

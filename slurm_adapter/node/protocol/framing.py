"""Messages between the head and an agent: a length, a kind, a body.

Before the first of them an agent writes one line that begins with `GREETING`: what the start-up
files of a login shell print before it does not matter.
"""

from __future__ import annotations

import struct

from slurm_adapter.errors import AdapterError

GREETING = b"slurm-adapter-agent "
HAVE, NEED, NEED_SOURCE, OLD = b"have", b"need", b"need source", b"old"
"""The word behind it: the code is there, or has to be sent; or this Python is too old."""

# From the head.
ASK = b"?"
"""A `wire`-packed dictionary: what to look at before anything starts."""
FOLLOW = b"A"
"""In place of `ASK`: a `wire`-packed dictionary: which run to follow."""
PLAN = b"P"
"""`ONLY_TRY` or `IN_EARNEST`, and a node's part of the plan; sent again where a node gives less."""
ONLY_TRY, IN_EARNEST = b"?", b"!"
TRY = b"T"
"""A `wire`-packed list of connections to try: own address, peer's address, peer's port."""
GO = b"G"
STOP = b"S"
"""Seconds from TERM to KILL, as text."""
KILL = b"K"

# From the agent.
FACTS = b"F"
"""`name=value` texts, separated by NUL."""
TRIED = b"t"
"""For each of them why it did not work, empty where it did, separated by NUL."""
UNFIT = b"E"
"""Exit status, what was found, the remedy, separated by NUL; the agent ends."""
WARNING = b"W"
READY = b"R"
"""The level of the view that ranks get, the library that gives names or nothing, and `NAME=value`
for each of the plan's holes; separated by NUL."""
BEGUN = b"B"
OUTPUT = b"O"
"""`_OUTPUT`, then whole lines."""
ENDED = b"X"
"""`_ENDED`."""
GONE = b"Z"
"""Nothing of the job is left here; or what could not be ended, as text."""

# From both.
BEAT = b"H"
"""Still here."""

UNHEARD = 71
"""Exit status of an agent that heard nothing for too long, and ended all that ran there."""

_BEATS_IN_TIME = 4
LONGEST_BEAT_S = 5.0

_HEAD = struct.Struct(">IB")
_OUTPUT = struct.Struct(">IB")
_ENDED = struct.Struct(">IIQ")
_MOST_BYTES = 64 << 20


class BrokenFrameError(AdapterError):
    """What came is no message: something else wrote into the channel."""


def beat_s(link_s: float) -> float:
    """Return the seconds between heartbeats where so much silence means that a link is lost."""
    return min(link_s / _BEATS_IN_TIME, LONGEST_BEAT_S)


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """Return one message as bytes."""
    return _HEAD.pack(len(body), kind[0]) + body


def output_frame(rank: int, lines: bytes, *, is_error: bool) -> bytes:
    """Return whole lines of a rank as a message."""
    return frame(OUTPUT, _OUTPUT.pack(rank, is_error) + lines)


def read_output(body: bytes) -> tuple[int, bytes, bool]:
    """Return (rank, whole lines, whether from stderr)."""
    rank, is_error = _OUTPUT.unpack_from(body)
    return rank, body[_OUTPUT.size :], bool(is_error)


def ended_frame(rank: int, status: int, at_s: float) -> bytes:
    """Return a rank's end as a message; `at_s` is a moment of this machine's monotonic clock."""
    return frame(ENDED, _ENDED.pack(rank, status, int(at_s * 1e6)))


def read_ended(body: bytes) -> tuple[int, int, float]:
    """Return (rank, exit status, the moment on the agent's monotonic clock in seconds)."""
    rank, status, at_us = _ENDED.unpack(body)
    return rank, status, at_us / 1e6


class FrameReader:
    """Bytes as they come become messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the messages that are complete now, as (kind, body).

        Raises:
            BrokenFrameError: where a length makes no sense.
        """
        self._buffer += data
        found: list[tuple[bytes, bytes]] = []
        start = 0
        while len(self._buffer) - start >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._buffer, start)
            if length > _MOST_BYTES:
                raise BrokenFrameError(f"a message of {length} bytes is none of ours")
            end = start + _HEAD.size + length
            if len(self._buffer) < end:
                break
            found.append((bytes([kind]), bytes(self._buffer[start + _HEAD.size : end])))
            start = end
        del self._buffer[:start]
        return found

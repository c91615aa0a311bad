#!/usr/bin/env python3
"""Stands where an interpreter is expected, and speaks an agent's language badly.

The environment says what it answers to a heartbeat: HOSTILE, in hexadecimal digits.
"""

import os
import struct
import sys

HEAD = struct.Struct(">IB")
ANSWERS = {
    b"?": (b"F", b"address=127.0.0.1\0gpus=0\0clock=1.0\0port=6666"),
    b"P": (b"R", b"off\0"),
    b"G": (b"B", b""),
}


def send(kind: bytes, body: bytes = b"") -> None:
    os.write(1, HEAD.pack(len(body), kind[0]) + body)


def read(count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data


first = b""
while not first.endswith(b"\n"):  # what a real interpreter is told to do
    first += read(1)
read(int(os.environ["REST"]))
os.write(1, b"\nslurm-adapter-agent have\n")
while True:
    length, kind = HEAD.unpack(read(HEAD.size))
    read(length)
    if bytes([kind]) in ANSWERS:
        send(*ANSWERS[bytes([kind])])
    elif bytes([kind]) == b"H":
        os.write(1, bytes.fromhex(os.environ["HOSTILE"]))

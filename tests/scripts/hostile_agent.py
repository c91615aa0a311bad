#!/usr/bin/env python3
"""Stands where an interpreter is expected, and speaks an agent's language badly.

The environment says what it answers to a heartbeat: HOSTILE, in hexadecimal digits.
"""

import json
import marshal
import os
import struct
import sys

HEAD = struct.Struct(">IB")
FACTS = {"address": "127.0.0.1", "gpus": 0, "clock_s": 1.0, "host": "n1", "port": 6666}
ANSWERS = {
    "messages.Look": ("messages.Facts", {**FACTS, "network": None}),
    "messages.TakePlan": ("messages.Ready", {"view": "off", "wrapper": "", "own_values": []}),
    "messages.Go": ("messages.Begun", {}),
}


def tell(name: str, fields: dict[str, object]) -> None:
    body = json.dumps([name, fields]).encode()
    os.write(1, HEAD.pack(len(body), ord("M")) + body)


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
    body = read(length)
    if bytes([kind]) == b"H":
        os.write(1, bytes.fromhex(os.environ["HOSTILE"]))
    elif (asked := marshal.loads(body)[0]) in ANSWERS:  # noqa: S302 - of the test
        tell(*ANSWERS[asked])

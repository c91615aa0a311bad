"""Print who this process is and what it may do, as JSON."""

import json
import os
import socket
import sys
from pathlib import Path

status = dict(
    line.split(":\t")
    for line in Path("/proc/self/status").read_text().splitlines()
    if ":\t" in line
)
json.dump(
    {
        "uid": os.getresuid(),
        "gid": os.getresgid(),
        "home": os.environ["HOME"],
        "real home": os.path.realpath(os.environ["HOME"]),
        "capabilities": [
            int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")
        ],
        "uid map": [int(word) for word in Path("/proc/self/uid_map").read_text().split()],
        "host name": socket.gethostname(),
        "hosts file": Path("/etc/hosts").read_text(),
    },
    sys.stdout,
)

"""Look every worker up in the ways that scripts and programs use; print the answers as JSON."""

import json
import os
import socket
import subprocess
import sys


def look_up(name: str) -> dict[str, object]:
    infos = socket.getaddrinfo(name, 6060, type=socket.SOCK_STREAM)
    getent = subprocess.run(["getent", "hosts", name], stdout=subprocess.PIPE, check=True)
    return {
        "gethostbyname": socket.gethostbyname(name),
        "getaddrinfo": [(info[0].name, info[4][0]) for info in infos],
        "getent": getent.stdout.split()[0].decode(),
    }


names = os.environ["VC_WORKER_HOSTS"].split(",")
found = {name: look_up(name) for dotted in names for name in (dotted, dotted.split(".")[0])}
addresses = [str(found[name]["gethostbyname"]) for name in names]
json.dump(
    {
        "job": os.environ["MA_VJ_NAME"],
        "names": names,
        "found": found,
        "mapped": [socket.gethostbyaddr(f"::ffff:{address}")[0] for address in addresses],
    },
    sys.stdout,
)

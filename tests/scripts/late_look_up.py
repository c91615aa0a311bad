"""Say that it runs, wait until stdin ends, then look every worker up: its name, and back again."""

import os
import socket
import sys

sys.stdout.write("ready\n")
sys.stdout.flush()
sys.stdin.read()
for name in os.environ["VC_WORKER_HOSTS"].split(","):
    try:
        address = socket.gethostbyname(name)
        back = socket.gethostbyaddr(f"::ffff:{address}")[0]
    except OSError as error:
        sys.stdout.write(f"{error}\n")
    else:
        sys.stdout.write(f"{address} {back.replace(name.split('.')[0], 'worker')}\n")

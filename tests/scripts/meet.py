"""Ranks meet as torch's env:// would have them meet, but without torch, which takes 2 s to load.

Rank 0 listens at the master's address and port, adds up what the others bring, and tells them.
"""

import os
import socket
import sys
import time

LIMIT_S = 900

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local, local_size = os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]
master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def gather() -> int:
    """As rank 0: return the sum of what all ranks bring."""
    family = socket.AF_INET6 if ":" in master[0] else socket.AF_INET
    with socket.create_server(master, family=family, backlog=size) as server:
        server.settimeout(LIMIT_S)
        peers = [server.accept()[0] for _ in range(size - 1)]
        total = 1 + sum(int(peer.makefile().readline()) for peer in peers)
        for peer in peers:
            peer.sendall(b"%d\n" % total)
            peer.close()
    return total


def bring() -> int:
    """As another rank: return the sum that rank 0 tells."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            peer = socket.create_connection(master, timeout=LIMIT_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # rank 0 may not listen yet
        else:
            with peer:
                peer.sendall(b"%d\n" % (rank + 1))
                return int(peer.makefile().readline())


total = bring() if rank else gather()
sys.stdout.write(f"rank {rank} of {size}, local {local} of {local_size}: {total}\n")

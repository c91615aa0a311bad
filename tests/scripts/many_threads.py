"""Raise the own limit of processes to the hard one, then run as many threads as it is told."""

import resource
import sys
import threading

hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
enough = threading.Event()
threads = [threading.Thread(target=enough.wait) for _ in range(int(sys.argv[-1]))]
try:
    for thread in threads:
        thread.start()
finally:
    enough.set()

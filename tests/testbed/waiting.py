"""Wait for what tells nobody that it happened."""

import time
from collections.abc import Callable


def until(happened: Callable[[], object], limit_s: float = 90.0) -> bool:
    """Ask again and again, return whether it happened; generous: a busy machine is no failure."""
    deadline = time.monotonic() + limit_s
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True

"""Wait for what tells nobody that it happened."""

import time
from collections.abc import Callable

LONG_S = 900.0
"""Far more than anything here takes on the busiest machine; what needs it has failed."""


def until(happened: Callable[[], object], limit_s: float = LONG_S) -> bool:
    """Ask again and again, return whether it happened."""
    deadline = time.monotonic() + limit_s
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True

"""The signals that starting and ending ranks takes, without the 4 ms of the `signal` module.

That module makes enumerations of the numbers and calls of the built-in one beneath it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import (
        SIG_DFL,
        SIG_IGN,
        SIGCHLD,
        SIGHUP,
        SIGINT,
        SIGKILL,
        SIGPIPE,
        SIGTERM,
        SIGXFSZ,
    )
    from signal import signal as handle
else:
    from _signal import (
        SIG_DFL,
        SIG_IGN,
        SIGCHLD,
        SIGHUP,
        SIGINT,
        SIGKILL,
        SIGPIPE,
        SIGTERM,
        SIGXFSZ,
    )
    from _signal import signal as handle

__all__ = [
    "SIGCHLD",
    "SIGHUP",
    "SIGINT",
    "SIGKILL",
    "SIGPIPE",
    "SIGTERM",
    "SIGXFSZ",
    "SIG_DFL",
    "SIG_IGN",
    "STOPPING",
    "handle",
]

STOPPING = (SIGTERM, SIGINT, SIGHUP)
"""What means that a process is to end in order."""

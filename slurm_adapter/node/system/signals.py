"""The signals that starting and ending ranks takes, without the 4 ms of the `signal` module.

That module makes enumerations of the numbers and calls of the built-in one beneath it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

SIG_DFL, SIG_IGN = _signal.SIG_DFL, _signal.SIG_IGN
SIGCHLD, SIGHUP, SIGINT = _signal.SIGCHLD, _signal.SIGHUP, _signal.SIGINT
SIGKILL, SIGPIPE, SIGTERM = _signal.SIGKILL, _signal.SIGPIPE, _signal.SIGTERM
SIGCONT, SIGSTOP, SIGTSTP = _signal.SIGCONT, _signal.SIGSTOP, _signal.SIGTSTP
SIGRTMIN, SIGXFSZ = _signal.SIGRTMIN, _signal.SIGXFSZ
STOPPING = (SIGTERM, SIGINT, SIGHUP)
"""What means that a process is to end in order."""

handle, handler_of = _signal.signal, _signal.getsignal

"""Signals by their numbers, as the kernel has them, and what a process does with each.

Python's own `signal` makes enumerations of them: `enum`, and what that loads, would take 4 ms in
each rank and agent, a third of what starting their interpreter takes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Handler = Callable[[int, FrameType | None], object] | int | None

    SIG_DFL: int
    SIG_IGN: int
    SIGALRM: int
    SIGCHLD: int
    SIGCONT: int
    SIGHUP: int
    SIGINT: int
    SIGKILL: int
    SIGPIPE: int
    SIGQUIT: int
    SIGRTMIN: int
    SIGSTOP: int
    SIGTERM: int
    SIGTSTP: int
    SIGUSR1: int
    SIGUSR2: int
    SIGXCPU: int
    SIGXFSZ: int

    def handler_of(number: int) -> Handler:
        """Return what a signal is handled by; None where Python did not install that."""

    def handle(number: int, handler: Handler) -> Handler:
        """Have a signal handled by `handler`; return what it was handled by before."""

else:
    from _signal import (
        SIG_DFL,  # noqa: F401 - here and below: for others
        SIG_IGN,  # noqa: F401
        SIGALRM,  # noqa: F401
        SIGCHLD,  # noqa: F401
        SIGCONT,  # noqa: F401
        SIGHUP,  # noqa: F401
        SIGINT,  # noqa: F401
        SIGKILL,  # noqa: F401
        SIGPIPE,  # noqa: F401
        SIGQUIT,  # noqa: F401
        SIGRTMIN,  # noqa: F401
        SIGSTOP,  # noqa: F401
        SIGTERM,  # noqa: F401
        SIGTSTP,  # noqa: F401
        SIGUSR1,  # noqa: F401
        SIGUSR2,  # noqa: F401
        SIGXCPU,  # noqa: F401
        SIGXFSZ,  # noqa: F401
    )
    from _signal import getsignal as handler_of  # noqa: F401
    from _signal import signal as handle  # noqa: F401


def name_of(number: int) -> str | None:
    """Return a signal's name, as in SIGTERM; None where no signal has that number and a name."""
    import signal  # for words alone

    known = {one.value: one.name for one in signal.Signals}
    return known.get(number)

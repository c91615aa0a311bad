"""A command that has ranks here, in two processes: one is its user's, the other one does it all.

Killed outright, neither leaves anything: where a PID namespace is allowed the kernel ends all in
it; elsewhere the one that is left ends the other one's processes, which it gets as a subreaper.
"""

from __future__ import annotations

import os
import signal
import time

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.system import processes, signal_forwarding
from slurm_adapter.node.system.namespaces import RefusedError
from slurm_adapter.node.system.pid_namespace import (
    Ways,
    end_after,
    run_in_pid_namespace,
    send,
    status_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_AGAIN_S = 0.01
_DYING_S = 5.0
"""What waits for a disk that does not answer does not even die of SIGKILL."""


def run_guarded(inner: Callable[[], int]) -> int:
    """Run a function in a process that nothing survives; return its status.

    Signals and the terminal's keys mean to this process what they would mean to that one alone.

    Raises:
        ClusterUnfitError: where there may be no process more.
    """
    ways = _Guarding()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, no end of a child could be seen
    try:
        return run_in_pid_namespace(inner, ways)
    except RefusedError:
        return _run_below(inner, ways)
    except OSError as error:
        raise _no_process(error) from error


class _Guarding(Ways):
    """Signals are passed on as others, and a stop at the terminal stops both."""

    def __init__(self) -> None:
        self._heeded = signal_forwarding.heeded_signals()

    def keep(self) -> None:
        """Leave the terminal's keys, and a signal to the whole group, to the user's process."""
        os.setsid()
        super().keep()

    def begin(self) -> None:
        """Hear of no signal but by the user's process."""
        signal_forwarding.take_only_passed(self._heeded)

    def attend(self, first: int) -> None:
        """Pass on what means stop, for a while (SIGTSTP) or for good."""

        def pass_on(number: int, _: object) -> None:
            send(first, signal_forwarding.passed_as(number))

        def stop(number: int, _: object) -> None:
            send(first, signal.SIGSTOP)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            # Here it stands still until somebody has it go on.
            signal.signal(number, stop)
            send(first, signal.SIGCONT)

        for number in self._heeded:
            signal.signal(number, pass_on)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, stop)


def _run_below(inner: Callable[[], int], ways: Ways) -> int:
    """Run a function in a child of this process, and see that nothing of it stays."""
    processes.become_subreaper()
    # That signal, as one that is stopped at the terminal hears of no other.
    die_with_parent = processes.dying_with_parent(signal.SIGCONT)
    try:
        answers, tell = os.pipe()
        child = os.fork()
    except OSError as error:
        raise _no_process(error) from error
    if child == 0:
        os.close(answers)
        _be_below(inner, ways, tell, die_with_parent)
    os.close(tell)
    try:
        os.read(answers, 1)  # until it hears what is passed on
    finally:
        os.close(answers)
    ways.attend(child)
    status = status_of(os.waitpid(child, 0)[1])
    _end_all_below()
    return status


def _be_below(
    inner: Callable[[], int], ways: Ways, tell: int, die_with_parent: processes.Prepare
) -> NoReturn:
    def whole() -> int:
        processes.become_subreaper()
        _end_with_parent(os.getppid())
        die_with_parent()
        os.setsid()
        ways.begin()
        os.close(tell)
        return inner()

    end_after(whole)


def _end_with_parent(parent: int) -> None:
    """End with everything below when the parent is found gone."""

    def look(number: int, _: object) -> None:
        del number
        if os.getppid() != parent:
            _end_all_below()
            os._exit(128 + signal.SIGKILL)

    signal.signal(signal.SIGCONT, look)


def _end_all_below() -> None:
    deadline = time.monotonic() + _DYING_S
    while processes.has_children() and time.monotonic() < deadline:
        processes.send_below(signal.SIGKILL)
        for _ in processes.reap():
            pass
        if processes.has_children():
            time.sleep(_AGAIN_S)


def _no_process(error: OSError) -> ClusterUnfitError:
    return ClusterUnfitError(
        f"{os.uname().nodename} starts no process more: {error.strerror}",
        "A limit of that machine is reached: see ulimit -n, ulimit -u and its memory.",
    )

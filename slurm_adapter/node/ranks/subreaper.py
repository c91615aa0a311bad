"""A command that has ranks here, in two processes: one is its user's, the other one does it all.

Killed outright, neither leaves anything: where a PID namespace is allowed the kernel ends all in
it; elsewhere the one that is left ends the other one's processes, which it gets as a subreaper.
"""

from __future__ import annotations

import os

from slurm_adapter import signals
from slurm_adapter.errors import ClusterUnfitError, signal_status
from slurm_adapter.node.system import processes, signal_forwarding
from slurm_adapter.node.system.namespaces import RefusedError
from slurm_adapter.node.system.pid_namespace import (
    StopForwarding,
    end_after,
    run_in_pid_namespace,
    send,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


def run_contained(inner: Callable[[], int]) -> int:
    """Run a function in a process that nothing survives; return its status.

    Signals and the terminal's keys mean to this process what they would mean to that one alone.

    Raises:
        ClusterUnfitError: where there may be no process more.
    """
    forwarding = _TerminalForwarding()
    signals.handle(signals.SIGCHLD, signals.SIG_DFL)  # ignored, no end of a child could be seen
    try:
        return run_in_pid_namespace(inner, forwarding)
    except RefusedError:
        return _run_below(inner, forwarding)
    except OSError as error:
        raise _no_process(error) from error


class _TerminalForwarding(StopForwarding):
    """Signals are forwarded as others, and a stop at the terminal stops both."""

    def __init__(self) -> None:
        self._heeded = signal_forwarding.heeded_signals()

    def in_child(self) -> None:
        """Leave the terminal's keys, and a signal to the whole group, to the user's process."""
        os.setsid()
        super().in_child()

    def in_init(self) -> None:
        """Hear of no signal but by the user's process."""
        signal_forwarding.take_only_forwarded(self._heeded)

    def in_starter(self, init: int) -> None:
        """Forward what means stop, for a while (SIGTSTP) or for good."""

        def forward(number: int, _: object) -> None:
            send(init, signal_forwarding.forwarded_as(number))

        def stop(number: int, _: object) -> None:
            send(init, signals.SIGSTOP)
            signals.handle(number, signals.SIG_DFL)
            os.kill(os.getpid(), number)
            # Here it stands still until somebody has it go on.
            signals.handle(number, stop)
            send(init, signals.SIGCONT)

        for number in self._heeded:
            signals.handle(number, forward)
        if signals.handler_of(signals.SIGTSTP) != signals.SIG_IGN:
            signals.handle(signals.SIGTSTP, stop)


def _run_below(inner: Callable[[], int], forwarding: StopForwarding) -> int:
    """Run a function in a child of this process, and see that nothing of it stays."""
    processes.become_subreaper()
    # That signal, as one that is stopped at the terminal hears of no other.
    die_with_parent = processes.dying_with_parent(signals.SIGCONT)
    try:
        answers, tell = os.pipe()
        child = os.fork()
    except OSError as error:
        raise _no_process(error) from error
    if child == 0:
        os.close(answers)
        _be_below(inner, forwarding, tell, die_with_parent)
    os.close(tell)
    try:
        os.read(answers, 1)  # until it hears what is forwarded
    finally:
        os.close(answers)
    forwarding.in_starter(child)
    status = processes.wait_for(child)
    processes.kill_all(_below)
    return status


def _be_below(
    inner: Callable[[], int],
    forwarding: StopForwarding,
    tell: int,
    die_with_parent: processes.Prepare,
) -> NoReturn:
    def whole() -> int:
        processes.become_subreaper()
        _end_with_parent(os.getppid())
        die_with_parent()
        os.setsid()
        forwarding.in_init()
        os.close(tell)
        return inner()

    end_after(whole)


def _end_with_parent(parent: int) -> None:
    """End with everything below when the parent is found gone."""

    def look(number: int, _: object) -> None:
        del number
        if os.getppid() != parent:
            processes.kill_all(_below)
            os._exit(signal_status(signals.SIGKILL))

    signals.handle(signals.SIGCONT, look)


def _below() -> list[int] | None:
    for _ in processes.reap():
        pass
    return processes.descendants(os.getpid()) if processes.has_children() else None


def _no_process(error: OSError) -> ClusterUnfitError:
    return ClusterUnfitError(
        f"{os.uname().nodename} starts no process more: {error.strerror}",
        "A limit of that machine is reached: see ulimit -n, ulimit -u and its memory.",
    )

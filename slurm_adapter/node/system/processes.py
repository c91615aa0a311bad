"""Process trees: whatever a rank starts, in whatever session, can be found and ended."""

from __future__ import annotations

import os
import time

from slurm_adapter import signals
from slurm_adapter.errors import exit_status
from slurm_adapter.node.system import calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    Prepare = Callable[[], None]
    """What a child runs before its program."""

_AGAIN_S = 0.01
_DYING_S = 5.0
"""What waits for a disk that does not answer does not even die of SIGKILL."""


def become_subreaper() -> None:
    """Make orphans among this process's descendants its own children, so that none is lost."""
    calls.become_subreaper()


def dying_with_parent(number: int = signals.SIGKILL) -> Prepare:
    """Return what a child runs before its program: it ends when this process is killed.

    `number` is the signal that tells it, for one that has something to do first.
    """
    parent = os.getpid()

    def before_program() -> None:
        calls.die_with_parent(number)
        if os.getppid() != parent:  # it died in between
            os.kill(os.getpid(), signals.SIGKILL)

    return before_program


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; a parent that is gone is missed."""
    calls.die_with_parent(signals.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the living descendants of a process, zombies left out."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _living_parent(name)
            if parent is not None:
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def send_below(number: int, but: Collection[int] = ()) -> list[int]:
    """Send a signal to all descendants, whatever session they are in; return which these are.

    `but` are left out. One whose parent ends just now may be missed.
    """
    own = os.getpid()
    pids = [pid for pid in descendants(own) if pid not in but]
    # The first process of a PID namespace reaches all others in it: none can slip through.
    for pid in [-1] if own == 1 and not but else pids:
        _send(pid, number)
    return pids


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # gone, or somebody else's by now (sudo)
        return


def wait_for(pid: int) -> int:
    """Wait for the end of a child; return its exit status."""
    return exit_status(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def kill_all(find: Callable[[], list[int] | None]) -> int:
    """Kill processes, and what they fork meanwhile; return how many that were.

    Args:
        find: returns those that there are now; None where there will be no more.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _DYING_S
    while (found := find()) is not None and time.monotonic() < deadline:
        killed.update(found)
        for pid in found:
            _send(pid, signals.SIGKILL)
        time.sleep(_AGAIN_S)
    return len(killed)


def reap() -> Iterator[tuple[int, int]]:
    """Yield (pid, exit status) of children that have ended; orphans too."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, exit_status(os.waitstatus_to_exitcode(status))


def has_children() -> bool:
    """Say whether there is a child that `reap` has not yielded; a subreaper's: any descendant."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _living_parent(name: str) -> int | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            # The name in brackets may hold blanks and brackets itself.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[1])


_descriptors_before: tuple[int, int] | None = None


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as it may: hundreds of ranks need several each."""
    import resource  # only the head needs it

    global _descriptors_before  # noqa: PLW0603 - a process has one such limit
    _descriptors_before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = _descriptors_before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def has_raised_limit() -> bool:
    """Say whether a child is to be given back the limit that this process found."""
    return _descriptors_before is not None


def restore_descriptor_limit() -> None:
    """Give a child the limit that this process found, before it runs its program."""
    if _descriptors_before is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, _descriptors_before)

"""What a test must not leave behind in the process that runs it: a child, and a thread.

A child that has ended counts until somebody has waited for it.
"""

import contextlib
import gc
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed import processes
from testbed.waiting import LONG_S


def children() -> set[int]:
    """Return the children of this process, whichever thread started them."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.update(map(int, (thread / "children").read_text().split()))
    return found


@contextlib.contextmanager
def none(lasting: Callable[[], set[int]]) -> Iterator[None]:
    """See to it that no child and no thread is left that was not there before.

    What is left is ended, so that only the test that left it fails.

    Args:
        lasting: tells the children that are there for longer, as of the end.

    Raises:
        AssertionError: some were left.
    """
    children_before, threads_before = children(), set(threading.enumerate())
    yield
    # These first: one may be about to end a child. Most end by themselves after a `close`.
    threads = set(threading.enumerate()) - threads_before
    for thread in threads:
        thread.join(LONG_S)
    left = [f"thread {thread.name}" for thread in threads if thread.is_alive()]
    pids = children() - children_before - lasting()
    left += [_words(pid) for pid in pids]
    _end(pids)
    assert not left, f"the test leaves {', '.join(left)}"


def _words(pid: int) -> str:
    """Say what a child is; a title has only one that has not ended."""
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    return f"process {pid} ({name}): {processes.title(pid)}"


def _end(pids: set[int]) -> None:
    """Kill children and wait for them, on behalf of those who should have."""
    if not pids:
        return
    owners = {
        one.pid: one
        for one in gc.get_objects()
        # Not isinstance: that asks some objects for their class, which do something at it.
        if issubclass(type(one), subprocess.Popen) and one.returncode is None
    }
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            owners[pid].wait() if pid in owners else os.waitpid(pid, 0)

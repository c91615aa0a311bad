"""A process that is started, and is seen to its end with all that it started."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import AnyStr


class Child(subprocess.Popen[AnyStr]):
    """A Popen whose block, where it fails, does not wait for the process but kills its tree."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for it; where the block failed, kill it before."""
        if kind and self.poll() is None:
            kill_tree(self.pid)
        super().__exit__(kind, error, trace)


def kill_tree(root: int) -> None:
    """SIGKILL `root`, its session and every descendant, until none of them is left."""
    doomed = {root}
    for _ in range(1000):
        living = _living()
        before = -1
        while before != len(doomed):
            before = len(doomed)
            doomed |= {
                pid for pid, (parent, session) in living.items() if {parent, session} & doomed
            }
        targets = doomed & living.keys()
        if not targets:
            return
        for pid in targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _living() -> dict[int, tuple[int, int]]:
    """Return parent and session of every process of the machine that has not ended."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            found[int(entry.name)] = (int(fields[1]), int(fields[3]))
    return found

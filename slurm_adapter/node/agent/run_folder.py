"""What a detached run keeps on a node: who watches it, each rank's output and end.

A folder for each node of a run, also where several of them share a home directory.
"""

from __future__ import annotations

import os
import time

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.system.identity import identity, lives, pid_of
from slurm_adapter.paths import read_text
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KEPT_S = 30 * 86_400
"""How long what is over is kept, there and here."""


def state_home() -> str:
    """Return this user's folder for what outlives a process (XDG: state)."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return f"{state}/slurm-adapter"


@record
class RunFolder:
    """One node's part of a detached run."""

    run: str
    index: int

    @property
    def path(self) -> str:
        """Where it is."""
        return f"{state_home()}/runs/{self.run}/{self.index}"

    def make(self) -> None:
        """Make it, with this process as the one that watches the run."""
        try:
            run = os.path.dirname(self.path)
            os.makedirs(os.path.dirname(run), 0o700, exist_ok=True)
            os.makedirs(run, 0o700, exist_ok=True)
            os.mkdir(self.path, 0o700)
            self._write("agent", identity(os.getpid()))
        except OSError as error:
            raise ClusterUnfitError(
                f"{os.uname().nodename} cannot keep the run's output in {self.path}:"
                f" {error.strerror}",
                "Run it without --detach, or make that folder writable.",
            ) from error

    def output(self, rank: int) -> str:
        """Return the path of a rank's output: stdout and stderr in the order of writing."""
        return f"{self.path}/rank-{rank}.log"

    def open_output(self, rank: int) -> int:
        """Return a descriptor that appends to it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self.output(rank), flags, 0o600)

    def note_end(self, rank: int, status: int, at_s: float) -> None:
        """Keep how a rank ended; `at_s` is a moment of this machine's monotonic clock."""
        self._write(f"rank-{rank}.end", f"{status} {at_s!r}")

    def note_gone(self, left: str) -> None:
        """Keep that nothing is left, or what is."""
        self._write("gone", left)

    def end_of(self, rank: int) -> tuple[int, float] | None:
        """Return (exit status, moment) of a rank that has ended."""
        text = read_text(f"{self.path}/rank-{rank}.end").split()
        return (int(text[0]), float(text[1])) if text else None

    def gone(self) -> str | None:
        """Return what is left of an ended run, usually nothing; None while it goes on."""
        path = f"{self.path}/gone"
        return read_text(path) if os.path.exists(path) else None

    def agent(self) -> int | None:
        """Return the pid of the process that watches the run, None where it is gone."""
        words = read_text(f"{self.path}/agent")
        return pid_of(words) if lives(words) else None

    def holds(self, ranks: Iterable[int]) -> bool:
        """Say whether there is the output of these ranks."""
        return all(os.path.exists(self.output(rank)) for rank in ranks)

    def _write(self, name: str, text: str) -> None:
        own = f"{self.path}/.{name}"
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(own, f"{self.path}/{name}")


def remove_old() -> None:
    """Take away runs that ended a month ago, and archives as old: others may be at it, too."""
    _remove_archives()
    for folder in _old(f"{state_home()}/runs"):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _remove_archives() -> None:
    """Take away what earlier versions sent here; where one is still in use it is sent anew."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for name in _entries(f"{cache}/slurm-adapter"):
        path = f"{cache}/slurm-adapter/{name}"
        try:
            if time.time() - os.stat(path).st_mtime > KEPT_S:
                os.unlink(path)
        except OSError:
            continue


def _old(runs: str) -> Iterator[str]:
    for run in _entries(runs):
        parts = [RunFolder(run, int(part)) for part in _entries(f"{runs}/{run}") if part.isdigit()]
        if parts and all(part.agent() is None for part in parts):
            newest = max(map(_last_change, parts))
            if time.time() - newest > KEPT_S:
                yield f"{runs}/{run}"


def _last_change(part: RunFolder) -> float:
    """Return when something of a node's part was written last; now where that cannot be seen."""
    try:
        return max(os.stat(f"{part.path}/{name}").st_mtime for name in _entries(part.path))
    except (OSError, ValueError):
        return time.time()


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []

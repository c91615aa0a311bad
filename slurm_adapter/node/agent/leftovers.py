"""What an agent that was killed outright may leave where no PID namespace is allowed.

Each run there has a file that its agent holds locked; a file that nobody holds any more belongs
to a dead one, and its run's processes carry the run's id in their environment.
"""

from __future__ import annotations

import fcntl
import os

from slurm_adapter.node.agent.run_folder import state_home
from slurm_adapter.node.system.processes import kill_all
from slurm_adapter.paths import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RUN_VARIABLE = "SLURM_ADAPTER_RUN"


def _folder() -> str:
    return f"{state_home()}/agents"


class Mark:
    """The file of a run on this machine, locked while this process lives."""

    def __init__(self, run: str) -> None:
        os.makedirs(_folder(), 0o700, exist_ok=True)
        self._path = f"{_folder()}/{_machine()}.{run}"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def take_away(self) -> None:
        """Nothing of the run is left: the file has nothing to say."""
        os.unlink(self._path)
        os.close(self._descriptor)


def end_leftovers() -> list[str]:
    """End what dead agents of this user left on this machine; return words for what that was."""
    return [
        f"ended {count} process{'es' if count > 1 else ''} that run {run} had left on"
        f" {os.uname().nodename}: its agent was killed"
        for run, count in _ended_runs()
        if count
    ]


def _machine() -> str:
    # A home may be shared by many machines, and a machine may start anew.
    boot = read_text("/proc/sys/kernel/random/boot_id").strip()[:8]
    return f"{os.uname().nodename}.{boot}"


def _ended_runs() -> Iterator[tuple[str, int]]:
    """End the runs of this machine whose agent is gone; yield (run, how many processes it had)."""
    try:
        names = os.listdir(_folder())
    except OSError:
        return
    for name in names:
        machine, _, run = name.rpartition(".")
        if machine != _machine():
            continue
        path = f"{_folder()}/{name}"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            count = end_run(run)
            os.unlink(path)  # only now: whoever is killed before it leaves the mark
        except OSError:
            continue
        finally:
            os.close(descriptor)
        yield run, count


def end_run(run: str) -> int:
    """Kill every process of a run, and what it forks meanwhile; return how many that were."""
    return kill_all(lambda: list(_of_run(run)) or None)


def _of_run(run: str) -> Iterator[int]:
    wanted = f"\0{RUN_VARIABLE}={run}\0"
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            state = read_text(f"/proc/{name}/stat").rpartition(")")[2][1:2]
            if state not in ("", "Z") and wanted in f"\0{read_text(f'/proc/{name}/environ')}":
                yield int(name)

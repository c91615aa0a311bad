"""One task of a Slurm step that starts all ranks of its node, and ends as they do.

Slurm's daemon sends its signals to the task alone where it keeps tasks in cgroups: they are passed
on. What they mean is the ranks' own affair, and when the time is over the daemon's: it kills all.
"""

from __future__ import annotations

import os

from slurm_adapter import signals
from slurm_adapter.node.job_files import make_folder, make_referenced_directories, working_directory
from slurm_adapter.node.ranks.events import Output
from slurm_adapter.node.ranks.machine import MachineFleet
from slurm_adapter.node.ranks.spawn import make_start
from slurm_adapter.node.ranks.supervise import Supervisor
from slurm_adapter.node.step.become import check_rendezvous, open_log, without_coerced_locale
from slurm_adapter.output import say
from slurm_adapter.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.node.ranks.events import Event
    from slurm_adapter.node.ranks.spawn import RankStart
    from slurm_adapter.node.step.step import Ready

GRACE_S = 10.0
"""Seconds from SIGTERM to SIGKILL for the ranks that one which failed has left."""
_ENDING = (signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGQUIT)
_PASSED_ON = (
    *_ENDING,
    *(signals.SIGUSR1, signals.SIGUSR2, signals.SIGALRM, signals.SIGXCPU),
    *(signals.SIGCONT, signals.SIGTSTP),
)


def run_ranks(ready: Ready, environment: Mapping[str, str], *, log: bool = False) -> int:
    """Start the ranks of this node and stay until nothing of them is left.

    Args:
        ready: the first of them; all have its view.
        environment: what they inherit.
        log: whether their output goes to the node's file in the job's log folder.

    Returns:
        The status of the rank that failed first, 128 + N for signal N; 0 where none did.

    Raises:
        ClusterUnfitError: where the port is taken on rank 0's node, or a rank cannot be started.
    """
    plan, first = ready.plan, ready.rank
    if first.rank == 0:
        check_rendezvous(plan, first)
    inherited = without_coerced_locale(environment)
    ranks = ready.node.ranks
    for rank in ranks:
        make_referenced_directories(plan.job, rank.referenced_directories)
    output = None
    if log:
        make_folder(plan.job.log_folder, plan.job.folder)
        output = open_log(plan, first)
    if plan.job.install_requirements:
        from slurm_adapter.node.ranks.packages import install

        install(ready.node, first, first.environment(inherited), output)
    namespaces = None if ready.view is None else ready.view.namespaces
    node = _Node((1, 2) if output is None else (output, output))
    starts = [make_start(rank, inherited, namespaces) for rank in ranks]
    if namespaces is not None:  # there the directory that this process is in is found by its name
        here = working_directory()
        starts = [one if one.cwd else replace(one, cwd=here) for one in starts]
    return node.run(starts, ready)


class _Node:
    """The ranks of this node, the signals for them, and their output on its way out."""

    def __init__(self, streams: tuple[int, int]) -> None:
        self._streams = streams
        self._fleet = MachineFleet()
        self._started = False
        self._early: list[int] = []
        self._asked_to_end = False
        self._pid = os.getpid()

    def run(self, starts: list[RankStart], ready: Ready) -> int:
        for one in _PASSED_ON:
            if signals.handler_of(one) != signals.SIG_IGN:
                signals.handle(one, self._on_signal)
        try:
            self._fleet.start(starts)
        finally:
            if ready.view is not None:
                ready.view.close()
        self._started = True
        for number in self._early:
            self._fleet.forward(number)
        return Supervisor(
            self._fleet,
            show=self._show,
            say=self._say,
            name=lambda rank: f"rank {rank}",
            grace_s=GRACE_S,
            heed_signals=False,
        ).run()

    def _on_signal(self, number: int, _: object) -> None:
        if os.getpid() != self._pid:  # a child that has yet to become its rank
            return
        self._asked_to_end = self._asked_to_end or number in _ENDING
        if self._started:
            self._fleet.forward(number)
        else:
            self._early.append(number)

    def _show(self, event: Event) -> None:
        """Write a rank's lines behind its number, as srun does with those of a task."""
        if not isinstance(event, Output):
            return
        prefix = f"{event.rank}: ".encode()
        data = b"".join([prefix + line for line in event.lines.splitlines(keepends=True)])
        while data:
            data = data[os.write(self._streams[event.is_error], data) :]

    def _say(self, text: str) -> None:
        if self._asked_to_end:  # who told it to knows why; that ranks end of it is no news
            return
        say(text)

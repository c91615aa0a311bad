"""A job over SSH is ended: by its head where that lives, else by agents of ours."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from slurm_adapter.cli.report import say
from slurm_adapter.cli.ssh_jobs import LOOK_S, connect, find
from slurm_adapter.errors import NODE_LOST, ClusterUnfitError, signal_status
from slurm_adapter.launch.ssh import follow
from slurm_adapter.launch.ssh.records import head_host, head_lives, head_pid
from slurm_adapter.node.ranks.supervise import STOP_DETACHED

if TYPE_CHECKING:
    from slurm_adapter.launch.ssh.records import JobRecord, Record

_STOPPED = signal_status(signal.SIGTERM)
_CONFIRM_S = 15.0
"""What ending a job may take beyond its grace and its time-out for links."""


def stop_job(job_id: str) -> int:
    """End a job on all its hosts, and return 0 once that is confirmed."""
    record, job = find(job_id)
    ended = record.ended()
    if ended is not None:
        say(f"{job_id} has ended already: {ended[1]}")
        return 0
    lives = head_lives(job.head)
    if lives:
        _stop_head(record, job)
        if record.ended() is not None:
            return _confirmed(job_id, [])
        # It is gone, and has left alone what it could not reach: that may be possible now.
        lives = False
    if not job.detached:
        machine = head_host(job.head)
        raise ClusterUnfitError(
            f"{job_id} cannot be stopped from here",
            f"It was started on {machine}: stop it there."
            if lives is None
            else "Its head was killed: its hosts have ended it, or will within"
            f" {job.link_s + job.grace_s:g} s.",
        )
    fleet, left = connect(job)
    try:
        left += follow.attach(job, fleet, stay=True, output=False)
        left += follow.end(fleet)
    finally:
        fleet.close()
    if not left:
        record.end(_STOPPED, "stopped by you", say)
    return _confirmed(job_id, left)


def _stop_head(record: Record, job: JobRecord) -> None:
    """Tell a job's head to end it, and wait until it has ended itself."""
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(head_pid(job.head), STOP_DETACHED if job.detached else signal.SIGTERM)
    deadline = time.monotonic() + job.grace_s + job.link_s + _CONFIRM_S
    while record.ended() is None and head_lives(job.head):
        if time.monotonic() > deadline:
            raise ClusterUnfitError(f"{record.job_id} has not ended yet", "Try once more.")
        time.sleep(LOOK_S)


def _confirmed(job_id: str, left: list[str]) -> int:
    for words in left:
        say(f"not confirmed: {words}")
    say(f"{job_id} was stopped" if not left else f"{job_id} was told to stop")
    return NODE_LOST if left else 0

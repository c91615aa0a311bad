"""How jobs of Slurm are: asked for all at once, from whoever still knows.

`squeue` knows those that wait or run and those that ended some minutes ago, the accounting where a
site has one knows all, and `scontrol` how one of the former ended. A controller that does not
answer is no end of any job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_adapter.errors import NODE_LOST, ClusterUnfitError, printable, signal_status
from slurm_adapter.remote.submit_host import owner

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_adapter.remote.submit_host import Done, SubmitHost

_LIMIT_S = 60.0
_FIELDS = ("JobArrayID", "State", "Reason", "StartTime", "NumNodes", "Name", "NodeList", "JobID")
# A field is cut at the width that follows its name; no field of these is that long.
_FORMAT = ",".join(f"{field}:{1024 if field in ('NodeList', 'Name') else 64}" for field in _FIELDS)
_WIDTHS = [1024 if field in ("NodeList", "Name") else 64 for field in _FIELDS]
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
_GOING = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED"}
    | {"RESIZING"}
)
# What stands for the end of a job that no exit status tells of: as timeout(1) and as signals do.
_BY_STATE = {
    "TIMEOUT": 124,
    "DEADLINE": 124,
    "NODE_FAIL": NODE_LOST,
    "BOOT_FAIL": NODE_LOST,
    "OUT_OF_MEMORY": 137,
    "PREEMPTED": 143,
    "CANCELLED": 143,
    "REVOKED": 143,
}
_EXIT = re.compile(r"\bExitCode=(\d+):(\d+)")
_STATE = re.compile(r"\bJobState=(\S+)")
_ALL_GONE = "Invalid job id"


@dataclass(frozen=True)
class BatchState:
    """One job as Slurm has it."""

    job_id: str
    state: str
    """Slurm's own word: PENDING, RUNNING, COMPLETED, ..."""
    reason: str = ""
    """Why it waits, in Slurm's words."""
    start: str = ""
    """When it started, or is expected to; empty where nobody knows."""
    nodes: str = ""
    """The list of its nodes, or while it waits how many it wants."""
    name: str = ""
    status: int | None = None
    """Its exit status once it has ended; None where that is not known."""

    @property
    def waits(self) -> bool:
        """Whether it has yet to start (again)."""
        return self.state in _WAITING

    @property
    def ended(self) -> bool:
        """Whether it will not go on."""
        return self.state not in _WAITING | _GOING


class AwayError(Exception):
    """Slurm does not answer; what it would say is not known."""


def ask(submit_host: SubmitHost, job_ids: Iterable[str]) -> dict[str, BatchState]:
    """Return the states of those jobs that Slurm still knows, by job id, in one call.

    Raises:
        AwayError: Slurm does not answer.
        ClusterUnfitError: there is no Slurm at the submit host.
    """
    wanted = list(job_ids)
    answer = _run(
        submit_host,
        [
            "squeue",
            "--noheader",
            "--states=all",
            f"--Format={_FORMAT}",
            f"--jobs={','.join(wanted)}",
        ],
    )
    if answer.status != 0 and _ALL_GONE not in answer.err:
        raise AwayError(_said(answer))
    return {one.job_id: one for one in _read_queue(answer.out)}


def all_of_user(submit_host: SubmitHost) -> list[BatchState]:
    """Return the user's jobs that wait or run, whoever submitted them.

    Raises:
        AwayError: Slurm does not answer.
        ClusterUnfitError: there is no Slurm at the submit host.
    """
    answer = _run(submit_host, ["squeue", "--noheader", "--me", f"--Format={_FORMAT}"])
    if answer.status != 0:
        raise AwayError(_said(answer))
    return _read_queue(answer.out)


def how_it_ended(submit_host: SubmitHost, job_id: str) -> BatchState | None:
    """Return how a job ended, from the accounting or the controller; None where neither knows.

    Raises:
        AwayError: Slurm does not answer.
        ClusterUnfitError: there is no Slurm at the submit host.
    """
    answer = _run(submit_host, ["scontrol", "--oneliner", "show", "job", job_id])
    if answer.status == 0 and (state := _STATE.search(answer.out)):
        exit_code = _EXIT.search(answer.out)
        numbers = (int(exit_code[1]), int(exit_code[2])) if exit_code else (0, 0)
        return _ended(job_id, state[1], *numbers)
    if answer.status != 0 and _ALL_GONE not in answer.err:
        raise AwayError(_said(answer))
    return _from_accounting(submit_host, job_id)


def _from_accounting(submit_host: SubmitHost, job_id: str) -> BatchState | None:
    if not submit_host.has("sacct"):
        return None
    words = ["sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={job_id}"]
    answer = _run(submit_host, [*words, "--format=State,ExitCode"])
    state, bar, code = answer.out.partition("\n")[0].partition("|")
    if answer.status != 0 or not bar:  # a site without accounting is a normal site
        return None
    status, _, number = code.partition(":")
    return _ended(job_id, state.split(" ")[0], int(status or 0), int(number or 0))


def _ended(job_id: str, state: str, status: int, signal: int) -> BatchState:
    """Return a job's state with the exit status that stands for its end."""
    if state in _WAITING | _GOING:
        return BatchState(job_id, state)
    own = status or (signal_status(signal) if signal else 0)
    if state == "COMPLETED":
        return BatchState(job_id, state, status=own)
    return BatchState(job_id, state, status=_BY_STATE.get(state) or own or 1)


def _read_queue(text: str) -> list[BatchState]:
    """Return what squeue prints, a heterogeneous job as one.

    Its components are `12+0`, `12+1`: the batch script and the job's end are the first one's.
    """
    found: dict[str, BatchState] = {}
    for line in text.splitlines():
        state = _from_squeue(line)
        job_id, plus, _ = state.job_id.partition("+")
        if not plus:
            found[state.job_id] = state
        elif job_id not in found:
            found[job_id] = replace(state, job_id=job_id)
        else:
            found[job_id] = _together(found[job_id], state)
    return list(found.values())


def _together(first: BatchState, other: BatchState) -> BatchState:
    """Return a job's state with the nodes of another component beside its own."""
    if first.nodes.isdecimal() and other.nodes.isdecimal():
        return replace(first, nodes=str(int(first.nodes) + int(other.nodes)))
    return replace(first, nodes=f"{first.nodes},{other.nodes}")


def _from_squeue(line: str) -> BatchState:
    cells, position = [], 0
    for width in _WIDTHS:
        cells.append(printable(line[position : position + width].strip()))
        position += width
    job_id, state, reason, start, count, name, nodes, _ = cells
    return BatchState(
        job_id,
        state,
        "" if reason == "None" else reason,
        "" if start in ("N/A", "Unknown") else start,
        nodes or count,
        name,
    )


def _run(submit_host: SubmitHost, words: Sequence[str]) -> Done:
    try:
        return submit_host.run(words, limit_s=_LIMIT_S)
    except FileNotFoundError as error:
        raise ClusterUnfitError(
            f"{words[0]} is not on {owner(submit_host)} PATH",
            "Name another login node."
            if submit_host.login
            else "Run it on a login node of the cluster.",
        ) from error
    except TimeoutError as error:
        raise AwayError(f"{words[0]} does not answer") from error


def _said(answer: Done) -> str:
    lines = answer.err.splitlines() or ["it says nothing"]
    return printable(lines[-1].removeprefix("slurm_load_jobs error: "))

"""The end of a generated script: the job's status is that of the rank that failed first.

srun returns the highest status of all tasks, and tasks that it ended because another had failed
count with 143 (SB-08). Its own messages in the job's log stand in the order in which tasks ended,
and say how. Where each node has a log file, that gets its last line here: the node's side has
become the rank and cannot write it.
"""

from __future__ import annotations

import os
import re
import signal

from slurm_adapter.cluster.counts import is_number
from slurm_adapter.cluster.hostlist import expand_hostlist
from slurm_adapter.contracts.place import NODE_LOGS, name_workers
from slurm_adapter.errors import NODE_LOST, BadValueError, signal_status
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_adapter.contracts.place import Workers

START = "slurm-adapter: starting"
"""How a generated script begins a run in its log."""

_MESSAGE = re.compile(r"srun: error: (?P<node>\S+): tasks? (?P<tasks>[0-9,\-]+): (?P<how>.+)")
_NODE_LOST = re.compile(r"srun: error: Node failure on (?P<node>\S+)")
_NUMBER = re.compile(r"[0-9]+")
_EXITED = re.compile(r"Exited with exit code ([0-9]+)")
_OUT_OF_MEMORY = "Out Of Memory"
_MOST_STATUS = 255
_SHOWN_LINES, _SHOWN_BYTES = 10, 4096
_USAGE = "slurm-adapter finish STATUS LOG [FOLDER [TASKS [STEP]]]"
_CHAIN = "SLURM_ADAPTER_CHAIN"
"""As `launch.life` has it: the jobs that continue each other."""
_NONE: Mapping[str, int] = {}


@record
class Ends:
    """How the tasks of a step ended, as far as srun's messages tell."""

    said: str = ""
    """What to say about the first failure; empty where no message tells of one."""
    status: int = 0
    """Exit status of the first failure."""
    first: int | None = None
    """The rank that failed first; None where that is a node, or not known."""
    by_rank: Mapping[int, int] = {}
    """Exit status of each rank that srun names; 128 + N for signal N."""
    lost: bool = False
    """Whether a node was lost, so that others' ends are not known."""
    logs_named: bool = False
    """Whether a rank has said where each node's output is."""


def main(words: Sequence[str]) -> int:
    """Return the first failure's status: `finish STATUS LOG [FOLDER [TASKS [STEP]]]`.

    STATUS is srun's own, LOG the log of the job, FOLDER the job's own, TASKS what a task is called
    where it is no rank, STEP the number of the step where it is not the first.
    """
    if not 2 <= len(words) <= 5 or not is_number(words[0]):  # noqa: PLR2004
        raise BadValueError("finish is called by generated scripts", _USAGE)
    status = int(words[0])
    ends = Ends()
    if status:
        try:
            # Lines end at \n alone: after a carriage return a rank could write anything unlabelled.
            with open(words[1], encoding="utf-8", errors="replace", newline="\n") as log:
                ends = read_ends(log, *words[3:4], first_tasks=_first_tasks(os.environ))
        except OSError:
            ends = Ends()
    said = f"slurm-adapter: {ends.said}\n" if ends.said else ""
    if len(words) > 2:  # noqa: PLR2004
        folder, workers = words[2], _workers(os.environ, *words[4:])
        if status and not ends.logs_named:
            said = _where(folder, workers) + said
        os.write(2, os.fsencode(said))
        _end_run(folder, workers, status, ends)
        _note_end(folder, ends.status or status, os.environ)
    else:
        os.write(2, os.fsencode(said))
    return ends.status or status


def read_ends(
    lines: Iterable[str], what: str = "rank", *, first_tasks: Mapping[str, int] = _NONE
) -> Ends:
    """Return how the tasks of the last run in a log ended.

    A requeued job may append to its log: the script's first line marks where a run starts. A
    lost node comes before what its loss did to ranks elsewhere.

    Args:
        lines: the log.
        what: what the tasks are called.
        first_tasks: the rank that srun calls task 0 on a node, where that is not rank 0.
    """
    ends = Ends()
    by_rank: dict[int, int] = {}
    logs_named = False
    for line in lines:
        if line.startswith(START):
            ends, by_rank, logs_named = Ends(), {}, False
        elif NODE_LOGS in line:
            logs_named = True
        elif lost := _NODE_LOST.match(line):
            ends = Ends(f"node {lost['node']} was lost", NODE_LOST, lost=True)
        elif match := _MESSAGE.match(line):
            how = match["how"].strip()
            status = _status(how)
            if status is None:
                continue
            numbers = _counted_from(first_tasks.get(match["node"], 0), match["tasks"])
            tasks = [int(task) for task in expand_hostlist(f"[{numbers}]")]
            by_rank.update(dict.fromkeys(tasks, status))
            if not ends.said:
                ranks = f"{what}{'s' if len(tasks) > 1 else ''} {numbers} on {match['node']}"
                ends = Ends(f"{ranks} failed first: {how}", status, tasks[0])
    return Ends(ends.said, ends.status, ends.first, by_rank, ends.lost, logs_named)


def _counted_from(first: int, tasks: str) -> str:
    """Return a list of task numbers, as srun writes it, with its task 0 called `first`."""
    return _NUMBER.sub(lambda number: str(int(number[0]) + first), tasks) if first else tasks


def _status(how: str) -> int | None:
    """Return the exit status that srun's words stand for: 128 + N for signal N."""
    exited = _EXITED.match(how)
    if exited is not None:
        return min(int(exited[1]), _MOST_STATUS)
    if how.startswith(_OUT_OF_MEMORY):
        return signal_status(signal.SIGKILL)
    name = how.removesuffix(" (core dumped)")
    numbers = (one for one in signal.valid_signals() if signal.strsignal(one) == name)
    return next(map(signal_status, numbers), None)


def _first_tasks(environment: Mapping[str, str]) -> dict[str, int]:
    """Return the rank that srun calls task 0 on each node of a heterogeneous job."""
    if "SLURM_HET_SIZE" not in environment:
        return {}
    from slurm_adapter.cluster.step_components import components, first_tasks

    return first_tasks(components(environment))


def _node_count(environment: Mapping[str, str]) -> int:
    if "SLURM_HET_SIZE" in environment:
        from slurm_adapter.cluster.step_components import components

        if found := components(environment):
            return sum(len(one.nodes) for one in found)
    return int(environment.get("SLURM_JOB_NUM_NODES") or 1)


def _note_end(folder: str, status: int, environment: Mapping[str, str]) -> None:
    """Tell the next job of a chain that this one ended by itself (one that is killed cannot)."""
    chain = environment.get(_CHAIN, "")
    if not chain.isalnum() or status == NODE_LOST:
        return
    with open(f"{folder}/ended-{chain}", "w") as file:
        file.write(f"{status}\n")


def _workers(environment: Mapping[str, str], step: str = "0") -> Workers:
    from slurm_adapter.node.step.step import derive_uuid

    return name_workers(derive_uuid(environment, step), _node_count(environment))


def _where(folder: str, workers: Workers) -> str:
    """Return what rank 0 says of the nodes' logs, which another's failure may have forestalled."""
    paths = [f"{folder}/log/{workers.log_name(index)}" for index in range(workers.count)]
    return f"{NODE_LOGS} {paths[0]}\n" if any(map(os.path.exists, paths)) else ""


def _end_run(folder: str, workers: Workers, status: int, ends: Ends) -> None:
    """Write the last line of each node's log, and take away what was for this run alone."""
    from slurm_adapter.node.view.directories import remove_run

    known = status == 0 or (bool(ends.by_rank) and not ends.lost)
    for index in range(workers.count):
        path = f"{folder}/log/{workers.log_name(index)}"
        try:
            log = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError:  # the rank did not get as far as that, or its output went to srun
            continue
        with open(log, "r+b", buffering=0) as file:
            if index == ends.first:
                _show_end(file.fileno(), path)
            code = ends.by_rank.get(index, 0) if known else None
            file.write(workers.last_line(index, code).encode())
    remove_run(folder, workers)


def _show_end(log: int, path: str) -> None:
    size = os.fstat(log).st_size
    text = os.pread(log, _SHOWN_BYTES, max(0, size - _SHOWN_BYTES)).decode(errors="replace")
    lines = text.splitlines()[-_SHOWN_LINES:]
    if lines:
        shown = "".join(f"  {line}\n" for line in lines)
        os.write(2, os.fsencode(f"slurm-adapter: the end of {path}:\n{shown}"))

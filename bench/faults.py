"""What is left of a job over SSH after faults of every kind, and how soon the rest is gone.

`python bench/faults.py 1000` brings about that many, one kind after the other, on three nodes.
"""

import argparse
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from subprocess import TimeoutExpired

from figure import Figure

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from sshfaults import OF_A_NODE, OF_A_RANK, OF_DEAF_RANKS, OF_THE_HEAD, Fault  # noqa: E402
from sshjobs import SshJob, left, ssh_job  # noqa: E402
from testbed import SlurmCluster, SshHosts, no_ssh, unavailable  # noqa: E402

COUNT = 40
GRACE_S, LINK_S = 0.5, 2.0
_ALLOWED_S = 2.0 + GRACE_S
_FOLDER = PurePosixPath("/home/ada/faults")
_BY_LINK = ("a cut", "a stop of the head")
_STARTING = "SIGKILL to a head that is starting"
_moments = random.Random(0)  # noqa: S311 - which ones, and the same every time


@dataclass(frozen=True)
class Seen:
    """One fault and what came of it."""

    name: str
    gone_s: float
    """From the fault until nothing ran on any node; the link's time-out left out."""
    left: list[str]
    status: int
    wanted: int
    said: list[str]


def fault_figures(count: int = COUNT) -> list[Figure]:
    """Bring about faults and say what is left; nothing without a cluster."""
    reason = unavailable() or no_ssh()
    if reason:
        sys.stderr.write(f"no figures of faults: {reason}\n")
        return []
    with SlurmCluster.start(PROJECT) as cluster:
        seen = list(_bring_about(cluster.start_ssh(), count))
    for one in seen:
        if one.left or one.status != one.wanted:
            sys.stderr.write(f"{one.name}: status {one.status}, left: {one.left}\n")
            sys.stderr.write("".join(f"  {line}\n" for line in one.said))
    times = sorted(one.gone_s for one in seen)
    remained = sum(bool(one.left) for one in seen)
    slowest = max(seen, key=lambda one: one.gone_s)
    p50, p95 = (times[int(part * (len(times) - 1))] for part in (0.5, 0.95))
    return [
        Figure(
            "faults of a job over SSH, until every process on every node is gone",
            f"{len(seen)} faults of {len({one.name for one in seen})} kinds",
            f"slowest: {slowest.name}",
            f"<= 2 s + grace ({GRACE_S:g} s), 0 left",
            f"p50 {p50:.2f} s, p95 {p95:.2f} s, max {times[-1]:.2f} s, {remained} left",
            times[-1] <= _ALLOWED_S and not remained,
        )
    ]


def _bring_about(hosts: SshHosts, count: int) -> Iterator[Seen]:
    kinds = {**OF_THE_HEAD, **OF_DEAF_RANKS, **OF_A_RANK, **OF_A_NODE}
    starting = Fault(_kill_at_once, 137)
    named = itertools.cycle([*kinds.items(), (_STARTING, starting)])
    starting_s = _starting_s(hosts)
    for name, fault in itertools.islice(named, count):
        link_s = LINK_S if name in _BY_LINK else 1000.0
        timing = ("--grace", f"{GRACE_S:g}", "--link-timeout", f"{link_s:g}")
        waits_s = _moments.uniform(0, starting_s) if name == _STARTING else None
        yield _see(hosts, name, replace(fault, options=timing), waits_s)


def _kill_at_once(job: SshJob) -> None:
    os.kill(job.head.pid, signal.SIGKILL)


def _starting_s(hosts: SshHosts) -> float:
    begun = time.monotonic()
    with ssh_job(hosts, _FOLDER, OF_A_RANK["a rank's failure"].script) as job:
        job.wait_until_up()
        return time.monotonic() - begun


def _see(hosts: SshHosts, name: str, fault: Fault, waits_s: float | None) -> Seen:
    with ssh_job(hosts, _FOLDER, fault.script, *fault.options) as job:
        if waits_s is None:
            job.wait_until_up()
        else:
            time.sleep(waits_s)
        begun = time.monotonic()
        fault.happen(job)
        remained = left(hosts, connections=fault.connections, limit_s=20.0)
        gone_s = time.monotonic() - begun - (LINK_S if name in _BY_LINK else 0.0)
        status = -1
        with suppress(TimeoutExpired):
            status = job.end().status
        return Seen(name, gone_s, remained, status, fault.status, job.said())


def main() -> int:
    """Print the figure, and return 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=COUNT, help="how many faults")
    figures = fault_figures(parser.parse_args().count)
    print("\n".join([Figure.HEADER, *(figure.row() for figure in figures)]))
    return 0 if all(figure.held for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())

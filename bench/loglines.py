"""Many lines from many hosts through the head, each with its rank before it, and into files."""

import sys
from statistics import median

from figure import Figure
from sshhosts import OURS, PDSH, Hosts, installed, unavailable

HOSTS, LINES = 16, 50_000
_RUNS = 9


def log_figures() -> list[Figure]:
    """Measure beside pdsh, which writes no files; lines are printed by a program of C."""
    reason = unavailable()
    if reason:
        sys.stderr.write(f"no figures of log lines: {reason}\n")
        return []
    if not installed(PDSH):
        return []
    per_s: dict[str, list[float]] = {OURS: [], PDSH: []}
    with Hosts.start(HOSTS) as hosts:
        hosts.run(OURS, ":")  # from now on the agent's archive is there
        for _ in range(_RUNS):
            for who, rates in per_s.items():
                rates.append(_lines_per_s(hosts, who))
    ours, theirs = median(per_s[OURS]), median(per_s[PDSH])
    ratio = median(our / their for our, their in zip(per_s[OURS], per_s[PDSH], strict=True))
    return [
        Figure(
            f"lines of {HOSTS} SSH hosts, {LINES:,} each, shown and in files",
            f"{ours:,.0f} lines/s",
            f"pdsh, no files {theirs:,.0f} lines/s",
            ">= 1.0 x",
            f"{ratio:.2f} x",
            ratio >= 1.0,
        )
    ]


def _lines_per_s(hosts: Hosts, who: str) -> float:
    """Return how many lines came in each second of the whole command, its start included."""
    took = hosts.run(who, f"seq {LINES}")
    count = hosts.output.read_bytes().count(b"\n")
    if count != HOSTS * LINES:
        raise RuntimeError(f"{who}: {count} lines of {HOSTS * LINES}")
    return count / took.wall_s

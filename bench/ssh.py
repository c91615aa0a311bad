"""A start on 250 hosts over SSH, beside what only runs a command there."""

import sys
from statistics import median

from figure import Figure
from rusage import Usage
from sshhosts import CLUSH, GROUP, OURS, PDSH, PYTHON, Hosts, installed, unavailable

COUNT = 250
_RUNS, _RUNS_OF_SLOW_PEERS = 7, 2
# What peers run: the interpreter that an agent needs, and nothing in it.
_BARE = f"{PYTHON} -I -S -c pass"
_GROUP_GOAL, _PEER_GOAL = 1.5, 2.0
_CPU_GOAL_MS, _MEMORY_GOAL_MB = 10.0, 150.0


def ssh_figures(count: int = COUNT) -> list[Figure]:
    """Measure whole commands in turn, each from its start until it has ended."""
    reason = unavailable()
    if reason:
        sys.stderr.write(f"no figures of jobs over SSH: {reason}\n")
        return []
    slow_peers = installed(PDSH, CLUSH)
    seen: dict[str, list[Usage]] = {who: [] for who in (OURS, GROUP, *slow_peers)}
    with Hosts.start(count) as hosts:
        hosts.run(OURS, ":")  # from now on the agent's archive is there
        for run in range(_RUNS):
            for who, took in seen.items():
                if who not in slow_peers or run < _RUNS_OF_SLOW_PEERS:
                    took.append(hosts.run(who, ":" if who == OURS else _BARE))
    return [
        _beside_group(count, seen),
        *(_beside_slow(count, seen, peer) for peer in slow_peers),
        _cpu(count, seen),
        _memory(count, seen),
    ]


def _beside_group(count: int, seen: dict[str, list[Usage]]) -> Figure:
    ratio = _ratio(seen[OURS], seen[GROUP])
    return Figure(
        f"start of {count} ranks on {count} SSH hosts, to the end of all",
        f"{_wall_s(seen[OURS]):.1f} s",
        f"Fabric group, bare interpreter {_wall_s(seen[GROUP]):.1f} s",
        f"<= {_GROUP_GOAL} x",
        f"{ratio:.2f} x",
        ratio <= _GROUP_GOAL,
    )


def _beside_slow(count: int, seen: dict[str, list[Usage]], peer: str) -> Figure:
    faster = 1 / _ratio(seen[OURS], seen[peer])
    return Figure(
        f"the same beside {peer}",
        f"{_wall_s(seen[OURS]):.1f} s",
        f"{peer} on {count} hosts, bare interpreter {_wall_s(seen[peer]):.1f} s",
        f">= {_PEER_GOAL:g} x faster",
        f"{faster:.1f} x faster",
        faster >= _PEER_GOAL,
    )


def _cpu(count: int, seen: dict[str, list[Usage]]) -> Figure:
    ours, group = (median(one.cpu_s for one in seen[who]) * 1000 / count for who in (OURS, GROUP))
    return Figure(
        "the head's CPU for each of these hosts",
        f"{ours:.1f} ms",
        f"Fabric group {group:.1f} ms",
        f"<= {_CPU_GOAL_MS:g} ms",
        f"{ours:.1f} ms ({ours / group:.2f} x)",
        ours <= _CPU_GOAL_MS,
    )


def _memory(count: int, seen: dict[str, list[Usage]]) -> Figure:
    ours, group = (max(one.peak_mb for one in seen[who]) for who in (OURS, GROUP))
    return Figure(
        f"the head's memory with {count} hosts, the most of all runs",
        f"{ours:.0f} MB",
        f"Fabric group {group:.0f} MB",
        f"<= {_MEMORY_GOAL_MB:g} MB",
        f"{ours:.0f} MB ({ours / group:.2f} x)",
        ours <= _MEMORY_GOAL_MB,
    )


def _wall_s(took: list[Usage]) -> float:
    return median(one.wall_s for one in took)


def _ratio(ours: list[Usage], theirs: list[Usage]) -> float:
    """Return the median of what ours took to what theirs did in the same round."""
    return median(our.wall_s / their.wall_s for our, their in zip(ours, theirs, strict=False))

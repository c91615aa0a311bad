"""100,000 names out of a node list and back, beside python-hostlist."""

import time
from collections.abc import Callable
from statistics import median

import hostlist
from figure import Figure

from slurm_adapter import expand_hostlist, fold_hostlist

LIST = "rack[0-99]n[000-999]"
_RUNS = 9


def hostlist_figures() -> list[Figure]:
    """Measure both ways, the two libraries in turn."""
    names = expand_hostlist(LIST)
    if names != hostlist.expand_hostlist(LIST) or fold_hostlist(names) != LIST:
        raise SystemExit("the two libraries do not agree on the list")
    return [
        _figure(
            "expand 100,000 names",
            lambda: expand_hostlist(LIST),
            lambda: hostlist.expand_hostlist(LIST),
        ),
        _figure(
            "fold 100,000 names",
            lambda: fold_hostlist(names),
            lambda: hostlist.collect_hostlist(names),
        ),
    ]


def _figure(name: str, ours: Callable[[], object], theirs: Callable[[], object]) -> Figure:
    pairs = [(_time_ms(ours), _time_ms(theirs)) for _ in range(_RUNS)]
    mine, other = median(own for own, _ in pairs), median(peer for _, peer in pairs)
    ratio = median(own / peer for own, peer in pairs)
    return Figure(
        name,
        f"{mine:.1f} ms",
        f"python-hostlist {other:.1f} ms",
        "<= 1.0 x",
        f"{ratio:.2f} x",
        ratio <= 1.0,
    )


def _time_ms(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000

"""What `exec` costs a rank's start, on top of an interpreter that starts and ends."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from exec_times import ADAPTER, RUNS, VIEWS, milliseconds
from figure import Figure

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from testbed import SlurmCluster, unavailable  # noqa: E402

_GOALS_MS = {"off": 35, "hosts": 50, "full": 50}
_CLI_GOAL_MS = 150.0


def start_figures() -> list[Figure]:
    """Measure exec beside a bare interpreter, and the command line's --help and --version."""
    runs = _exec_times()
    theirs = median(runs["bare"])
    figures = []
    for view in VIEWS:
        ours, goal = median(runs[view]), _GOALS_MS[view]
        added = median(our - bare for our, bare in zip(runs[view], runs["bare"], strict=True))
        figures.append(
            Figure(
                f"`exec` in a step, view {view}",
                f"{ours:.1f} ms",
                f"bare interpreter {theirs:.1f} ms",
                f"adds <= {goal} ms",
                f"adds {added:.1f} ms ({ours / theirs:.1f} x)",
                added <= goal,
            )
        )
    for option in ("--version", "--help"):
        took = median(milliseconds([str(ADAPTER), option]) for _ in range(RUNS // 2))
        figures.append(
            Figure(
                f"`slurm-adapter {option}`",
                f"{took:.0f} ms",
                f"bare interpreter {theirs:.1f} ms",
                f"<= {_CLI_GOAL_MS:.0f} ms",
                f"{took:.0f} ms ({took / theirs:.1f} x)",
                took <= _CLI_GOAL_MS,
            )
        )
    return figures


def _exec_times() -> dict[str, list[float]]:
    """Measure as an ordinary user on a node of the test cluster; without one, as who we are."""
    command = [sys.executable, str(PROJECT / "bench/exec_times.py")]
    if unavailable():
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        with SlurmCluster.start(PROJECT) as cluster:
            done = cluster.run(command, node=cluster.nodes[0], timeout=300.0)
            if done.returncode != 0:
                raise RuntimeError(done.stderr)
            said = done.stdout
    times: dict[str, list[float]] = json.loads(said)
    return times

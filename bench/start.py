"""What `exec` costs a rank's start, on top of an interpreter that starts and ends."""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from figure import Figure

ADAPTER = Path(sys.executable).with_name("slurm-adapter")
STEP = {
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}
_RUNS = 41
_GOALS_MS = {"off": 35, "full": 50}
_CLI_GOAL_MS = 150.0


def start_figures() -> list[Figure]:
    """Measure exec beside a bare interpreter, and the command line's --help and --version."""
    bare = [sys.executable, "-c", "pass"]
    runs: dict[str, list[float]] = {view: [] for view in ("bare", *_GOALS_MS)}
    with TemporaryDirectory() as folder:
        for _ in range(_RUNS):
            runs["bare"].append(_time_ms(bare))
            for view in _GOALS_MS:
                options = [f"--job-folder={folder}/job", f"--view={view}"]
                runs[view].append(_time_ms([str(ADAPTER), "exec", *options, "--", "/bin/true"]))
    theirs = median(runs["bare"])
    figures = []
    for view, goal in _GOALS_MS.items():
        ours = median(runs[view])
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
        took = median(_time_ms([str(ADAPTER), option]) for _ in range(_RUNS // 2))
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


def _time_ms(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, env={**os.environ, **STEP}, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - begin) * 1000

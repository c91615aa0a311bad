"""Times a bare interpreter and `exec` with each view in turn, in a step of one task.

Prints milliseconds as JSON. A program of its own, so that it can run as an ordinary user.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ADAPTER = Path(sys.executable).with_name("slurm-adapter")
RUNS = 41
VIEWS = ("off", "hosts", "full")
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


def main() -> None:
    """Measure and print."""
    runs: dict[str, list[float]] = {name: [] for name in ("bare", *VIEWS)}
    with TemporaryDirectory() as folder:
        for _ in range(RUNS):
            runs["bare"].append(milliseconds([sys.executable, "-c", "pass"]))
            for view in VIEWS:
                options = [f"--job-folder={folder}/job", f"--view={view}"]
                command = [str(ADAPTER), "exec", *options, "--", "/bin/true"]
                runs[view].append(milliseconds(command))
    sys.stdout.write(json.dumps(runs) + "\n")


def milliseconds(command: list[str]) -> float:
    """Run a command and return how long it took."""
    begin = time.perf_counter()
    subprocess.run(command, env={**os.environ, **STEP}, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - begin) * 1000


if __name__ == "__main__":
    main()

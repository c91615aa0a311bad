"""Running `slurm-adapter` as a process, in a Slurm step that is told by variables alone.

The step's one node is this machine, under the name localhost.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ADAPTER = str(Path(sys.executable).with_name("slurm-adapter"))

PATH = "/usr/local/bin:/usr/bin:/bin"

ALONE = {
    "PATH": PATH,
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "CUDA_VISIBLE_DEVICES": "",
}
"""A step of one task, without GPUs."""

JOB_NAME = "ma-job-60cd4f5a-ae84-5815-b355-ccd847374398"
"""MA_VJ_NAME of that step."""

FIRST_OF_TWO = {**ALONE, "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NUM_TASKS": "2"}
SECOND_OF_TWO = {**FIRST_OF_TWO, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}

Done = subprocess.CompletedProcess[str]


def run_in(
    folder: Path, argv: Sequence[str], env: Mapping[str, str], stdin: str | None = None
) -> Done:
    """Run a program to its end; bytes that are no text are kept as surrogates."""
    return subprocess.run(
        argv,
        input=stdin or "",
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        env=env,
        cwd=folder,
        check=False,
    )


def refusal(done: Done, status: int) -> str:
    """Return stderr of a run that was refused as it should: few lines, no traceback, no output."""
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert done.stderr.startswith("slurm-adapter: ")
    assert len(done.stderr.splitlines()) <= 3
    return done.stderr

"""Starting a rank is cheap: counted in files and modules, which no busy machine can change."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ADAPTER, User
from one_task import ALONE


@pytest.mark.parametrize(("view", "most"), [("off", 60), ("full", 110)])
def test_exec_opens_few_files_beside_the_interpreters_own(user: User, view: str, most: int) -> None:
    """In a real step of two nodes, with all that its variables make it read."""
    if shutil.which("strace") is None:
        pytest.skip("counting opened files needs strace: apt-get install strace")
    calls = ["strace", "-f", "-e", "trace=open,openat", "-o"]
    bare = [str(ADAPTER.parent / "python"), "-c", "pass"]
    options = ["--view", "off"] if view == "off" else []  # full is the default
    step = ["srun", "-N2", "--ntasks-per-node=1", "--gres=gpu:4", "sh", "-c"]
    ours = [str(ADAPTER), "exec", *options, "--", *bare]
    for name, command in (("bare", bare), ("exec", ours)):
        rest = f'name=$1; shift; exec {" ".join(calls)} "trace-$name-$SLURM_PROCID" "$@"'
        user.run(*step, rest, "sh", name, *command)
    for rank in range(2):
        counts = {
            name: len(re.findall(r" = \d+$", user.log(f"trace-{name}-{rank}"), re.MULTILINE))
            for name in ("bare", "exec")
        }
        # What exec becomes here is an interpreter once more: two of them are bare. And strace
        # stands between the task and its step's daemon: two looks more on the way up to that.
        assert counts["exec"] - 2 * counts["bare"] - 2 <= most


def test_a_rank_loads_none_of_the_heads_libraries(tmp_path: Path) -> None:
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", ADAPTER, "exec", "--", "true"],
        env=ALONE,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    modules = {line.rpartition("|")[2].strip() for line in loaded.splitlines()}
    assert "slurm_adapter.plan" in modules
    heavy = {"typing", "dataclasses", "inspect", "typer", "rich", "pydantic", "uuid", "shutil"}
    assert modules & heavy == set()

"""Modules, environments and the user's own lines in a batch script (SB-10), as bash runs them.

The scripts run in a real bash. Modules and conda are not installed here: what stands in for them
defines its function only when asked, minds `set -u`, and fails as they do.
"""

import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import User
from slurm_adapter import Boot, Job
from slurm_adapter.launch.script.sbatch import make_script
from slurm_adapter.record import replace

JOB = Job(program=Boot("/c/train.py"), code="/c", folder="/f", name="train")
# A shell function that is defined on request, as by the real one; it reads what is not set.
INIT = """\
: "$NOT_SET_ANYWHERE"
module() {
    [ "$1" = load ] || return 64
    shift
    for one; do
        [ "$one" != nope ] || { echo "module nope is unknown" >&2; return 1; }
        export LOADED="${LOADED:-}[$one]"
    done
}
false
"""
CONDA = """\
#!/bin/bash
[ "$*" = "shell.bash hook" ] || { echo "Run 'conda init' before 'conda activate'" >&2; exit 1; }
cat << 'HOOK'
conda() {
    : "$PS1_NOT_SET_ANYWHERE"
    [ "$2" != nope ] || { echo "EnvironmentNameNotFound: nope" >&2; return 1; }
    false  # scripts of packages need not mind `set -e`
    export CONDA_PREFIX="$2" PATH="$2/bin:$PATH"
}
conda activate base
HOOK
"""
SHOW = """\
#!/usr/bin/python3 -IS
import os, shutil
print(shutil.which("python"), os.environ.get("LOADED"), os.environ.get("OWN"))
"""


class Ran(NamedTuple):
    """How a script ended, and what a rank of it saw."""

    status: int
    rank: list[str]
    err: str


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Give a folder with an srun that shows what a rank would find, and with conda and modules."""
    folder = tmp_path / "it's $HOME & é"
    for name, text in {
        "bin/srun": SHOW,
        "bin/adapter": "#!/bin/sh\n",
        "conda/conda": CONDA,
        "modules/init/bash": INIT,
        "my env/bin/python": "#!/bin/sh\n",
        "my env/bin/activate": ": $NOT_SET\nPATH=$ENVS/bin:$PATH\nhash -r\n",
    }.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    return folder


def run(tools: Path, *, on_path: str = "", **changes: Any) -> Ran:
    """Run a job's script as slurmd would."""
    text = make_script(replace(JOB, **changes), [f"{tools}/bin/adapter"], "/").text
    environment = {
        "PATH": f"{tools}/bin{on_path}:{os.defpath}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n1",
        "MODULESHOME": f"{tools}/modules",
        "ENVS": str(tools / "my env"),
    }
    if not on_path:
        environment["CONDA_EXE"] = f"{tools}/conda/conda"
    done = subprocess.run(
        ["bash"], input=os.fsencode(text), env=environment, capture_output=True, check=False
    )
    return Ran(done.returncode, os.fsdecode(done.stdout).splitlines(), os.fsdecode(done.stderr))


class TestSb10:
    def test_nothing_is_activated_unless_asked_for(self, tools: Path) -> None:
        text = make_script(JOB, ["adapter"], "/").text
        assert not [word for word in ("conda", "module", "activate", "set +u") if word in text]
        assert run(tools).rank[0].endswith(" None None")

    def test_python_is_that_of_the_venv(self, tools: Path) -> None:
        ran = run(tools, venv=f"{tools}/my env")
        assert (ran.status, ran.rank) == (0, [f"{tools}/my env/bin/python None None"])

    @pytest.mark.parametrize("found", ["on PATH", "by CONDA_EXE"])
    def test_python_is_that_of_the_conda_environment(self, tools: Path, found: str) -> None:
        on_path = f":{tools}/conda" if found == "on PATH" else ""
        ran = run(tools, on_path=on_path, conda=f"{tools}/my env")
        assert (ran.status, ran.rank) == (0, [f"{tools}/my env/bin/python None None"])

    def test_modules_are_loaded_in_a_shell_that_reads_no_profile(self, tools: Path) -> None:
        ran = run(tools, modules=("gcc/12", "it's$HOME;id", "*"))
        assert ran.status == 0
        assert ran.rank[0].endswith(" [gcc/12][it's$HOME;id][*] None")

    def test_a_function_that_the_shell_handed_down_is_used(self, tools: Path) -> None:
        text = make_script(replace(JOB, modules=("a",)), [f"{tools}/bin/adapter"], "/").text
        environment = {
            "PATH": f"{tools}/bin:{os.defpath}",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n1",
            "MODULESHOME": f"{tools}/modules",
            "BASH_FUNC_module%%": '() { export LOADED="handed down: $*"\n}',
        }
        done = subprocess.run(
            ["bash"], input=text, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.endswith(" handed down: load a None\n")

    def test_own_lines_are_taken_as_they_are_and_come_last(self, tools: Path) -> None:
        lines = ('OWN="$LOADED, $NOT_SET"', "if true; then\n    export OWN\nfi\n")
        ran = run(tools, modules=("gcc",), prologue=lines)
        assert ran.status == 0
        assert ran.rank[0].endswith(" [gcc] [gcc], ")

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"modules": ("gcc", "nope")}, "module nope is unknown"),
            ({"venv": "/nowhere"}, "/nowhere/bin/activate: No such file"),
            ({"conda": "nope"}, "EnvironmentNameNotFound: nope"),
            ({"prologue": ("false", "true")}, ""),
        ],
        ids=["module", "venv", "conda", "prologue"],
    )
    def test_what_fails_ends_the_job_before_a_rank_starts(
        self, tools: Path, changes: dict[str, Any], said: str
    ) -> None:
        ran = run(tools, **changes)
        assert (ran.status, ran.rank) == (1, [])
        assert ran.err.startswith("slurm-adapter: starting job 7 on n1\n")
        assert said in ran.err

    @pytest.mark.parametrize("what", [{"modules": ("a",)}, {"conda": "b"}], ids=str)
    def test_what_is_not_installed_ends_it_too(self, tools: Path, what: dict[str, Any]) -> None:
        (tools / "conda/conda").unlink()
        (tools / "modules/init/bash").unlink()
        ran = run(tools, **what)
        assert (ran.status, ran.rank) == (127, [])
        assert "command not found" in ran.err

    def test_the_rest_of_the_script_still_minds_variables_that_are_not_set(
        self, tools: Path
    ) -> None:
        text = make_script(replace(JOB, prologue=("true",)), ["adapter"], "/").text
        after = text.partition("set +u\n")[2]
        assert after.index("\nset -u\n") < after.index("\nsrun ")
        assert "set +u" not in after
        assert tools


class TestOnSlurm:
    def test_ranks_on_all_nodes_get_the_venvs_python(self, user: User) -> None:
        user.write("show.py", "import sys\nprint(sys.prefix, flush=True)\n")
        user.run("/usr/bin/python3", "-m", "venv", "--without-pip", "my venv")
        job = user.run(
            *("slurm-adapter", "sbatch", "--parsable", "-N", "3", "--venv", "my venv", "show.py")
        )
        assert user.finish(job).state == "COMPLETED"
        ended = "slurm-adapter: worker-{} ended, return code 0\n"
        assert user.outputs("show") == [
            f"{user.folder}/my venv\n{ended.format(index)}" for index in range(3)
        ]

    def test_ranks_on_all_nodes_get_what_modules_and_own_lines_export(self, user: User) -> None:
        user.write("modules/init/bash", INIT)
        job = user.run(
            *("slurm-adapter", "sbatch", "--parsable", "-N", "3", "--module", "gcc/12"),
            *("--prologue", "export OWN=$SLURMD_NODENAME", "--command", 'echo "$LOADED $OWN"'),
            env={"MODULESHOME": f"{user.folder}/modules"},
        )
        assert user.finish(job).state == "COMPLETED"
        shown = {log.partition("\n")[0] for log in user.outputs("job")}
        assert shown == {f"[gcc/12] {user.cluster.nodes[0]}"}

    def test_an_environment_that_is_not_there_fails_the_job(self, user: User) -> None:
        done = user.cluster.run(
            ["slurm-adapter", "sbatch", "--parsable", "--venv", "gone", "--command", "true"],
            cwd=str(user.folder),
            env=user.environment,
        )
        assert "gone/bin/activate is not on this machine: the job ends at once if" in done.stderr
        end = user.finish(done.stdout)
        assert (end.state, end.exit_status) == ("FAILED", 1)
        assert "gone/bin/activate: No such file or directory" in user.log("slurm-adapter/job/log/*")

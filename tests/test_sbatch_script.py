"""The text of a generated sbatch script: its form, its directives, its srun line."""

import os
import shutil
import subprocess
from typing import Any

import pytest

from slurm_adapter import Argv, Boot, Command, Job, __version__
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import Channel
from slurm_adapter.launch.script.sbatch import Script, make_script
from slurm_adapter.record import replace

JOB = Job(
    program=Boot("/code/train.py"), code="/code", folder="/job", name="train", nodes=2, port=29_400
)
SMALL = f"""\
#!/bin/bash
# Written by slurm-adapter {__version__}: 2 nodes, one rank each, contract modelarts.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --output=/job/log/train-%j.out
#SBATCH --open-mode=append
#SBATCH --partition=gpu

set -euo pipefail
echo "slurm-adapter: starting job $SLURM_JOB_ID on $SLURM_JOB_NODELIST" >&2

# The job's variables; srun passes them on.
export WANDB_MODE=offline

# Each task becomes its rank; the first that fails ends the others.
set -- 0
srun --label --kill-on-bad-exit=1 --export=ALL \\
    /opt/bin/slurm-adapter exec --log \\
    --code=/code \\
    --contract=modelarts \\
    --env=WANDB_MODE \\
    --port=29400 \\
    --name=train \\
    --job-folder=/job \\
    --boot=/code/train.py -- --epochs 5 || set -- "$?"
# srun returns the highest status of all, this that of the first failure; it
# ends the nodes' logs and takes away what was for this run alone.
/opt/bin/slurm-adapter finish "$1" /proc/self/fd/2 /job
"""
HOSTILE = [
    "",
    " ",
    'say "hi" & $HOME',
    "it's $5; ok",
    "*",
    "#",
    "--",
    "-N9",
    "`id`",
    "\\",
    "é\udcff",
]
HOSTILE += ["a\nb", "\n#SBATCH --nodes=99\n", "\r", "a\r\nb", "$(id)", "||", "!x", "{a,b}", "~"]
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "command": {"program": Command('cd src && python "$1"\nwait'), "args": ("a b",)},
    "argv": {"program": Argv(("bash", "run it.sh")), "args": ("--", "x")},
    "env contract": {"contract": "env", "gpus_per_node": 8, "cpus_per_task": 72},
    "torchrun contract": {"contract": "torchrun", "gpus_per_node": 8, "cpus_per_task": 72},
    "ascend": {"accelerator": "npu", "gpus_per_node": 8, "slurm": {"gres": "tmp:1"}},
    "gres": {"gpu_option": "gres", "gpus_per_node": 8, "exclusive": True, "requeue": True},
    "modules": {"modules": ("gcc/12", "cuda/12.4")},
    "venv": {"venv": "/home/ada/my venv"},
    "conda": {"conda": "train"},
    "prologue": {"prologue": ("ulimit -n 65536", "if true; then\n    cd /\nfi\n")},
    "hostile": {
        "name": "a/b c #1 'q' \"d\" é %j $HOME",
        "args": tuple(HOSTILE),
        "env": {f"V{index}": value for index, value in enumerate(HOSTILE)} | {"MY_KEY": "'"},
        "inputs": (Channel("data_url", "/data/it's $HOME"),),
        "modules": ("it's/1;id", "$HOME", "~"),
        "conda": "/envs/it's $HOME `id`",
        "slurm": {"comment": 'a # b \\ "c"', "requeue": None},
    },
}


def script(**changes: Any) -> Script:
    return make_script(replace(JOB, **changes), ["/opt/bin/slurm-adapter"], "/base")


def srun_line(made: Script) -> str:
    return next(line for line in made.text.splitlines() if line.startswith("srun "))


def test_is_this_text() -> None:
    made = script(
        gpus_per_node=8,
        env={"WANDB_MODE": "offline"},
        args=("--epochs", "5"),
        slurm={"partition": "gpu"},
    )
    assert made.text.splitlines() == SMALL.splitlines()


@pytest.mark.parametrize("variant", VARIANTS)
class TestEveryScript:
    def test_sb_11_has_a_form_that_sbatch_takes(self, variant: str) -> None:
        made = script(**VARIANTS[variant])
        assert made.text.startswith("#!/bin/bash\n")
        assert made.text.endswith("\n")
        assert "\r\n" not in made.text

    def test_sb_11_has_its_directives_before_the_first_command(self, variant: str) -> None:
        made = script(**VARIANTS[variant])
        head, _, rest = made.text.partition("\nset -euo pipefail\n")
        lines = [line for line in head.splitlines() if line]
        assert all(line.startswith("#") for line in lines)
        written = [line for line in lines if line.startswith("#SBATCH --")]
        names = [line[len("#SBATCH --") :].partition("=")[0] for line in written]
        assert names == [directive.name for directive in made.directives]
        assert "srun " in rest

    def test_sb_04_passes_the_whole_environment_on(self, variant: str) -> None:
        made = script(**VARIANTS[variant])
        assert "--export=ALL" in srun_line(made).split()
        assert "export" not in made.summary

    def test_sb_08_ends_all_ranks_when_one_fails(self, variant: str) -> None:
        assert "--kill-on-bad-exit=1" in srun_line(script(**VARIANTS[variant])).split()

    @pytest.mark.parametrize("checker", [["bash", "-n"], ["shellcheck", "--severity=warning", "-"]])
    def test_is_correct_to(self, variant: str, checker: list[str]) -> None:
        if not shutil.which(checker[0]):
            pytest.skip(f"{checker[0]} is not installed")
        text = os.fsencode(script(**VARIANTS[variant]).text)
        done = subprocess.run(checker, input=text, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


class TestNames:
    def test_sb_01_arrive_quoted(self) -> None:
        lines = script(name="big sim #1 é").text.splitlines()
        assert '#SBATCH --job-name="big sim #1 é"' in lines
        assert '#SBATCH --output="/job/log/big sim #1 é-%j.out"' in lines

    def test_sb_01_lead_the_log_to_no_other_folder(self) -> None:
        made = script(name="a/b %j")
        assert made.summary["job-name"] == "a/b %j"
        assert made.summary["output"] == "/job/log/a_b _j-%j.out"
        assert made.folders == ("/job/log",)


class TestLogFolders:
    @pytest.mark.parametrize(
        ("output", "written", "folders"),
        [
            ("logs/%x-%j.out", "logs/%x-%j.out", ("/job/log", "/base/logs")),
            ("/a b/c/%j.out", "/a b/c/%j.out", ("/job/log", "/a b/c")),
            ("%j.out", "%j.out", ("/job/log", "/base")),
            ("${HOME}/x-%j.out", "/home/ada/x-%j.out", ("/job/log", "/home/ada")),
            ("~/logs/%j.out", "/home/ada/logs/%j.out", ("/job/log", "/home/ada/logs")),
            ("100%%/%j.out", "100%%/%j.out", ("/job/log", "/base/100%")),
            ("/dev/null", "/dev/null", ("/job/log",)),
        ],
    )
    def test_sb_02_are_named_to_be_made(
        self, output: str, written: str, folders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", "/home/ada")
        made = script(slurm={"output": output})
        assert (made.summary["output"], made.folders) == (written, folders)

    @pytest.mark.parametrize("option", ["output", "error"])
    @pytest.mark.parametrize(
        ("value", "said"),
        [
            ("$UNSET_HERE/%j.out", "names a variable that is not set"),
            ("${UNSET_HERE}/%j.out", "names a variable that is not set"),
            ("runs/%j/log.out", "holds a % pattern"),
        ],
    )
    def test_sb_02_are_refused(
        self, option: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("UNSET_HERE", raising=False)
        with pytest.raises(BadValueError, match=said) as caught:
            script(slurm={option: value})
        assert caught.value.remedy

    def test_sb_12_keep_what_a_requeued_job_wrote_before(self) -> None:
        """A site may requeue a job that did not ask for it."""
        assert script().summary["open-mode"] == "append"
        yours = {"requeue": None, "open-mode": "truncate"}
        assert script(slurm=yours).summary["open-mode"] == "truncate"


class TestVariables:
    def test_sb_03_are_exported_quoted(self) -> None:
        made = script(env={"A": "organism part", "B": "it's $5; ok", "C": "two\nlines"})
        assert "\nexport A='organism part'\nexport B='it'\\''s $5; ok'\n" in made.text
        assert "\nexport C='two\nlines'\n" in made.text

    def test_sb_03_that_are_secret_never_stand_in_the_text(self) -> None:
        made = script(env={"MY_TOKEN": "abc-123", "PLAIN": "x"})
        assert "abc-123" not in made.text
        assert made.environment == {"MY_TOKEN": "abc-123"}

    def test_sb_03_with_bad_names_are_refused(self) -> None:
        with pytest.raises(BadValueError, match="'BAD-NAME'"):
            script(env={"BAD-NAME": "x"})


class TestResources:
    def test_sb_06_memory_given_by_you_takes_the_flavors_place(self) -> None:
        assert script(memory_mib=488_281).summary["mem"] == "488281M"
        for option in ("mem", "mem-per-cpu", "mem-per-gpu"):
            made = script(memory_mib=488_281, slurm={option: "40G"})
            assert {name: value for name, value in made.summary.items() if "mem" in name} == {
                option: "40G"
            }

    @pytest.mark.parametrize(
        ("changes", "asked"),
        [
            ({}, {"gpus-per-node": "4"}),
            ({"gpu_option": "gres"}, {"gres": "gpu:4"}),
            ({"gpu_option": "gres", "slurm": {"gres": "tmp:1"}}, {"gres": "tmp:1,gpu:4"}),
            ({"gpu_option": "none"}, {}),
            ({"gpu_option": "none", "slurm": {"gpus": "a100:8"}}, {"gpus": "a100:8"}),
            ({"gpu_option": "none", "slurm": {"gres": "gpu:4"}}, {"gres": "gpu:4"}),
            ({"accelerator": "npu"}, {"gres": "npu:4"}),
            ({"accelerator": "npu", "gpu_option": "none"}, {}),
        ],
        ids=str,
    )
    def test_sb_06_gpus_are_asked_for_in_the_sites_way(
        self, changes: dict[str, Any], asked: dict[str, str]
    ) -> None:
        made = script(gpus_per_node=4, **changes)
        found = {name: made.summary[name] for name in made.summary if name.startswith("g")}
        assert found == asked
        assert len(made.directives) == len(made.summary)

    @pytest.mark.parametrize(
        ("flag", "against"), [("exclusive", "oversubscribe"), ("requeue", "no-requeue")]
    )
    def test_flags_stand_alone_once(self, flag: str, against: str) -> None:
        assert script(**{flag: True}).summary[flag] is None
        assert flag not in script().summary
        twice = script(**{flag: True}, slurm={flag: None})
        assert twice.text.count(f"#SBATCH --{flag}\n") == 1
        with pytest.raises(BadValueError, match=f"--{flag} and .* {against} exclude each other"):
            script(**{flag: True}, slurm={against: None})

    def test_whole_nodes_may_be_shared_with_yourself(self) -> None:
        made = script(exclusive=True, slurm={"exclusive": "user"})
        assert made.summary["exclusive"] == "user"

    def test_sb_06_no_memory_is_asked_for_by_default(self) -> None:
        assert not [name for name in script(gpus_per_node=4).summary if "mem" in name]

    def test_sb_07_the_contract_decides_how_many_tasks_a_node_gets(self) -> None:
        assert script(gpus_per_node=8).summary["ntasks-per-node"] == "1"
        made = script(gpus_per_node=8, contract="env")
        assert made.summary["ntasks-per-node"] == "8"
        made = script(gpus_per_node=8, cpus_per_task=72, contract="torchrun")
        tasks, cpus = made.summary["ntasks-per-node"], made.summary["cpus-per-task"]
        assert (tasks, cpus, made.summary["gpus-per-node"]) == ("1", "72", "8")

    def test_sb_09_cpus_stand_on_the_srun_line_too(self) -> None:
        for changes in ({"cpus_per_task": 8}, {"slurm": {"cpus-per-task": "8"}}):
            made = script(**changes)
            assert made.summary["cpus-per-task"] == "8"
            assert srun_line(made).count("--cpus-per-task=8") == 1

    def test_sb_09_cpus_stand_nowhere_when_not_asked_for(self) -> None:
        assert "cpus" not in script(gpus_per_node=8).text

    def test_sb_10_no_environment_is_activated(self) -> None:
        assert "conda" not in script().text

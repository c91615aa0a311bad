"""Every word and variable of a job passes through bash and srun byte for byte (SB-03)."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_adapter import Boot, Command, Job
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import Channel
from slurm_adapter.launch.script.sbatch import make_script
from slurm_adapter.node.step.options import read_words, step_job
from slurm_adapter.record import replace

# What the script starts: srun, and slurm-adapter itself at the end; both succeed.
FAKE = """\
#!/usr/bin/env -S python3 -I -S
import os, sys
for name, words in (("argv", sys.argv[1:]), ("env", [f"{n}={v}" for n, v in os.environ.items()])):
    with open(f"{sys.argv[0]}.{name}", "wb") as file:
        file.write(b"".join(os.fsencode(word) + b"\\0" for word in words))
"""

BEGINNING = b"slurm-adapter: starting job 7 on n[01-02]\n"


def job_environment(folder: Path) -> dict[str, str]:
    """Return what a batch script finds set, srun being ours."""
    path = f"{folder}:{os.defpath}"
    return {"PATH": path, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[01-02]"}


TRICKY = [*"'\"\\$`*?[]{}()!#&;|<>~=-% \t\n\r", "\r\n", "\udc80", "\udcff", "é", "日"]
TEXT = st.lists(
    st.sampled_from(TRICKY) | st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    max_size=8,
).map("".join)
WORD = TEXT | st.sampled_from(["", "--", "-n", "--boot=x", "$HOME", "`id`", "a=b", "#SBATCH -N9"])


class Started(NamedTuple):
    """What the fake srun was given, and then the fake slurm-adapter."""

    argv: list[str]
    environment: dict[str, str]
    finish: list[str]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Give a folder with a hostile name that holds a boot file of a hostile name, and an srun."""
    with tempfile.TemporaryDirectory(prefix="it's $HOME & é ") as name:
        code = Path(name, "the code")
        code.mkdir()
        (code / "tr ain.py").touch()
        (Path(name) / "my tools").mkdir()
        for program in (Path(name, "srun"), Path(adapter(Path(name)))):
            program.write_text(FAKE)
            program.chmod(0o755)
        yield Path(name)


def adapter(folder: Path) -> str:
    return f"{folder}/my tools/slurm-adapter"


def start(job: Job, folder: Path) -> Started:
    """Run the job's script with bash, as slurmd would, with the fake srun first on PATH."""
    text = make_script(job, [adapter(folder)], str(folder)).text
    environment = {**job_environment(folder), "MY_TOKEN": "s"}
    done = subprocess.run(
        ["bash"], input=os.fsencode(text), env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", BEGINNING)
    words, settings, finish = (
        _take(path)
        for path in (f"{folder}/srun.argv", f"{folder}/srun.env", f"{adapter(folder)}.argv")
    )
    return Started(words, dict(setting.split("=", 1) for setting in settings), finish)


def _take(path: str) -> list[str]:
    """Return the words that a fake wrote, for this run alone."""
    words = os.fsdecode(Path(path).read_bytes()).split("\0")[:-1]
    Path(path).unlink()
    return words


def read_back(started: Started, folder: Path) -> Job:
    """Return the job that the node side makes of its command line."""
    argv = started.argv
    start = argv.index(adapter(folder))
    assert argv[start + 1] == "exec"
    words = argv[start + 2 :]
    position = words.index("--") if "--" in words else len(words)
    options, step, strays = read_words("exec", words[:position])
    assert strays == []
    job = step_job(options, step, words[position + 1 :], str(folder))
    assert step.log is (job.contract == "modelarts")
    assert started.finish == ["finish", "0", "/proc/self/fd/2", job.folder]
    return job


def job_in(folder: Path, **changes: object) -> Job:
    code = str(folder / "the code")
    job = Job(program=Boot(f"{code}/tr ain.py"), code=code, folder=str(folder / "jobs"), name="j")
    return replace(job, **changes)


@settings(max_examples=30)
@given(args=st.lists(WORD, max_size=5).map(tuple), values=st.lists(WORD, max_size=4))
def test_arguments_and_variables_arrive(
    folder: Path, args: tuple[str, ...], values: list[str]
) -> None:
    env = {f"V{index}": value for index, value in enumerate(values)}
    job = job_in(folder, args=args, env=env)
    started = start(job, folder)
    assert read_back(started, folder) == replace(job, env={}, keep=tuple(env))
    assert {name: started.environment[name] for name in env} == env


@settings(max_examples=15)
@given(text=TEXT.map("true ".__add__), args=st.lists(WORD, max_size=3).map(tuple))
def test_commands_arrive(folder: Path, text: str, args: tuple[str, ...]) -> None:
    job = job_in(folder, program=Command(text), args=args)
    assert read_back(start(job, folder), folder) == job


@settings(max_examples=15)
@given(
    path=TEXT.map("/data/".__add__),
    python=TEXT.map(lambda text: os.path.normpath(f"/opt/py{text}")),
)
def test_channels_and_the_interpreter_arrive(folder: Path, path: str, python: str) -> None:
    inputs, outputs = (Channel("data-url", path),), (Channel("train_url", f"{path}/out"),)
    job = job_in(folder, inputs=inputs, outputs=outputs, python=python, channels_as="option")
    assert read_back(start(job, folder), folder) == job


@pytest.mark.parametrize(
    "name", ["big sim", "a/b", "it's", 'say "hi"', "$HOME", "#1", "%j", "é 日本", "\\", "*", "a=b"]
)
def test_names_arrive(folder: Path, name: str) -> None:
    job = job_in(folder, name=name, contract="env", gpus_per_node=0, port=29_400)
    started = start(job, folder)
    assert read_back(started, folder) == replace(job, gpus_per_node=None)
    assert started.argv[: started.argv.index(adapter(folder))] == [
        *("--label", "--kill-on-bad-exit=1", "--export=ALL")
    ]


@pytest.mark.parametrize("name", ["status", "IFS", "BASH_ENV", "_x", "lower"])
def test_a_variable_may_have_a_name_that_means_something_to_bash(folder: Path, name: str) -> None:
    started = start(job_in(folder, env={name: "/nowhere 7"}), folder)
    assert started.environment[name] == "/nowhere 7"


@pytest.mark.parametrize("name", ["UID", "PPID", "SHELLOPTS", "RANDOM"])
def test_a_variable_that_bash_would_not_pass_on_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(BadValueError, match=f"does not pass the variable {name} on"):
        make_script(job_in(folder, env={name: "7"}), [adapter(folder)], str(folder))


@pytest.mark.parametrize("value", ["s", ""])
def test_a_secret_comes_from_the_environment(folder: Path, value: str) -> None:
    job = job_in(folder, env={"MY_TOKEN": value})
    made = make_script(job, [adapter(folder)], str(folder))
    done = subprocess.run(
        ["bash"],
        input=os.fsencode(made.text),
        env={**job_environment(folder), **made.environment},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, BEGINNING)


def test_a_secret_that_is_missing_stops_the_job_and_is_named(folder: Path) -> None:
    made = make_script(job_in(folder, env={"MY_TOKEN": "s"}), [adapter(folder)], str(folder))
    environment = job_environment(folder)
    done = subprocess.run(
        ["bash"], input=made.text, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "MY_TOKEN: must be in the environment of sbatch" in done.stderr

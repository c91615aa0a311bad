"""`sbatch --login`: jobs of a real cluster from a laptop without Slurm, through a real sshd."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from laptops import HOME, Laptop, laptop
from testbed import SshHosts, processes
from testbed.child import Child
from testbed.names import ADA
from testbed.waiting import LONG_S, until

OPTIONS = ("--python", "python3")
LOGIN = "ada@gpu-n00"
WORD = "import os, sys, lib\nprint(lib.WORD, os.environ['VC_TASK_INDEX'])\n"
ENDS = """\
import pathlib, time
if os.environ["VC_TASK_INDEX"] == "0":
    pathlib.Path("done").touch()
    sys.exit(0)
while not pathlib.Path("done").exists():
    time.sleep(0.05)
sys.exit(7)
"""
WAITS = """\
import os, pathlib, sys, time
print("begun", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("gone on", flush=True)
"""


@pytest.fixture
def ada(ssh_hosts: SshHosts, request: pytest.FixtureRequest) -> Iterator[Laptop]:
    """Give ada a laptop of her own, with code on it."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    with laptop(ssh_hosts, name) as made:
        made.write("train.py", WORD)
        made.write("lib.py", "WORD = 'as it was'\n")
        made.write("waits.py", WAITS)
        yield made
        made.hosts.cluster.run(["scancel", "--user=ada"])
        shutil.rmtree(made.there("slurm-adapter"), ignore_errors=True)


@dataclass(frozen=True)
class Followed:
    """`sbatch --follow` at work."""

    process: Child[str]
    out: Path
    err: Path

    def wrote(self, text: str) -> bool:
        return text in self.out.read_text()

    def said(self, text: str) -> bool:
        return text in self.err.read_text()


@contextmanager
def followed(ada: Laptop, *words: str) -> Iterator[Followed]:
    """Run a command beside, its output in files; it is killed at the end, should it still run."""
    with tempfile.TemporaryDirectory() as name:
        files = Path(name, "out"), Path(name, "err")
        with files[0].open("w") as out, files[1].open("w") as err:
            process = ada.start(*words, stdout=out, stderr=err)
        with process:
            try:
                yield Followed(process, *files)
            finally:
                process.kill()


@contextmanager
def watching_command_lines(ada: Laptop) -> Iterator[set[str]]:
    """Gather the command lines of whatever runs on the login node meanwhile."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.update(processes.title(pid) for pid in ada.hosts.cluster.pids("gpu-n00"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def snapshots(ada: Laptop, job: str = "train") -> list[Path]:
    return sorted(ada.there(f"slurm-adapter/{job}/snapshots").glob("*"))


def test_a_job_is_followed_to_its_end_and_gives_its_status(ada: Laptop) -> None:
    ada.write("train.py", WORD + ENDS)
    done = ada.submits(*OPTIONS, "-N", "2", "--follow", "train.py")
    assert done.status == 7, done.err
    assert {"[0] as it was 0", "[1] as it was 1"} <= set(done.out.splitlines())
    number = done.out.split()[3]
    assert done.said[0].startswith("code: 3 files, ")
    assert done.said[1].startswith("output: /home/ada/slurm-adapter/train/log/modelarts-job-")
    assert "rank 1 on gpu-n01 failed first: Exited with exit code 7" in done.said
    assert done.said[-1] == f"job {number} ended: FAILED, exit status 7"
    assert f"{number}@{LOGIN}  train" in ada.types("jobs").out
    shown = ada.types("logs", number)
    assert (shown.status, "[1] as it was 1" in shown.out.splitlines()) == (0, True)


def test_each_job_has_the_code_as_it_was_until_jobs_clean(ada: Laptop) -> None:
    waits = (*OPTIONS, "--parsable", "--sbatch", "begin=now+1hour", "train.py")
    submitted = ada.submits(*waits)
    first = submitted.out.strip()
    assert submitted.said[1].endswith(": 3 sent")
    (copy,) = snapshots(ada)
    (copy / "my code/left by a job").write_text("")
    ada.write("lib.py", "WORD = 'as it is now'\n")
    submitted = ada.submits(*waits)
    second = submitted.out.strip()
    assert submitted.said[1].endswith(": 1 sent")
    copies = [{path.name for path in one.glob("my code/*")} for one in snapshots(ada)]
    assert copies[0] - copies[1] == {"left by a job"}
    assert {"train.py", "lib.py", "waits.py"} <= copies[1]
    ada.hosts.cluster.run(["scontrol", "update", f"jobid={first}", "starttime=now"])
    with followed(ada, "logs", first, "-f") as seen:
        assert seen.process.wait(LONG_S) == 0
        assert "[0] as it was 0" in seen.out.read_text().splitlines()
    cleaned = ada.types("jobs", "--clean")
    assert f"kept, as job {second} has not ended" in cleaned.err
    assert f"removed, of job {first}" in cleaned.err
    assert len(snapshots(ada)) == 1
    stopped = ada.types("stop", f"{second}@{LOGIN}")
    assert (stopped.status, stopped.said) == (0, [f"job {second} was stopped"])
    assert "ended 143: CANCELLED" in ada.types("jobs").out


def test_a_secret_arrives_and_stands_nowhere(ada: Laptop) -> None:
    ada.write("train.py", "import os\nprint(len(os.environ['MY_TOKEN']), os.environ['MODE'])\n")
    env = {"MY_TOKEN": "abc-never-written", "MODE": "it's $5"}
    words = ("--env", "MY_TOKEN", "--env", "MODE", *OPTIONS, "--follow", "train.py")
    with watching_command_lines(ada) as seen:
        done = ada.submits(*words, env=env)
    assert "[0] 17 it's $5" in done.out.splitlines()
    assert any("slurm-adapter agent " in line for line in seen)
    assert not any("abc-never" in line for line in seen)
    found = subprocess.run(
        ["grep", "-rl", "abc-never-written", ada.there("."), ada.here(".")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""


def test_an_unknown_host_key_is_refused_and_nothing_is_written(ada: Laptop) -> None:
    ada.here(".ssh/known_hosts").write_text("")
    with ada.hosts.covered("gpu-n00", "/home/ada") as home:
        done = ada.submits(*OPTIONS, "train.py")
        assert list(home.iterdir()) == []
    assert (done.status, done.out) == (3, "")
    assert "the host key is not known" in done.err
    assert "ssh-keyscan" in done.err


def test_a_login_node_without_slurm_is_told(ada: Laptop) -> None:
    with ada.hosts.hidden("gpu-n02", "/usr/bin/sbatch", "/usr/bin/squeue"):
        done = replace(ada, login="gpu-n02").submits(*OPTIONS, "train.py")
    assert (done.status, done.out) == (3, "")
    assert done.said == [
        "sbatch is not on gpu-n02's PATH, nor on that of a login shell there",
        "  Name a login node of the cluster with --login, or have ~/.bash_profile there put"
        " Slurm's commands on PATH.",
    ]
    assert snapshots(ada, "train") == []


def test_a_login_node_without_python_is_told(ada: Laptop) -> None:
    names = [path for path in Path("/usr/bin").glob("python3*") if path.name[-1].isdigit()]
    with ada.hosts.hidden("gpu-n02", *map(str, names)):
        done = replace(ada, login="gpu-n02").submits(*OPTIONS, "train.py")
    assert (done.status, done.out) == (3, "")
    assert "gpu-n02: it has no Python 3.10 or later on its PATH" in done.err
    assert "Name one there: --python /path/to/python3" in done.err


def test_a_login_node_that_is_not_reached_is_told(ada: Laptop) -> None:
    with ada.hosts.stopped("gpu-n00"):
        done = ada.submits(*OPTIONS, "train.py")
    assert (done.status, done.out) == (3, "")
    assert "gpu-n00 cannot be used" in done.err
    assert "connection refused" in done.err


@contextmanager
def only_in_login_shells(ada: Laptop) -> Iterator[Path]:
    """Have Slurm's commands of gpu-n02 in a folder that only a login shell has in its PATH."""
    tools = ada.there("slurm tools")
    tools.mkdir()
    commands = [f"/usr/bin/{name}" for name in ("sbatch", "squeue", "scontrol")]
    for command in commands:
        shutil.copy(command, tools)
    os.chown(tools, ADA.uid, ADA.gid)
    profile = 'echo welcome; PATH="$PATH:$HOME/slurm tools"\n'
    ada.hosts.cluster.write(".bash_profile", profile)
    try:
        with ada.hosts.hidden("gpu-n02", *commands):
            yield tools
    finally:
        ada.there(".bash_profile").unlink()
        shutil.rmtree(tools)


def test_commands_that_only_a_login_shell_has_are_found(ada: Laptop) -> None:
    with only_in_login_shells(ada):
        done = replace(ada, login="gpu-n02").submits(*OPTIONS, "--follow", "train.py")
    assert done.status == 0, done.err
    assert "[0] as it was 0" in done.out.splitlines()


def test_a_lost_connection_is_made_again_and_output_goes_on(ada: Laptop) -> None:
    go = f"{HOME}/go-on"
    words = ("sbatch", "--login", LOGIN, *OPTIONS, "--follow", "waits.py", go)
    with followed(ada, *words) as seen:
        assert until(lambda: seen.wrote("[0] begun")), seen.err.read_text()
        with ada.hosts.stopped("gpu-n00"):
            for pid in ada.hosts.sessions("gpu-n00"):
                os.kill(pid, signal.SIGKILL)
            assert until(lambda: seen.said("goes on, connecting again"))
            assert until(lambda: seen.said("connection refused; trying again"))
            ada.hosts.cluster.write("go-on", "")
        assert seen.process.wait(LONG_S) == 0
        assert seen.said(f"{LOGIN} is connected again")
        assert seen.out.read_text().count("[0] begun") == 1
        assert seen.wrote("[0] gone on")
    ada.there("go-on").unlink()


def test_a_connection_lost_while_sbatch_runs_leaves_the_copy_and_says_what_is_not_known(
    ada: Laptop,
) -> None:
    with only_in_login_shells(ada) as tools:
        name = shlex.quote(f"{HOME}/{tools.name}")
        holds = f"touch {name}/begun; while [ -d {name} ]; do sleep 0.1; done"
        (tools / "sbatch").write_text(f'#!/bin/sh\n[ "$1" != --parsable ] || {{ {holds}; }}\n')
        with followed(ada, "sbatch", "--login", "gpu-n02", *OPTIONS, "train.py") as seen:
            assert until((tools / "begun").exists), seen.err.read_text()
            for pid in ada.hosts.sessions("gpu-n02"):
                os.kill(pid, signal.SIGKILL)
            assert seen.process.wait(LONG_S) == 4
            assert seen.said("whether the job was submitted is not known")
            assert seen.said("ssh gpu-n02 squeue --me")
        assert len(snapshots(ada)) == 1


def test_a_running_job_is_stopped_and_told_from_another_clusters_of_its_id(ada: Laptop) -> None:
    number = ada.submits(*OPTIONS, "--parsable", "waits.py", "never").out.strip()
    folder = ada.here(".local/state/slurm-adapter/batch")
    record = json.loads((folder / f"{number}@{LOGIN}.json").read_text())
    ended = {**record, "login": "elsewhere", "state": "FAILED", "status": 5}
    (folder / f"{number}@elsewhere.json").write_text(json.dumps(ended))
    done = ada.types("stop", number)
    assert done.status == 2
    assert f"{number}@{LOGIN} or {number}@elsewhere" in done.err
    other = ada.types("stop", f"{number}@elsewhere")
    assert other.said == [f"job {number} has ended: FAILED"]
    own = f"{number}@{LOGIN}"
    with followed(ada, "logs", own, "-f") as seen:
        assert until(lambda: seen.wrote("[0] begun")), seen.err.read_text()
        assert ada.types("stop", own).said == [f"job {number} was stopped"]
        assert seen.process.wait(LONG_S) == 143


def test_slurms_refusal_is_shown_with_its_directive_and_no_copy_stays(ada: Laptop) -> None:
    done = ada.submits(*OPTIONS, "--sbatch", "partition=nope", "train.py")
    assert (done.status, done.out) == (3, "")
    assert "sbatch refused the job: " in done.err
    assert "(directive --partition=nope)" in done.err
    assert snapshots(ada) == []


def test_a_login_node_that_is_away_costs_a_line(ada: Laptop) -> None:
    number = ada.submits(*OPTIONS, "--parsable", "train.py").out.strip()
    with ada.hosts.stopped("gpu-n00"):
        done = ada.types("jobs")
    assert done.status == 0
    assert f"{number}@{LOGIN}" in done.out
    (warning,) = done.said
    assert warning.startswith("warning: gpu-n00 cannot be used")
    assert "connection refused" in warning


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--input", "data_url=data"), "--input data_url= 'data' is a relative path"),
        (("--job-folder", "runs"), "--job-folder 'runs' is a relative path"),
        (("--sbatch", "output=logs/%j"), "--sbatch output 'logs/%j' is a relative path"),
        (("--container", "torch.sif"), "--container 'torch.sif' is a relative path"),
        (("--script", "-"), "--script writes a script here"),
        (("--login", "gpu-n00,gpu-n01"), "does not name one machine"),
        (("--login", "gpu-n00:22"), "does not name one machine"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything(
    ada: Laptop, words: tuple[str, ...], said: str
) -> None:
    with ada.hosts.stopped("gpu-n00"):
        done = ada.submits("--dry-run" if "--script" not in words else "-q", *words, "train.py")
    assert done.status in (2, 3)
    assert said in done.err


def test_a_dry_run_connects_only_where_that_is_asked_for(ada: Laptop) -> None:
    words = (*OPTIONS, "--dry-run", "--format", "json", "--venv", "~/venv", "train.py")
    with ada.hosts.stopped("gpu-n00"):
        shown = json.loads(ada.submits(*words).out)
    assert "slurm" not in shown
    assert shown["copied"].endswith("to ada@gpu-n00, where /<home> is your home directory")
    assert ". '/<home>/venv/bin/activate' || exit" in shown["script"]
    asked = json.loads(ada.submits("--probe", *words).out)
    assert asked["slurm"]["accepts"] is True
    assert "/home/ada/venv is no virtual environment on ada@gpu-n00" in asked["warnings"]
    assert "python3 -I -S /home/ada/slurm-adapter/train/slurm-adapter-" in asked["script"]
    assert not ada.there("slurm-adapter").exists()


def test_an_image_and_its_mounts_lie_on_the_cluster(ada: Laptop) -> None:
    options = (*OPTIONS, "--dry-run", "--format", "json", "--container-mount", "~/data:/data:ro")
    image = ("--container", f"{HOME}/torch.sif")
    with ada.hosts.stopped("gpu-n00"):
        unknown = ada.submits(*options, *image, "train.py")
        assert (unknown.status, unknown.out) == (2, "")
        assert "Name it with --container-runtime pyxis|apptainer|singularity" in unknown.err
        named = ("--container-runtime", "apptainer")
        shown = json.loads(ada.submits(*options, *image, *named, "train.py").out)
    assert "--bind='/<home>/data:/data:ro'" in shown["script"]
    assert (
        "'/<home>/torch.sif' \\\n    python3 -I -S '/<home>/slurm-adapter/train/" in shown["script"]
    )
    asked = json.loads(ada.submits("--probe", *options, *image, *named, "train.py").out)
    assert any("/home/ada/torch.sif is not on ada@gpu-n00" in text for text in asked["warnings"])

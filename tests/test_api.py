"""The library: programs that start jobs, see them and end them, on real clusters and hosts."""

import inspect
import json
import os
import pickle
import pydoc
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm_adapter
from conftest import ADAPTER, PROJECT, User
from slurm_adapter import (
    AdapterError,
    Argv,
    Boot,
    Channel,
    Command,
    Container,
    HetComponent,
    Job,
    Node,
    launch_local,
    make_script,
    replace,
)
from sshruns import left
from testbed import SshHosts, until

PYTHON = str(ADAPTER.with_name("python"))
PAGE = (PROJECT / "docs" / "api.md").read_text()
# By heading; one that only imports shows names.
PROGRAMS = {
    (heading, number): textwrap.dedent(code)
    for heading, text in re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE)
    for number, code in enumerate(re.findall(r"(?:^(?:    .*)?\n)*^    .*\n", text, re.MULTILINE))
}
# A rank says each epoch; a thousand take longer than any test.
TRAIN = """\
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
arguments, _ = parser.parse_known_args()
for epoch in range(arguments.epochs):
    print("epoch", epoch, flush=True)
    time.sleep(0.1 if arguments.epochs < 10 else 1.0)
"""
JOB = Job(Command("true"), code="/", folder="/none")


def own_places(user: User) -> dict[str, str]:
    """Return where a program keeps records and output: other tests look at the machine's /tmp."""
    return {"XDG_STATE_HOME": f"{user.folder}/state", "TMPDIR": str(user.folder)}


def run_program(user: User, name: tuple[str, int], **env: str) -> str:
    """Run a program of the page in the user's directory; return what it prints."""
    user.write("train.py", TRAIN)
    user.write("program.py", PROGRAMS[name])
    return user.run(PYTHON, "program.py", env={**own_places(user), **env})


class TestPrograms:
    """Those of docs/api.md, as they stand there."""

    def test_are_all_run(self) -> None:
        assert set(PROGRAMS) == {
            ("On Slurm", 0),
            ("Over SSH", 0),
            ("Over SSH", 1),
            ("Here", 0),
            ("The job", 0),
        }

    def test_submit_follow_and_stop(self, user: User) -> None:
        program = PROGRAMS["On Slurm", 0]
        assert len([line for line in program.splitlines() if line.strip()]) <= 10
        said = run_program(user, ("On Slurm", 0)).splitlines()
        assert sorted(line for line in said if "epoch" in line) == [
            f"[{index}] epoch {epoch}" for index in (0, 1) for epoch in (0, 1)
        ]
        assert re.fullmatch(r"job \d+ ended with 0", said[-2])
        stopped = re.fullmatch(r"job (\d+) was stopped", said[-1])
        assert stopped
        assert user.finish(stopped[1]).state == "CANCELLED"

    def test_start_over_ssh(self, user: User, ssh_hosts: SshHosts) -> None:
        said = run_program(user, ("Over SSH", 0))
        assert re.search(r"^ssh-1 ended with 0$", said, re.MULTILINE)
        assert until(lambda: not left(ssh_hosts))

    def test_leave_a_job_over_ssh_alone(self, user: User, ssh_hosts: SshHosts) -> None:
        assert run_program(user, ("Over SSH", 1)) == "running as ssh-1\nstopped\n"
        assert until(lambda: not left(ssh_hosts))

    def test_start_here(self, user: User) -> None:
        assert run_program(user, ("Here", 0)) == "0 ['epoch 0', 'epoch 1']\n"

    def test_are_told_what_is_wrong(self, user: User) -> None:
        assert run_program(user, ("The job", 0)) == (
            "Job: nodes='2' is not a whole number\nGive the number itself: nodes=2.\n"
        )

    def test_name_what_there_is(self) -> None:
        shown = set(re.findall(r"`(\w+)\(", PAGE)) - {"close", "follow", "logs", "state"}
        shown -= {"stop", "wait", "help", "LogLine"}
        assert shown <= {*slurm_adapter.__all__, "find_job"}


ATTACHED = """\
import signal, sys, threading
from slurm_adapter import Boot, Job, launch_ssh
here = {here!r}
job = Job(Boot(here + "/train.py"), code=here, folder=here + "/runs", args=("--epochs", "1000"))
before = [signal.getsignal(number) for number in range(1, 32)]
def run():
    global handle
    handle = launch_ssh(job, "gpu-n[00-02]")
worker = threading.Thread(target=run)
worker.start()
worker.join()
assert before == [signal.getsignal(number) for number in range(1, 32)]
print(handle.state().word, flush=True)
"""


class TestAJobOverSsh:
    """That a program watches itself."""

    @pytest.fixture
    def program(self, user: User, ssh_hosts: SshHosts) -> Iterator[str]:
        user.write("train.py", TRAIN)
        assert until(lambda: not left(ssh_hosts))
        yield ATTACHED.format(here=str(user.folder))
        assert until(lambda: not left(ssh_hosts))

    def run(self, user: User, program: str) -> str:
        user.write("program.py", program)
        return user.run(PYTHON, "program.py", env=own_places(user))

    def end(self, user: User) -> dict[str, object]:
        (path,) = user.outside("state").glob("slurm-adapter/jobs/ssh-1/end.json")
        document: dict[str, object] = json.loads(path.read_text())
        return document

    def test_is_stopped(self, user: User, program: str) -> None:
        more = "state = handle.stop()\nprint(state.word, state.exit_status, state.detail)\n"
        said = self.run(user, program + more).splitlines()
        assert said[0] == "running"
        assert said[1].startswith("stopped 143 stopped: ending rank 0 on gpu-n00, ")

    def test_ends_with_its_block(self, user: User, program: str) -> None:
        more = (
            "try:\n    with handle:\n        raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n"
            "    print(handle.state().word)\n"
        )
        assert self.run(user, program + more) == "running\nstopped\n"

    def test_ends_with_its_program(self, user: User, program: str) -> None:
        assert self.run(user, program) == "running\n"
        assert self.end(user)["stopped"] is True

    def test_ends_though_its_program_was_killed(self, user: User, program: str) -> None:
        more = "import os\nos.kill(os.getpid(), signal.SIGKILL)\n"
        user.write("program.py", program + more)
        with user.start(PYTHON, "program.py") as started:
            assert started.communicate()[0] == "running\n"
        assert started.returncode == -signal.SIGKILL

    def test_that_fails_is_seen_to(self, user: User, program: str) -> None:
        user.write("train.py", "import os, sys\nsys.exit(7 * (os.environ['VC_TASK_INDEX'] == '1'))")
        more = "print(handle.wait(), handle.state().word, handle.state().detail)\n"
        said = self.run(user, program + more).splitlines()
        assert said[-1].startswith("7 failed rank 1 on gpu-n01 failed first: exit status 7")

    def test_whose_hosts_cannot_be_reached_is_an_error(
        self, user: User, ssh_hosts: SshHosts
    ) -> None:
        del ssh_hosts
        user.write("train.py", TRAIN)
        program = ATTACHED.format(here=str(user.folder)).replace("gpu-n[00-02]", "nowhere.invalid")
        program = program.replace(
            'handle = launch_ssh(job, "nowhere.invalid")',
            'try:\n        handle = launch_ssh(job, "nowhere.invalid", detach=DETACH)\n'
            "    except AdapterError as error:\n        print(error.exit_status, error.found)\n"
            "        sys.exit()",
        ).replace("Boot, Job", "AdapterError, Boot, Job")
        texts = {
            self.run(
                user,
                f"DETACH = {detach}\n{program}raise SystemExit\n".replace(
                    "print(handle.state().word, flush=True)", ""
                ),
            )
            for detach in (False, True)
        }
        assert len(texts) == 1
        assert re.match(r"\d nowhere.invalid", texts.pop())


class TestAJobHere:
    @pytest.fixture
    def job(self, tmp_path: Path) -> Job:
        (tmp_path / "train.py").write_text(TRAIN)
        boot = Boot(str(tmp_path / "train.py"))
        return Job(boot, code=str(tmp_path), folder=str(tmp_path / "runs"), python=PYTHON, nodes=2)

    def test_is_followed_to_its_end(self, job: Job) -> None:
        lines: list[tuple[int | None, str]] = []
        with launch_local(job) as handle:
            assert handle.state().word == "running"
            assert handle.follow(lines.append) == 0
            assert handle.state() == slurm_adapter.JobState("done", 0, "done")
            assert sorted(lines) == sorted(handle.logs())
        assert sorted(lines) == [
            (rank, f"epoch {epoch}") for rank in range(2) for epoch in range(2)
        ]

    def test_that_fails_tells_so(self, job: Job) -> None:
        with launch_local(replace(job, program=Command("exit 3"), nodes=1)) as handle:
            assert handle.wait() == 3
            assert handle.state().word == "failed"
            assert handle.state().detail == "rank 0 failed first: exit status 3"

    def test_is_stopped(self, job: Job) -> None:
        with launch_local(replace(job, args=("--epochs", "1000"))) as handle:
            assert handle.stop().word == "stopped"
            assert handle.wait() == 143

    def test_that_cannot_be_started_is_an_error(self, job: Job) -> None:
        with pytest.raises(AdapterError, match="no_such_python") as raised:
            launch_local(replace(job, python="no_such_python"))
        assert raised.value.exit_status in (2, 3)

    def test_ends_with_a_program_that_is_killed(self, job: Job, tmp_path: Path) -> None:
        mark = f"--mark-{os.getpid()}"
        job = replace(job, args=("--epochs", "1000", mark))
        (tmp_path / "job").write_bytes(pickle.dumps(job))
        program = (
            "import os, pickle, signal, slurm_adapter\n"
            "job = pickle.load(open('job', 'rb'))\n"
            "handle = slurm_adapter.launch_local(job)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
        assert done.returncode == -signal.SIGKILL

        def none_left() -> bool:
            return not [
                path
                for path in Path("/proc").glob("[0-9]*/cmdline")
                if mark.encode() in _read(path)
            ]

        assert until(none_left)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class TestTheJob:
    PARTS = (
        Boot("/a/b.py"),
        Command("true"),
        Argv(("true",)),
        Channel("data", "/data"),
        Container("image.sif", mounts=("/data",)),
        HetComponent(nodes=2, slurm={"partition": "big"}),
        Node("gpu01", env=slurm_adapter.Node("x").env),
        replace(JOB, env={"A": "b"}, nodes=2, slurm={"exclusive": None}),
    )

    @pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
    def test_can_be_pickled(self, part: object) -> None:
        assert pickle.loads(pickle.dumps(part)) == part  # noqa: S301 - made here

    @pytest.mark.parametrize(
        ("field", "value", "remedy"),
        [
            ("nodes", "2", "Give the number itself: nodes=2."),
            ("nodes", True, ""),
            ("name", 3, ""),
            ("args", "--epochs 5", "Give a tuple of words: args=('--epochs', '5')."),
            ("args", ["--epochs"], "Give a tuple: args=tuple(...)."),
            ("code", Path("/code"), "Give it as text: code=str(...)."),
            ("program", "train.py", ""),
            ("env", {"A": 1}, ""),
            ("inputs", (("data", "/data"),), ""),
            ("components", (1,), ""),
        ],
    )
    def test_refuses_what_is_no_value_for_a_field(
        self, field: str, value: object, remedy: str
    ) -> None:
        with pytest.raises(AdapterError) as raised:
            replace(JOB, **{field: value})
        assert raised.value.found.startswith(f"Job: {field}={value!r} is not a")
        assert raised.value.remedy == remedy or "help(slurm_adapter.Job)" in raised.value.remedy

    def test_is_explained_by_help(self) -> None:
        text = pydoc.plain(pydoc.render_doc(Job))
        assert "Job(program: Program, code: str, folder: str, name: str = 'job'" in text
        assert "code: str\n |          The code directory, absolute." in text
        for part in (*map(type, self.PARTS), Job):
            assert list(inspect.signature(part).parameters) == list(part.__annotations__)

    def test_is_written_as_a_script_without_slurm(self, tmp_path: Path) -> None:
        job = replace(JOB, folder=str(tmp_path), code=str(tmp_path), nodes=2)
        assert "#SBATCH --nodes=2\n" in make_script(job).text
        assert not list(tmp_path.iterdir())


def test_the_library_loads_when_asked() -> None:
    """A rank imports the package, too."""
    program = (
        "import sys, slurm_adapter; assert set(dir(slurm_adapter)) >= {'submit', 'find_job'};"
        "assert not any('launch' in name for name in sys.modules);"
        "[getattr(slurm_adapter, name) for name in slurm_adapter.__all__]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

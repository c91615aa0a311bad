"""A local job's processes are ended with it even when it cannot do that itself any more.

It is two processes, or three: its user's, one that does the work, and one that keeps a PID
namespace where that is allowed. A filter forbids it in some tests, as containers have it.
"""

import contextlib
import os
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commandline import ADAPTER, environment, running
from conftest import User
from steps import SCRIPTS
from testbed.child import Child
from testbed.processes import with_variable
from testbed.waiting import until

MARK = "THE_JOB_IS"
FORBIDDING = "forbid_call.py"
# What does not listen: a rank, its child in a session of its own, an orphan in another one.
STUBBORN = """\
trap '' TERM INT HUP
setsid sh -c 'echo up; exec sleep 1000' &
(setsid sh -c 'echo up; exec sleep 1000' &)
echo up
sleep 1000
"""
COUNT = 4
"""Processes of that; the rank waits for one in its own session."""
# What saves its work when it is told to end, as soon as somebody writes into a pipe.
SAVING = (
    "trap 'read -r _ <go; echo saved; exit 0' TERM; echo up; while :; do sleep 1000 & wait; done"
)


def options(folder: object) -> list[str]:
    return ["local", "--env", f"{MARK}={folder}", "--command"]


@contextlib.contextmanager
def stubborn(
    folder: Path, *, forbidden: bool = False
) -> Iterator[tuple["subprocess.Popen[bytes]", list[int]]]:
    """Start a job that does not listen; give what was started, and the processes below it."""
    wrapper = [str(SCRIPTS / FORBIDDING), "unshare"] if forbidden else []
    words = [*wrapper, ADAPTER, *options(folder), STUBBORN]
    with Child(
        words, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout
            wait_until_up(process.stdout.readline, folder)
            yield process, own_processes(process.pid)
        finally:
            process.kill()
            end_all(folder)


def wait_until_up(readline: Callable[[], str | bytes], folder: object) -> None:
    assert [readline()[4:6] for _ in range(3)] in (["up"] * 3, [b"up"] * 3)
    # The rank says so before it starts what it waits for.
    assert until(lambda: len(with_variable(MARK, str(folder))) == COUNT)


def own_processes(pid: int) -> list[int]:
    """Return the command's own processes, its user's first."""
    found = [pid]
    with contextlib.suppress(OSError):
        while below := Path(f"/proc/{found[-1]}/task/{found[-1]}/children").read_text().split():
            if not is_ours(int(below[0])):
                break
            found.append(int(below[0]))
    return found


def is_ours(pid: int) -> bool:
    return ADAPTER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def end_all(folder: object) -> None:
    for pid in with_variable(MARK, str(folder)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def nothing_is_left(folder: object) -> bool:
    return until(lambda: with_variable(MARK, str(folder)) == [])


class TestNothingStays:
    @pytest.mark.parametrize("forbidden", [False, True], ids=["", "without namespaces"])
    def test_of_root_s_job_that_is_killed(self, tmp_path: Path, *, forbidden: bool) -> None:
        with stubborn(tmp_path, forbidden=forbidden) as (process, _):
            process.kill()
            assert nothing_is_left(tmp_path)

    @pytest.mark.parametrize("forbidden", [False, True], ids=["", "without namespaces"])
    def test_of_an_ordinary_user_s_job_that_is_killed(self, user: User, *, forbidden: bool) -> None:
        user.write(FORBIDDING, (SCRIPTS / FORBIDDING).read_text(), 0o755)
        wrapper = [f"./{FORBIDDING}", "unshare"] if forbidden else []
        with user.start(*wrapper, ADAPTER, *options(user.folder), STUBBORN) as process:
            try:
                assert process.stdout
                wait_until_up(process.stdout.readline, user.folder)
                process.kill()
                assert nothing_is_left(user.folder)
            finally:
                process.kill()
                end_all(user.folder)

    @pytest.mark.parametrize("forbidden", [False, True], ids=["", "without namespaces"])
    def test_when_it_is_the_working_process_that_is_killed(
        self, tmp_path: Path, *, forbidden: bool
    ) -> None:
        with stubborn(tmp_path, forbidden=forbidden) as (process, own):
            assert len(own) == (2 if forbidden else 3)
            os.kill(own[-1], signal.SIGKILL)
            assert process.wait() == 128 + signal.SIGKILL
            assert with_variable(MARK, str(tmp_path)) == []

    def test_when_all_that_bears_the_command_s_name_is_killed(self, tmp_path: Path) -> None:
        with stubborn(tmp_path) as (_, own):
            for pid in reversed(own):
                os.kill(pid, signal.SIGKILL)
            assert nothing_is_left(tmp_path)

    def test_when_its_process_group_is_killed_without_namespaces(self, tmp_path: Path) -> None:
        """As `timeout --signal KILL` does it."""
        killing = ["timeout", "--signal=KILL", "1000"]
        with Child(
            [*killing, SCRIPTS / FORBIDDING, "unshare", ADAPTER, *options(tmp_path), STUBBORN],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
        ) as process:
            try:
                assert process.stdout
                wait_until_up(process.stdout.readline, tmp_path)
                os.killpg(process.pid, signal.SIGKILL)
                assert nothing_is_left(tmp_path)
            finally:
                end_all(tmp_path)


class TestASignalCountsOnce:
    def test_that_reaches_each_of_its_processes(self, tmp_path: Path) -> None:
        """As a scheduler sends it, or pkill."""
        go = tmp_path / "slurm-adapter/job/go"
        go.parent.mkdir(parents=True)
        os.mkfifo(go)
        with running(*options(tmp_path), SAVING, cwd=tmp_path) as process:
            assert process.stdout
            assert process.stderr
            assert process.stdout.readline() == b"[0] up\n"
            for pid in own_processes(process.pid):
                os.kill(pid, signal.SIGTERM)
            assert b"SIGTERM: ending rank 0; once more" in process.stderr.readline()
            go.write_text("on\n")
            assert process.wait() == 128 + signal.SIGTERM
            assert process.stdout.read() == b"[0] saved\n"

    def test_where_proc_shows_the_processes_of_another_namespace(self, tmp_path: Path) -> None:
        """As some containers have it: its number there is not the one to send to."""
        inside = '"$@" & read -r _; kill -TERM $!; wait $!; echo "then $?"'
        words = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", inside, "sh", ADAPTER]
        with Child(
            [*words, *options(tmp_path), "echo up; exec sleep 1000"],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout
            try:
                assert process.stdout.readline() == b"[0] up\n"
                assert process.communicate(b"\n")[0] == b"then 143\n"
            finally:
                process.kill()


class TestAtATerminal:
    """Under a shell with job control, which starts it, is given the keys and tells what it sees."""

    SHELL = 'slurm-adapter "$@"; echo "first $?"; read -r _; fg; echo "then $?"'

    @pytest.fixture(params=[False, True], ids=["", "without namespaces"])
    def keys(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["Keys"]:
        wrapper = [str(SCRIPTS / FORBIDDING), "unshare"] if request.param else []
        ours, theirs = os.openpty()
        plain = termios.tcgetattr(theirs)
        plain[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, plain)
        words = ["setsid", "--ctty", *wrapper, "bash", "-mc", self.SHELL, "bash"]
        with Child(
            [*words, *options(tmp_path), "echo up; exec sleep 1000"],
            cwd=tmp_path,
            env=environment(TERM="dumb"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            try:
                yield Keys(ours, process, tmp_path)
            finally:
                process.kill()
                end_all(tmp_path)
                os.close(ours)

    def test_stop_goes_on_and_interrupt_mean_what_they_mean_to_one_process(
        self, keys: "Keys"
    ) -> None:
        keys.wait_for("[0] up")
        keys.press(b"\x1a")
        keys.wait_for(f"first {128 + signal.SIGTSTP}")
        assert until(lambda: state(keys.own()[0]) == state(keys.own()[-1]) == "T")
        keys.press(b"\n")
        assert until(lambda: state(keys.own()[-1]) == "S")
        keys.press(b"\x03")
        keys.wait_for("SIGINT: ending rank 0; once more kills at once")
        keys.wait_for("then 130")
        assert nothing_is_left(keys.folder)

    def test_killed_while_it_is_stopped_it_leaves_nothing(self, keys: "Keys") -> None:
        keys.wait_for("[0] up")
        keys.press(b"\x1a")
        keys.wait_for(f"first {128 + signal.SIGTSTP}")
        os.kill(keys.own()[0], signal.SIGKILL)
        assert nothing_is_left(keys.folder)


class Keys:
    """A keyboard and a screen, with a shell behind them."""

    def __init__(self, terminal: int, shell: "subprocess.Popen[bytes]", folder: Path) -> None:
        self._terminal, self._shell, self.folder = terminal, shell, folder
        self._shown = b""

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def wait_for(self, text: str) -> None:
        """Read until the text is shown; what stood before it is forgotten."""
        while text.encode() not in self._shown:
            self._shown += os.read(self._terminal, 1 << 16)
        self._shown = self._shown.partition(text.encode())[2]

    def own(self) -> list[int]:
        """Return the command's own processes, its user's first."""
        return own_processes(self._shell.pid)[1:]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][1]

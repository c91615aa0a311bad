"""However a local job ends, it says why, and nothing that it started stays."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from commandline import ADAPTER, adapter, environment, running
from testbed.child import Child
from testbed.processes import with_variable
from testbed.waiting import LONG_S

# A child in a session of its own, whose output is not ours: only a walk of the tree finds it.
FAMILY = """\
import os, signal, subprocess, sys
child = subprocess.Popen(["sleep", "1000"], start_new_session=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("both are there", file=sys.stderr)
open(os.path.join(os.path.dirname(__file__), "watched")).close()  # a pipe: until they are
"""
TICK = "import time\nwhile True:\n    print('tick')\n    time.sleep(0.01)\n"
DEAF = """\
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    signal.pause()
"""


def belonging(folder: Path) -> tuple[str, str]:
    """Return the options by which a job's processes are found, whatever number they know."""
    return "--env", f"FAMILY_OF={folder}"


class Family:
    """A job's ranks and their children, watched: they can be asked whether they are gone."""

    def __init__(self, folder: Path, count: int) -> None:
        """Take over `count` processes of the job to which `belonging` gave words."""
        pids = with_variable("FAMILY_OF", str(folder))
        assert len(pids) == count
        self._watched = [os.pidfd_open(pid) for pid in pids]

    def gone(self, limit_s: float = 0) -> bool:
        """Say whether all are gone within `limit_s`."""
        return all(select.select([one], [], [], limit_s)[0] for one in self._watched)

    def close(self) -> None:
        for one in self._watched:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(one, signal.SIGKILL)
            os.close(one)


@contextlib.contextmanager
def family(
    folder: Path, after: str, *words: str, stdout: int = subprocess.PIPE
) -> Iterator[tuple[subprocess.Popen[bytes], Family]]:
    """Start a job whose one rank has a child in another session and then does `after`."""
    (folder / "family.py").write_text(FAMILY + after)
    os.mkfifo(folder / "watched")
    words = ("local", *belonging(folder), *words, "family.py")
    with running(*words, cwd=folder, stdout=stdout) as process:
        assert process.stderr
        assert process.stderr.readline() == b"[0] both are there\n"
        found = Family(folder, 2)
        os.close(os.open(folder / "watched", os.O_WRONLY))
        try:
            yield process, found
        finally:
            found.close()


def end(process: subprocess.Popen[bytes]) -> tuple[int, list[str]]:
    """Wait for the launcher and return its status and what it said itself on stderr."""
    _, err = process.communicate(timeout=LONG_S)
    said = [line for line in err.decode().splitlines() if line.startswith("slurm-adapter: ")]
    return process.returncode, said


class TestTheFirstFailure:
    @pytest.mark.parametrize(
        ("failure", "status", "how"),
        [
            ("exit 3", 3, "exit status 3"),
            ("exit 255", 255, "exit status 255"),
            ("kill -SEGV $$", 139, "signal SIGSEGV"),
            ("kill -KILL $$", 137, "signal SIGKILL"),
        ],
    )
    def test_ends_the_others_and_gives_its_status(
        self, tmp_path: Path, failure: str, status: int, how: str
    ) -> None:
        command = f'test "$VC_TASK_INDEX" = 1 && {failure}; exec sleep 1000'
        done = adapter("local", "-N", "3", "--command", command, cwd=tmp_path)
        assert (done.status, done.out) == (status, "")
        assert done.err == (f"slurm-adapter: rank 1 failed first: {how}; ending rank 0, rank 2\n")

    def test_lets_the_others_save_their_work(self, tmp_path: Path) -> None:
        command = (
            'if [ "$VC_TASK_INDEX" = 1 ]; then read -r _ <ready; exit 3; fi;'
            " trap 'echo saved; exit 0' TERM; echo >ready; sleep 1000 & wait"
        )
        (tmp_path / "slurm-adapter/job").mkdir(parents=True)
        os.mkfifo(tmp_path / "slurm-adapter/job/ready")
        done = adapter("local", "-N", "2", "--command", command, cwd=tmp_path)
        assert (done.status, done.out) == (3, "[0] saved\n")

    def test_of_the_only_rank_is_told_too(self, tmp_path: Path) -> None:
        done = adapter("local", "--command", "exit 7", cwd=tmp_path)
        assert done.status == 7
        assert done.err == "slurm-adapter: rank 0 failed first: exit status 7\n"

    def test_kills_after_the_grace_what_does_not_listen(self, tmp_path: Path) -> None:
        (tmp_path / "deaf.py").write_text(DEAF)
        with running("local", "-N", "2", "--grace", "0.1", "deaf.py", cwd=tmp_path) as process:
            assert process.stdout
            lines = [process.stdout.readline(), process.stdout.readline()]
            assert sorted(lines) == [b"[0] deaf\n", b"[1] deaf\n"]
            process.send_signal(signal.SIGTERM)
            assert end(process)[0] == 143


class TestASignal:
    @pytest.mark.parametrize(
        ("number", "status"),
        [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
        ids=["SIGINT", "SIGTERM", "SIGHUP"],
    )
    def test_ends_the_ranks_and_is_the_status(
        self, tmp_path: Path, number: signal.Signals, status: int
    ) -> None:
        with family(tmp_path, "signal.pause()\n") as (process, started):
            process.send_signal(number)
            assert end(process) == (
                status,
                [f"slurm-adapter: {number.name}: ending rank 0; once more kills at once"],
            )
            assert started.gone()

    def test_that_comes_twice_kills_at_once(self, tmp_path: Path) -> None:
        words = ["local", "--grace", "1000", "deaf.py"]
        (tmp_path / "deaf.py").write_text(DEAF)
        with running(*words, cwd=tmp_path) as process:
            assert process.stdout
            assert process.stderr
            assert process.stdout.readline() == b"[0] deaf\n"
            process.send_signal(signal.SIGINT)
            assert process.stderr.readline().startswith(b"slurm-adapter: SIGINT: ending rank 0")
            process.send_signal(signal.SIGINT)
            assert end(process)[0] == 130

    @pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=["nohup", "cmd &"])
    def test_that_it_was_started_to_ignore_changes_nothing(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        command = f"trap '' {number.name[3:]}; exec {ADAPTER} local --command 'echo up; read _ <go'"
        os.mkfifo(tmp_path / "go")
        words = ["sh", "-c", command.replace("<go", f"<{tmp_path}/go")]
        with Child(words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stdout.readline() == b"[0] up\n"
            process.send_signal(number)
            (tmp_path / "go").write_text("on\n")
            assert process.wait(LONG_S) == 0


class TestNothingStays:
    """Not even a child in a session of its own."""

    def test_when_the_rank_ends_well(self, tmp_path: Path) -> None:
        with family(tmp_path, "") as (process, started):
            assert end(process) == (0, [])
            assert started.gone()

    def test_when_the_rank_fails(self, tmp_path: Path) -> None:
        with family(tmp_path, "sys.exit(3)\n") as (process, started):
            assert end(process) == (3, ["slurm-adapter: rank 0 failed first: exit status 3"])
            assert started.gone()

    def test_when_the_rank_does_not_listen(self, tmp_path: Path) -> None:
        with family(tmp_path, DEAF, "--grace", "0.1") as (process, started):
            assert process.stdout
            assert process.stdout.readline() == b"[0] deaf\n"
            process.send_signal(signal.SIGINT)
            assert end(process)[0] == 130
            assert started.gone()

    def test_when_a_rank_ended_well_that_left_something_behind(self, tmp_path: Path) -> None:
        command = "echo up; trap '' TERM; sleep 1000 & exit 0"
        done = adapter("local", "--grace", "0.1", "--command", command, cwd=tmp_path)
        assert (done.status, done.out, done.err) == (0, "[0] up\n", "")

    def test_when_nobody_reads_any_more(self, tmp_path: Path) -> None:
        with family(tmp_path, TICK) as (process, started):
            assert process.stdout
            process.stdout.close()
            assert process.wait(timeout=LONG_S) == 128 + signal.SIGPIPE
            assert started.gone()

    def test_when_the_disk_for_the_output_is_full(self, tmp_path: Path) -> None:
        full = os.open("/dev/full", os.O_WRONLY)
        with family(tmp_path, TICK, stdout=full) as (process, started):
            os.close(full)
            assert process.stderr
            said = process.stderr.read().decode()
            assert process.wait(timeout=LONG_S) != 0
            assert "No space left on device" in said
            assert "Traceback" not in said
            assert started.gone()

    def test_when_it_is_stopped_while_nobody_reads_what_it_prints(self, tmp_path: Path) -> None:
        """Its own write waits then, and signals do not end a write."""
        flood = "print('x' * 4_000_000)\nsignal.pause()\n"
        with family(tmp_path, flood) as (process, started):
            assert process.stdout
            select.select([process.stdout], [], [], LONG_S)
            process.send_signal(signal.SIGTERM)
            assert started.gone(LONG_S)
            process.send_signal(signal.SIGTERM)
            assert process.wait(LONG_S) == 143

    def test_when_one_of_several_cannot_be_started(self, tmp_path: Path) -> None:
        script = tmp_path / "python"
        script.write_text("#!/nowhere/interpreter\n")
        script.chmod(0o755)
        (tmp_path / "train.py").touch()
        done = adapter("local", "-N", "2", "--python", str(script), "train.py", cwd=tmp_path)
        assert (done.status, done.out) == (3, "")
        assert f"cannot run {script}: No such file or directory" in done.err

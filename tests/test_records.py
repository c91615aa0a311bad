"""What is kept of a job here: found again, removed in time, and not in the way of its end."""

import dataclasses
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_adapter.cli.background import run_in_background
from slurm_adapter.cli.jobs import list_jobs
from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.launch.ssh.records import (
    Host,
    JobRecord,
    Record,
    head_lives,
    head_name,
    new_record,
    remove_old,
    state_folder,
)
from slurm_adapter.node.identity import identity, lives
from testbed.child import Child

MONTH_S = 31 * 86_400
HOSTS = (Host("n1", None, None, None, "python3", 0, 1),)
JOB = JobRecord("train", "run", HOSTS, 0.0, False, 10.0, 30.0, head_name())  # noqa: FBT003


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give where records are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return state_folder(os.environ)


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow: a write fails as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def dead_head() -> str:
    """Return the words for a process that has ended."""
    with Child(["/bin/sleep", "1000"]) as child:
        words = identity(child.pid)
        child.kill()
    return words


def age(path: Path) -> None:
    """Make a file or folder a month old."""
    os.utime(path, (time.time() - MONTH_S,) * 2)


def unwanted(text: str) -> None:
    """Be told what nobody should have to say."""
    raise AssertionError(text)


class TestAProcess:
    def test_is_told_from_every_other(self) -> None:
        assert lives(identity(os.getpid())) is True
        assert lives(dead_head()) is False
        words = identity(os.getpid())
        assert lives(words[:-1] + "x") is False  # another one of its number
        assert lives("elsewhere/" + words.partition("/")[2]) is None
        assert not lives("")
        assert not lives(f"{os.uname().nodename}/broken")

    def test_does_not_live_as_a_zombie(self) -> None:
        with Child(["/bin/sleep", "1000"]) as child:
            words = identity(child.pid)
            assert head_lives(words) is True
            child.kill()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert head_lives(words) is False


class TestAFullDisk:
    def test_stops_the_start(self, folder: Path) -> None:
        record = new_record(folder)
        with full_disk(), pytest.raises(ClusterUnfitError) as raised:
            record.write(JOB)
        assert raised.value.found.startswith(f"the job's record cannot be kept in {folder}/ssh-1: ")
        assert "Make room there, or name another place with XDG_STATE_HOME." in str(raised.value)
        assert not list(folder.iterdir())

    def test_changes_nothing_about_an_end(self, folder: Path) -> None:
        record = new_record(folder)
        record.write(JOB)
        said: list[str] = []
        with full_disk():
            record.end(0, "done", said.append)
        assert said == [
            f"warning: how ssh-1 ended cannot be kept in {folder}/ssh-1: File too large"
        ]
        assert record.ended() is None
        assert [path.name for path in record.folder.iterdir()] == ["job.json"]


class TestAnOldRecord:
    def test_is_removed_a_month_after_the_end(self, folder: Path) -> None:
        records = [new_record(folder) for _ in range(2)]
        for record in records:
            record.write(JOB)
            record.end(0, "done", unwanted)
        age(records[0].folder / "end.json")
        remove_old(folder, unwanted)
        assert [path.name for path in folder.iterdir()] == ["ssh-2"]

    def test_of_a_job_whose_head_was_killed_is_removed_in_time(self, folder: Path) -> None:
        record = new_record(folder)
        record.write(dataclasses.replace(JOB, head=dead_head()))
        remove_old(folder, unwanted)
        assert record.ended() == (4, "its head was killed")
        age(record.folder / "end.json")
        remove_old(folder, unwanted)
        assert not record.folder.exists()

    @pytest.mark.parametrize(
        "job",
        [
            pytest.param(JOB, id="runs"),
            pytest.param(dataclasses.replace(JOB, head="elsewhere/0 1 1"), id="runs elsewhere"),
            pytest.param(
                dataclasses.replace(JOB, head=f"{os.uname().nodename}/0 1 1", detached=True),
                id="needs no head",
            ),
        ],
    )
    def test_of_a_job_that_may_run_is_kept(self, folder: Path, job: JobRecord) -> None:
        record = new_record(folder)
        record.write(job)
        age(record.folder / "job.json")
        age(record.folder)
        remove_old(folder, unwanted)
        assert (record.ended(), record.read()) == (None, job)

    def test_that_was_never_written_is_removed(self, folder: Path) -> None:
        age(new_record(folder).folder)
        new_record(folder)
        remove_old(folder, unwanted)
        assert [path.name for path in folder.iterdir()] == ["ssh-2"]


class TestTheListOfJobs:
    def test_names_what_it_cannot_read(
        self, folder: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        records = [new_record(folder) for _ in range(4)]
        for record in records[:3]:
            record.write(JOB)
        change(records[1], '"schema": 1', '"schema": 2, "more": 1')
        change(records[2], '"hosts"', '"guests"')
        assert list_jobs(everybody=False) == 0
        shown = capfd.readouterr().out.splitlines()
        assert [line.split()[0] for line in shown] == ["JOB", "ssh-1", "ssh-2", "ssh-3"]
        assert "a newer slurm-adapter wrote its record" in shown[2]
        assert "its record cannot be read" in shown[3]


def change(record: Record, old: str, new: str) -> None:
    """Change what stands in a record."""
    path = record.folder / "job.json"
    path.write_text(path.read_text().replace(old, new))


class TestTheBackground:
    """Nothing that goes wrong there is passed over."""

    def test_names_a_disk_that_is_full(
        self, folder: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        def start(begun: Callable[[Record], None]) -> int:
            record = new_record(folder)
            shutil.rmtree(record.folder)
            begun(record)
            return 0

        assert run_in_background(start) == 3
        assert capfd.readouterr() == (
            "",
            f"slurm-adapter: this process cannot go on: {folder}/ssh-1/head.log: No such file or"
            " directory\n  Make room there, or permit it; slurm-adapter jobs tells whether the"
            " job runs by now.\n",
        )

    def test_shows_what_nobody_thought_of(self, capfd: pytest.CaptureFixture[str]) -> None:
        def start(begun: Callable[[Record], None]) -> int:
            raise RuntimeError(f"what is {begun.__name__}?")

        assert run_in_background(start) == 1
        assert "RuntimeError: what is begun?" in capfd.readouterr().err

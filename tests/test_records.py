"""What is kept of a job here: found again, removed in time, and not in the way of its end."""

import dataclasses
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_adapter.cli.jobs import list_jobs
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.launch.records import End, SlurmRecord, SshHost, SshRecord
from slurm_adapter.launch.store import SshEntry, Store
from slurm_adapter.node.system.identity import identity, lives
from testbed.child import Child

MONTH_S = 31 * 86_400
HOSTS = (SshHost("n1", None, None, None, "python3", 0, 1),)
JOB = SshRecord("train", "run", HOSTS, 0.0, False, 10.0, 30.0, identity(os.getpid()))  # noqa: FBT003


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Give where records are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Store()


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
            assert lives(words) is True
            child.kill()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert lives(words) is False


class TestAFullDisk:
    def test_stops_the_start(self, store: Store) -> None:
        record = store.new_ssh()
        with full_disk(), pytest.raises(ClusterUnfitError) as raised:
            record.write(JOB)
        assert raised.value.found.startswith(
            f"the job's record cannot be kept in {store.ssh_folder}/ssh-1: "
        )
        assert "Make room there, or name another place with XDG_STATE_HOME." in str(raised.value)
        assert not list(store.ssh_folder.iterdir())

    def test_changes_nothing_about_an_end(self, store: Store) -> None:
        record = store.new_ssh()
        record.write(JOB)
        said: list[str] = []
        with full_disk():
            record.end(End(0, "done"), said.append)
        assert said == [
            f"warning: how ssh-1 ended cannot be kept in {store.ssh_folder}/ssh-1: File too large"
        ]
        assert record.ended() is None
        assert [path.name for path in record.folder.iterdir()] == ["job.json"]


class TestAnOldRecord:
    def test_is_removed_a_month_after_the_end(self, store: Store) -> None:
        records = [store.new_ssh() for _ in range(2)]
        for record in records:
            record.write(JOB)
            record.end(End(0, "done"), unwanted)
        age(records[0].folder / "end.json")
        store.remove_old_ssh(unwanted)
        assert [path.name for path in store.ssh_folder.iterdir()] == ["ssh-2"]

    def test_of_a_job_whose_head_was_killed_is_removed_in_time(self, store: Store) -> None:
        record = store.new_ssh()
        record.write(dataclasses.replace(JOB, head=dead_head()))
        store.remove_old_ssh(unwanted)
        assert record.ended() == End(4, "its head was killed")
        age(record.folder / "end.json")
        store.remove_old_ssh(unwanted)
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
    def test_of_a_job_that_may_run_is_kept(self, store: Store, job: SshRecord) -> None:
        record = store.new_ssh()
        record.write(job)
        age(record.folder / "job.json")
        age(record.folder)
        store.remove_old_ssh(unwanted)
        assert (record.ended(), record.read()) == (None, job)

    def test_that_was_never_written_is_removed(self, store: Store) -> None:
        age(store.new_ssh().folder)
        store.new_ssh()
        store.remove_old_ssh(unwanted)
        assert [path.name for path in store.ssh_folder.iterdir()] == ["ssh-2"]


class TestTheListOfJobs:
    def test_names_what_it_cannot_read(
        self, store: Store, capfd: pytest.CaptureFixture[str]
    ) -> None:
        records = [store.new_ssh() for _ in range(4)]
        for record in records[:3]:
            record.write(JOB)
        change(records[1], '"schema": 1', '"schema": 2, "more": 1')
        change(records[2], '"hosts"', '"guests"')
        assert list_jobs(everybody=False) == 0
        shown = capfd.readouterr().out.splitlines()
        assert [line.split()[0] for line in shown] == ["JOB", "ssh-1", "ssh-2", "ssh-3"]
        assert "a newer slurm-adapter wrote its record" in shown[2]
        assert "its record cannot be read" in shown[3]


def change(record: SshEntry, old: str, new: str) -> None:
    """Change what stands in a record."""
    path = record.folder / "job.json"
    path.write_text(path.read_text().replace(old, new))


class TestAJobOfSlurm:
    """As version 0.1 wrote it, and as it is found."""

    JOB = SlurmRecord("4711", "", "train", "/none", "", 2, 2, node_logs=True, submitted_s=0.0)

    def test_is_found_by_what_tells_it_from_others(self, store: Store) -> None:
        store.keep(self.JOB, unwanted)
        assert store.find_slurm("4711") == self.JOB
        there = dataclasses.replace(self.JOB, login="ada@login1")
        store.keep(there, unwanted)
        assert store.find_slurm("4711@ada@login1") == there
        assert store.find_slurm("4711@here") == self.JOB
        with pytest.raises(BadValueError, match="two clusters have a job 4711"):
            store.find_slurm("4711")
        with pytest.raises(BadValueError, match="job 47 was not submitted"):
            store.find_slurm("47")

    def test_is_kept_for_its_owner_alone(self, store: Store) -> None:
        store.keep(self.JOB, unwanted)
        (path,) = store.slurm_folder.iterdir()
        assert (path.name, path.stat().st_mode & 0o777) == ("4711.json", 0o600)
        assert store.slurm_folder.stat().st_mode & 0o777 == 0o700

    def test_keeps_what_another_process_has_found_out(self, store: Store) -> None:
        store.keep(dataclasses.replace(self.JOB, snapshot="/copy"), unwanted)
        ended = store.note_end(self.JOB, "COMPLETED", 0, unwanted)
        assert ended == store.find_slurm("4711")
        assert (ended.snapshot, ended.state) == ("/copy", "COMPLETED")

    def test_is_removed_a_month_after_its_end(self, store: Store) -> None:
        for number in ("1", "2"):
            store.keep(dataclasses.replace(self.JOB, job_id=number), unwanted)
        store.note_end(store.find_slurm("1"), "FAILED", 1, unwanted)
        for path in store.slurm_folder.iterdir():
            age(path)
        store.remove_old_slurm()
        assert [one.job_id for one in store.slurm_records()] == ["2"]

    def test_of_an_earlier_version_is_read(self, store: Store) -> None:
        store.slurm_folder.mkdir(parents=True)
        (store.slurm_folder / "12.json").write_text(
            '{"schema": 1, "job_id": "12", "cluster": "", "name": "t", "folder": "/f", "log": "/l",'
            ' "nodes": 1, "ranks": 1, "node_logs": true, "submitted_s": 1.0, "then": ["13"]}'
        )
        assert store.find_slurm("12").then == ("13",)
        folder = store.new_ssh().folder
        (folder / "end.json").write_text('{"status": 7, "words": "rank 1 failed", "at": 1.0}')
        assert SshEntry(folder).ended() == End(7, "rank 1 failed")

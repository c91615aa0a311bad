"""The one store of jobs' records: what this user has started, for its owner only.

A small document for each job of Slurm; a folder for each over SSH, with `job.json` (where it runs
and what as), `end.json` once it has ended, and a file for each rank's output.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.errors import NODE_LOST, AdapterError, BadValueError, ClusterUnfitError
from slurm_adapter.launch.documents import locked, read_document, write_document
from slurm_adapter.launch.records import HEAD_KILLED, End, SlurmRecord, SshHost, SshRecord
from slurm_adapter.node.agent.run_folder import KEPT_S
from slurm_adapter.node.system.identity import lives

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Say = Callable[[str], None]

_SUFFIX = ".json"
HERE = "here"
"""What stands for the login node of a job that was submitted without one."""
_SSH_ID = re.compile(r"ssh-([1-9][0-9]*)")
_SLURM_ID = re.compile(r"[0-9]+(@.+)?")
_ELSEWHERE = "Name another place with XDG_STATE_HOME."


def is_slurm(job: str) -> bool:
    """Say whether a job's name is one of Slurm's: a number, a login node behind it perhaps."""
    return _SLURM_ID.fullmatch(job) is not None


class Store:
    """Where the records are."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Name the place (XDG Base Directory Specification: state); nothing is made yet."""
        wanted = (os.environ if environment is None else environment).get("XDG_STATE_HOME")
        root = Path(wanted or Path("~/.local/state").expanduser()) / "slurm-adapter"
        self.slurm_folder, self.ssh_folder = root / "batch", root / "jobs"

    # Jobs of Slurm.

    def keep(self, record: SlurmRecord, say: Say) -> None:
        """Write a job's record; where that cannot be, say so: the job is not lost by it."""
        folder = self.slurm_folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_document(self._path(record.key), asdict(record))
        except OSError as error:
            say(
                f"warning: no record of job {record.job_id} can be kept: {error.strerror}"
                f" ({folder})"
            )

    def note_end(
        self, record: SlurmRecord, state: str, status: int | None, say: Say
    ) -> SlurmRecord:
        """Keep how a job ended, and return its record with that."""
        with locked(self.slurm_folder):
            now = _read_slurm(self._path(record.key)) or record
            ended = replace(now, state=state, status=status)
            if ended != now:
                self.keep(ended, say)
        return ended

    def slurm_records(self) -> list[SlurmRecord]:
        """Return the jobs there are records of, in the order of their submission."""
        found = [one for path in self._paths() if (one := _read_slurm(path)) is not None]
        return sorted(found, key=lambda record: record.submitted_s)

    def find_slurm(self, job: str) -> SlurmRecord:
        """Return a job's record.

        Args:
            job: its id, with `@LOGIN` behind where another cluster has a job of that id; `@here`
                for one that was submitted without a login node.

        Raises:
            BadValueError: there is none, or there are several.
        """
        job_id, at_sign, login = job.partition("@")
        if at_sign:
            paths = [self._path(job_id if login == HERE else job)]
        else:
            starts = (f"{job}@", f"{job}.")
            paths = sorted(path for path in self._paths() if path.name.startswith(starts))
        found = [record for path in paths if (record := _read_slurm(path)) is not None]
        if not found:
            raise BadValueError(
                f"job {job} was not submitted by slurm-adapter from here",
                "slurm-adapter jobs lists those that were; Slurm's own commands know the others.",
            )
        if len(found) > 1:
            names = " or ".join(f"{one.job_id}@{one.login or HERE}" for one in found)
            raise BadValueError(f"two clusters have a job {job}", f"Say which one: {names}.")
        return found[0]

    def remove_old_slurm(self) -> None:
        """Take away the records of jobs that ended long ago."""
        for path in self._paths():
            record = _read_slurm(path)
            if record is None or not record.state:
                continue
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > KEPT_S:
                    path.unlink()

    def _path(self, key: str) -> Path:
        return self.slurm_folder / (key.replace("%", "%25").replace("/", "%2F") + _SUFFIX)

    def _paths(self) -> list[Path]:
        with suppress(OSError):
            return [
                path
                for path in self.slurm_folder.iterdir()
                if path.suffix == _SUFFIX and not path.name.startswith(".")
            ]
        return []

    # Jobs over SSH.

    def new_ssh(self) -> SshEntry:
        """Make the folder of a new job, under a number of its own.

        Raises:
            ClusterUnfitError: where it cannot be made.
        """
        folder = self.ssh_folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = 1 + max((_number(path) for path in folder.iterdir()), default=0)
            while True:
                try:
                    (folder / f"ssh-{number}").mkdir(mode=0o700)
                except FileExistsError:  # another one was faster
                    number += 1
                else:
                    return SshEntry(folder / f"ssh-{number}")
        except OSError as error:
            raise ClusterUnfitError(
                f"the job's record cannot be made below {folder}: {error.strerror}", _ELSEWHERE
            ) from error

    def ssh_entries(self) -> list[SshEntry]:
        """Return the jobs there are records of, oldest first.

        Raises:
            ClusterUnfitError: where they cannot be read.
        """
        try:
            paths = list(self.ssh_folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ClusterUnfitError(
                f"the records of jobs in {self.ssh_folder} cannot be read: {error.strerror}",
                _ELSEWHERE,
            ) from error
        return [SshEntry(path) for path in sorted(filter(_number, paths), key=_number)]

    def find_ssh(self, job_id: str) -> SshEntry:
        """Return a job's record.

        Raises:
            BadValueError: naming the jobs that there are.
        """
        there = self.ssh_entries()
        for entry in there:
            if entry.job_id == job_id:
                return entry
        known = ", ".join(entry.job_id for entry in there[-5:])
        raise BadValueError(
            f"there is no job {job_id!r} in {self.ssh_folder}",
            f"The last ones: {known}; slurm-adapter jobs lists all." if known else "",
        )

    def remove_old_ssh(self, say: Say) -> None:
        """Take away the records of jobs that ended a month ago."""
        for entry in self.ssh_entries():
            if entry.ended() is None:
                entry.end_if_killed(say)
            # A folder without either has no job: who made it was killed.
            end, job = (entry.folder / name for name in ("end.json", "job.json"))
            if not end.exists() and job.exists():
                continue
            try:
                age_s = time.time() - (end if end.exists() else entry.folder).stat().st_mtime
            except OSError:  # another one was faster
                continue
            if age_s > KEPT_S:
                shutil.rmtree(entry.folder, ignore_errors=True)


class SshEntry:
    """The folder of one job over SSH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def job_id(self) -> str:
        """The name by which the user speaks of it."""
        return self.folder.name

    def read(self) -> SshRecord | None:
        """Return what is known of the job; None while it is being written.

        Raises:
            BadValueError: where it cannot be read, or means what is not known here.
        """
        try:
            data = read_document(self.folder / "job.json")
            if data is None:
                raise BadValueError(
                    "a newer slurm-adapter wrote its record", f"Use that one for {self.job_id}."
                )
            data["hosts"] = tuple(SshHost(**host) for host in data["hosts"])
            return SshRecord(**data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BadValueError("its record cannot be read", f"See {self.folder}.") from error

    def write(self, job: SshRecord) -> None:
        """Keep what is known of the job.

        Raises:
            ClusterUnfitError: where that cannot be; then there is no record of it at all.
        """
        try:
            write_document(self.folder / "job.json", asdict(job))
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise ClusterUnfitError(
                f"the job's record cannot be kept in {self.folder}: {error.strerror}",
                "Make room there, or name another place with XDG_STATE_HOME.",
            ) from error

    def end(self, end: End, say: Say) -> None:
        """Keep how it ended; where that cannot be, say so: it has ended all the same."""
        try:
            write_document(self.folder / "end.json", {**end._asdict(), "at": time.time()})
        except OSError as error:
            say(
                f"warning: how {self.job_id} ended cannot be kept in {self.folder}:"
                f" {error.strerror}"
            )

    def ended(self) -> End | None:
        """Return how it ended; None while that is not known."""
        try:
            data = json.loads((self.folder / "end.json").read_text())
            return End(int(data["status"]), str(data["words"]), bool(data.get("stopped")))
        except (OSError, ValueError, KeyError):
            return None

    def end_if_killed(self, say: Say) -> None:
        """Have a job end that nobody else will: else it would be kept for ever."""
        with locked(self.folder), suppress(AdapterError):
            job = self.read()
            if job and not job.detached and lives(job.head) is False and self.ended() is None:
                self.end(End(NODE_LOST, HEAD_KILLED), say)

    def rank_file(self, rank: int) -> Path:
        """Return the file of one rank's output."""
        return self.folder / f"rank-{rank}.log"

    @property
    def head_log(self) -> Path:
        """What the process says that watches a detached job."""
        return self.folder / "head.log"


def _number(path: Path) -> int:
    match = _SSH_ID.fullmatch(path.name)
    return int(match[1]) if match else 0


def _read_slurm(path: Path) -> SlurmRecord | None:
    """Return what stands in a record; None where it is gone, broken, or a newer one's."""
    try:
        data = read_document(path)
        return None if data is None else SlurmRecord(**{**data, "then": tuple(data["then"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None

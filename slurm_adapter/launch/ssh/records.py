"""What this user has started over SSH: a folder for each job, for its owner only.

In it: `job.json`, where it runs and what as; `end.json` once it has ended; a file for each rank.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_adapter.errors import NODE_LOST, AdapterError, BadValueError, ClusterUnfitError
from slurm_adapter.node.agent.run_folder import KEPT_S
from slurm_adapter.node.system.identity import identity, lives, machine_of, pid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = 1
NOT_STARTED = "it could not be started"
"""The words for how a job ended that never ran."""
HEAD_KILLED = "its head was killed"
"""The words for one that was not detached: its hosts end it, and nobody hears how."""
_ID = re.compile(r"ssh-([1-9][0-9]*)")


@dataclass(frozen=True)
class Host:
    """One node of a job, as far as it takes to reach it and its ranks again."""

    name: str
    address: str | None
    user: str | None
    port: int | None
    python: str
    first_rank: int
    ranks: int


@dataclass(frozen=True)
class JobRecord:
    """A job that was started over SSH."""

    name: str
    run: str
    """Its UUID, by which agents know it."""
    hosts: tuple[Host, ...]
    started_s: float
    """Seconds since the epoch."""
    detached: bool
    grace_s: float
    link_s: float
    head: str
    """The machine and process that started it, as `head_name` says."""
    starts: str = "rank"
    """What its contract starts, in the singular."""

    def to_json(self) -> str:
        """Return it as a JSON document."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2)


class Record:
    """The folder of one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def job_id(self) -> str:
        """The name by which the user speaks of it."""
        return self.folder.name

    def read(self) -> JobRecord | None:
        """Return what is known of the job; None while it is being written.

        Raises:
            BadValueError: where it cannot be read, or means what is not known here.
        """
        try:
            data: dict[str, Any] = json.loads((self.folder / "job.json").read_text())
            if data.pop("schema") > SCHEMA:
                raise BadValueError(
                    "a newer slurm-adapter wrote its record", f"Use that one for {self.job_id}."
                )
            data["hosts"] = tuple(Host(**host) for host in data["hosts"])
            return JobRecord(**data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BadValueError("its record cannot be read", f"See {self.folder}.") from error

    def write(self, job: JobRecord) -> None:
        """Keep what is known of the job.

        Raises:
            ClusterUnfitError: where that cannot be; then there is no record of it at all.
        """
        try:
            self._write("job.json", job.to_json())
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise ClusterUnfitError(
                f"the job's record cannot be kept in {self.folder}: {error.strerror}",
                "Make room there, or name another place with XDG_STATE_HOME.",
            ) from error

    def end(self, status: int, words: str, say: Callable[[str], None]) -> None:
        """Keep how it ended; where that cannot be, say so: it has ended all the same."""
        end = json.dumps({"status": status, "words": words, "at": time.time()})
        try:
            self._write("end.json", end)
        except OSError as error:
            say(
                f"warning: how {self.job_id} ended cannot be kept in {self.folder}:"
                f" {error.strerror}"
            )

    def ended(self) -> tuple[int, str] | None:
        """Return (exit status, words for how it ended); None while that is not known."""
        try:
            data = json.loads((self.folder / "end.json").read_text())
            return int(data["status"]), str(data["words"])
        except (OSError, ValueError, KeyError):
            return None

    def rank_file(self, rank: int) -> Path:
        """Return the file of one rank's output."""
        return self.folder / f"rank-{rank}.log"

    def _write(self, name: str, text: str) -> None:
        own = self.folder / f".{name}.{os.getpid()}"
        try:
            descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            own.replace(self.folder / name)
        except OSError:
            with suppress(OSError):
                own.unlink()
            raise


def state_folder(environment: dict[str, str] | os._Environ[str]) -> Path:
    """Return where records are kept (XDG Base Directory Specification: state)."""
    state = environment.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(state) / "slurm-adapter" / "jobs"


def new_record(folder: Path) -> Record:
    """Make the folder of a new job, under a number of its own.

    Raises:
        ClusterUnfitError: where it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 1 + max((_number(path) for path in folder.iterdir()), default=0)
        while True:
            try:
                (folder / f"ssh-{number}").mkdir(mode=0o700)
            except FileExistsError:  # another one was faster
                number += 1
            else:
                return Record(folder / f"ssh-{number}")
    except OSError as error:
        raise ClusterUnfitError(
            f"the job's record cannot be made below {folder}: {error.strerror}",
            "Name another place with XDG_STATE_HOME.",
        ) from error


def all_records(folder: Path) -> Iterator[Record]:
    """Yield the jobs there are records of, oldest first.

    Raises:
        ClusterUnfitError: where they cannot be read.
    """
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise ClusterUnfitError(
            f"the records of jobs in {folder} cannot be read: {error.strerror}",
            "Name another place with XDG_STATE_HOME.",
        ) from error
    for path in sorted(filter(_number, paths), key=_number):
        yield Record(path)


def find_record(folder: Path, job_id: str) -> Record:
    """Return a job's record.

    Raises:
        BadValueError: naming the jobs that there are.
    """
    there = list(all_records(folder))
    for record in there:
        if record.job_id == job_id:
            return record
    known = ", ".join(record.job_id for record in there[-5:])
    raise BadValueError(
        f"there is no job {job_id!r} in {folder}",
        f"The last ones: {known}; slurm-adapter jobs lists all." if known else "",
    )


def remove_old(folder: Path, say: Callable[[str], None]) -> None:
    """Take away the records of jobs that ended a month ago."""
    for record in all_records(folder):
        if record.ended() is None:
            _end_if_killed(record, say)
        # A folder without either has no job: who made it was killed.
        there = [record.folder / name for name in ("end.json", "job.json")]
        if not there[0].exists() and there[1].exists():
            continue
        try:
            age_s = time.time() - (there[0] if there[0].exists() else record.folder).stat().st_mtime
        except OSError:  # another one was faster
            continue
        if age_s > KEPT_S:
            shutil.rmtree(record.folder, ignore_errors=True)


def _end_if_killed(record: Record, say: Callable[[str], None]) -> None:
    """Have a job end that nobody else will: else it would be kept for ever."""
    try:
        job = record.read()
    except AdapterError:
        return
    if job and not job.detached and head_lives(job.head) is False and record.ended() is None:
        record.end(NODE_LOST, HEAD_KILLED, say)


def head_name() -> str:
    """Return words that tell this process from every other: machine, boot, pid, start."""
    return identity(os.getpid())


def head_lives(head: str) -> bool | None:
    """Say whether the process that a record names lives; None where it is another machine's."""
    return lives(head)


def head_pid(head: str) -> int:
    """Return the number of that process there."""
    return pid_of(head)


def head_host(head: str) -> str:
    """Return the name of the machine on which a job's head was started."""
    return machine_of(head)


def _number(path: Path) -> int:
    match = _ID.fullmatch(path.name)
    return int(match[1]) if match else 0

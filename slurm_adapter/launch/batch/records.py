"""What this user has submitted to Slurm from here: a small file for each job, for its owner only.

A site without accounting forgets a job minutes after its end; this does not.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError
from slurm_adapter.node.agent.run_folder import KEPT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SCHEMA = 1
_SUFFIX = ".json"
HERE = "here"
"""What stands for the login node of a job that was submitted without one."""


@dataclass(frozen=True)
class BatchRecord:
    """One job that was submitted."""

    job_id: str
    cluster: str
    """Slurm's name of it where sbatch tells it, else empty."""
    name: str
    folder: str
    """The job's own, absolute."""
    log: str
    """The job's log, absolute; empty where its name is only known to Slurm."""
    nodes: int
    ranks: int | None
    """What scripts see as world size; None where the nodes' GPUs decide."""
    node_logs: bool
    """Whether each node's output has a file of its own."""
    submitted_s: float
    """Seconds since the epoch."""
    then: tuple[str, ...] = ()
    """The jobs that go on, one after the other, where this one runs into its time limit."""
    snapshot: str = ""
    """The folder of its own copy of the code, empty where it has none."""
    state: str = ""
    """Slurm's word for how it ended; empty while that is not known."""
    status: int | None = None
    """Its exit status, once that is known."""
    login: str = ""
    """The login node through which it was submitted, as the user named it; empty: here."""
    python: str = ""
    """The interpreter that was found there."""

    @property
    def key(self) -> str:
        """What tells it from every other job: job ids of two clusters may be equal."""
        return self.key_of(self.job_id)

    @property
    def next_key(self) -> str:
        """The same of the job that goes on after it."""
        return self.key_of(self.then[0])

    def key_of(self, job_id: str) -> str:
        """Return the same of another job of its cluster."""
        return f"{job_id}@{self.login}" if self.login else job_id


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return where records are kept (XDG Base Directory Specification: state)."""
    state = environment.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(state) / "slurm-adapter" / "batch"


def keep(folder: Path, record: BatchRecord, say: Callable[[str], None]) -> None:
    """Write a job's record; where that cannot be, say so: the job is not lost by it."""
    path = _path(folder, record.key)
    own = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps({"schema": SCHEMA, **asdict(record)}, indent=2))
        own.replace(path)
    except OSError as error:
        with suppress(OSError):
            own.unlink()
        say(f"warning: no record of job {record.job_id} can be kept: {error.strerror} ({folder})")


def note_end(
    folder: Path, record: BatchRecord, state: str, status: int | None, say: Callable[[str], None]
) -> BatchRecord:
    """Keep how a job ended, and return its record with that."""
    ended = replace(record, state=state, status=status)
    if ended != record:
        keep(folder, ended, say)
    return ended


def all_batch_records(folder: Path) -> Iterator[BatchRecord]:
    """Yield the jobs there are records of, in the order of their submission."""
    found = [one for path in _paths(folder) if (one := _read(path)) is not None]
    yield from sorted(found, key=lambda record: record.submitted_s)


def find_batch_record(folder: Path, job: str) -> BatchRecord:
    """Return a job's record.

    Args:
        folder: where records are kept.
        job: its id, with `@LOGIN` behind where another cluster has a job of that id; `@here`
            for one that was submitted without a login node.

    Raises:
        BadValueError: there is none, or there are several.
    """
    job_id, at_sign, login = job.partition("@")
    if at_sign:
        record = _read(_path(folder, job_id if login == HERE else job))
        found = [] if record is None else [record]
    else:
        paths = [path for path in _paths(folder) if path.name.startswith((f"{job}@", f"{job}."))]
        found = [record for path in sorted(paths) if (record := _read(path)) is not None]
    if not found:
        raise BadValueError(
            f"job {job} was not submitted by slurm-adapter from here",
            "slurm-adapter jobs lists those that were; Slurm's own commands know the others.",
        )
    if len(found) > 1:
        names = " or ".join(f"{one.job_id}@{one.login or HERE}" for one in found)
        raise BadValueError(f"two clusters have a job {job}", f"Say which one: {names}.")
    return found[0]


def remove_old(folder: Path) -> None:
    """Take away the records of jobs that were submitted long ago and have ended."""
    for path in _paths(folder):
        record = _read(path)
        if record is None or not record.state:
            continue
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > KEPT_S:
                path.unlink()


def _path(folder: Path, key: str) -> Path:
    return folder / (key.replace("%", "%25").replace("/", "%2F") + _SUFFIX)


def _paths(folder: Path) -> list[Path]:
    try:
        return [
            path
            for path in folder.iterdir()
            if path.suffix == _SUFFIX and not path.name.startswith(".")
        ]
    except OSError:
        return []


def _read(path: Path) -> BatchRecord | None:
    try:
        data = json.loads(path.read_text())
        if data.pop("schema") > SCHEMA:
            return None
        return BatchRecord(**{**data, "then": tuple(data["then"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None

"""Detached jobs as the tests have them: started, watched from outside, told to go on."""

import json
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from conftest import User
from sshruns import Ended, jobs_folder, left, run_adapter, run_ssh
from testbed import SshHosts, until

if TYPE_CHECKING:
    import subprocess

# Each rank waits for the file `go`, then writes on, and ends as rank 1 is told to.
COUNT = """\
import os, pathlib, sys, time
folder, status = pathlib.Path(sys.argv[-2]), int(sys.argv[-1])
print("begin", flush=True)
while not (folder / "go").exists():
    time.sleep(0.02)
print("end")
sys.exit(status if os.environ["VC_TASK_INDEX"] == "1" else 0)
"""
# Only rank 1 ends, and that badly.
FAIL = COUNT.replace('print("end")', 'if os.environ["VC_TASK_INDEX"] != "1":\n    time.sleep(1000)')


@contextmanager
def nothing_stays(user: User, hosts: SshHosts) -> Iterator[None]:
    """Give the scripts; afterwards nothing of a job is left on any node."""
    user.write("count.py", COUNT)
    user.write("fail.py", FAIL)
    assert until(lambda: not left(hosts))
    yield
    gone = until(lambda: not left(hosts))
    for pids in left(hosts).values():
        kill_all(pids)
    assert gone


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes, of which some may end with others."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def detach(user: User, script: str, *options: str, status: int = 0) -> str:
    """Start a script detached; return the job's id."""
    words = ("--detach", *options, script, str(user.folder), str(status))
    ended = run_ssh(user, *words)
    assert (ended.err, ended.out.count("\n")) == ("", 1)
    return ended.out.strip()


def go(user: User) -> None:
    """Let the ranks of a job end."""
    user.write("go", "")


def record(user: User, job: str) -> dict[str, Any]:
    """Return what stands in a job's record."""
    folder = jobs_folder(user) / job
    document: dict[str, Any] = json.loads((folder / "job.json").read_text())
    end = folder / "end.json"
    return document | {"end": json.loads(end.read_text()) if end.exists() else None}


def end_of(user: User, job: str) -> int:
    """Wait until a job's end stands in its record; return the status."""
    assert until(lambda: record(user, job)["end"])
    return int(record(user, job)["end"]["status"])


def signal_head(user: User, job: str, name: str) -> None:
    """Send a signal to the process that watches a job from the background."""
    user.run("kill", f"-{name}", record(user, job)["head"].split(" ")[1])


def state(user: User, job: str) -> str:
    """Return what `jobs` says of a job."""
    lines = run_adapter(user, "jobs").out.splitlines()
    (line,) = [line for line in lines if line.split()[0] == job]
    match = re.fullmatch(r"\S+ +\S+ +\d{4}-\d\d-\d\d \d\d:\d\d +\d+ +(.*\S) +gpu-n\S+", line)
    assert match, line
    return match[1]


def logs(user: User, job: str, *options: str, status: int = 0) -> Ended:
    """Run `logs`, which must end with this status."""
    ended = run_adapter(user, "logs", job, *options, check=False)
    assert ended.status == status, (ended.out, ended.err)
    return ended


def read_begins(head: "subprocess.Popen[str]") -> None:
    """Read until all three ranks have begun."""
    assert head.stdout
    for _ in range(3):
        assert head.stdout.readline().endswith(" begin\n")

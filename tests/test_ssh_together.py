"""Two jobs on the same hosts at once: neither takes what the other has."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conftest import User
from sshruns import NODES, left, run_adapter, run_ssh, start_adapter
from testbed import SshHosts, until
from testbed.waiting import LONG_S

# Tells its rendezvous, which it does not come to, and what its code says when it may go on.
WAIT = """\
import os, pathlib, sys, time
print(os.environ["SLURM_ADAPTER_INIT_METHOD"].rpartition(":")[2], flush=True)
while not pathlib.Path(sys.argv[-1]).exists():
    time.sleep(0.02)
from words import WORDS
print(WORDS)
"""


@pytest.fixture(autouse=True)
def _nothing_stays(user: User, ssh_hosts: SshHosts) -> Iterator[None]:
    """Give the scripts; afterwards nothing of a job is left on any node."""
    user.write("code/wait.py", WAIT)
    user.write("code/words.py", "WORDS = 'first'\n")
    assert until(lambda: not left(ssh_hosts))
    yield
    user.write("go", "")
    assert until(lambda: not left(ssh_hosts))


@contextmanager
def a_job(user: User, *options: str) -> Iterator["tuple[subprocess.Popen[str], str]"]:
    """Start one that waits for the file `go`; give it and the port of its rendezvous."""
    words = ("ssh", "-H", NODES, *options, "code/wait.py", f"{user.folder}/go")
    with start_adapter(user, *words, stderr=subprocess.STDOUT) as head:
        try:
            assert head.stdout
            lines = [head.stdout.readline() for _ in range(3 + ("--sync" in options))]
            assert lines[-1].startswith("[gpu-n0"), lines
            yield head, lines[-1].split()[-1]
        finally:
            head.terminate()


def test_they_meet_at_different_ports(user: User) -> None:
    with a_job(user) as (_, first), a_job(user) as (_, second):
        assert 6666 <= int(first) < int(second)
        dry = run_ssh(user, "--dry-run", "--probe", "code/wait.py")
        assert f":{first}" not in dry.out
        assert f":{second}" not in dry.out


class TestACopyOfTheCode:
    def test_stays_as_it_is_under_a_job(self, user: User) -> None:
        with a_job(user, "--sync") as (head, _):
            user.write("code/words.py", "WORDS = 'second'\n")
            told = run_ssh(user, "--sync", "code/wait.py", check=False)
            copy = f"{user.folder}/slurm-adapter/wait/code/code"
            assert (told.status, told.out) == (3, "")
            assert told.said == [
                "slurm-adapter: 1 of 3 hosts cannot have a copy of the code:",  # they share it
                f"  gpu-n00: a job runs from {copy}",
                "  Nothing was started. Wait for it, or give this one a folder of its own with"
                " --job-folder DIR.",
            ]
            user.write("go", "")
            assert head.stdout
            assert head.stdout.read().count("first") == 3
            assert head.wait(LONG_S) == 0
        ended = run_ssh(user, "--sync", "code/wait.py", f"{user.folder}/go")
        assert ended.out.count("second") == 3

    def test_is_shared_by_jobs_that_have_the_same(self, user: User) -> None:
        with a_job(user, "--sync"), a_job(user, "--sync") as (second, _):
            user.write("go", "")
            assert second.stdout
            assert second.stdout.read().count("first") == 3

    def test_stays_as_it_is_under_a_detached_one(self, user: User) -> None:
        job = run_ssh(user, "--sync", "--detach", "-q", "code/wait.py", f"{user.folder}/go").out
        user.write("code/words.py", "WORDS = 'second'\n")
        told = run_ssh(user, "--sync", "code/wait.py", check=False)
        assert (told.status, "a job runs from" in told.err) == (3, True)
        run_adapter(user, "stop", job.strip())
        user.write("go", "")
        ended = run_ssh(user, "--sync", "code/wait.py", f"{user.folder}/go")
        assert ended.out.count("second") == 3

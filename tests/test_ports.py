"""Ports that are given to one run at a time, whether or not anything listens there yet."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from commandline import OWN_PORT
from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.addresses import check_port_free
from slurm_adapter.node.facts import ports
from testbed.child import Child

ADDRESS = "127.0.0.10"
# Takes a port, or the one it is told, and keeps it until its input ends.
TAKE = """\
import sys
from slurm_adapter.node.facts import ports
print(ports.take(int(sys.argv[1])) if sys.argv[1:] else ports.take_free_port("127.0.0.10"))
sys.stdout.flush()
sys.stdin.read()
"""


@contextmanager
def a_run(*words: str) -> Iterator[str]:
    """Have a process take a port; give what it says."""
    command = [sys.executable, "-c", TAKE, *words]
    with Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        yield process.stdout.readline().decode().strip()


def test_runs_at_once_get_different_ones() -> None:
    with a_run() as first, a_run() as second, a_run() as third:
        # Not in order: jobs of other tests take some, and give them back.
        taken = {int(first), int(second), int(third)}
        assert len(taken) == 3
        assert min(taken) >= ports.FIRST_PORT


def test_one_that_the_user_chose_is_taken_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "FIRST_PORT", OWN_PORT)
    with a_run(str(OWN_PORT)) as taken, a_run(str(OWN_PORT)) as again:
        assert (taken, again) == ("True", "False")
        assert ports.take_free_port(ADDRESS) > OWN_PORT
    with a_run(str(OWN_PORT)) as taken:
        assert taken == "True"


def test_what_is_taken_can_be_bound() -> None:
    with a_run() as taken:
        check_port_free(int(taken), "a test")


def test_there_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "take", lambda _: False)
    monkeypatch.setattr(ports, "_LAST_PORT", ports.FIRST_PORT + 3)
    with pytest.raises(ClusterUnfitError, match="no port from 6666 to 6669 is free"):
        ports.take_free_port(ADDRESS)

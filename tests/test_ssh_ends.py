"""SSH-07: however a job over SSH ends, nothing of it stays on any node, and the head says why.

Each rank has a child and an orphan in sessions of their own.
"""

import os
import signal

import pytest

from conftest import User
from sshfaults import (
    FAMILY,
    NEVER,
    NODE,
    OF_A_NODE,
    OF_A_RANK,
    OF_DEAF_RANKS,
    OF_THE_HEAD,
    SHORT_GRACE,
    UP,
    WAIT,
    see_it_end,
)
from sshjobs import left, ssh_job
from testbed import SshHosts, until

FAULTS = {**OF_THE_HEAD, **OF_DEAF_RANKS, **OF_A_RANK, **OF_A_NODE}
ENV = ("--contract", "env", "--view", "off")
# Far more than fits between a rank and its reader: it waits until somebody reads.
FLOOD = """\
os.set_blocking(1, False)
count = 0
while select.select([], [1], [], 0.5)[1]:
    count += os.write(1, b"y" * 999 + b"\\n") == 1000
with open(f"filled-{rank}.new", "w") as file:
    file.write(str(count))
os.rename(f"filled-{rank}.new", f"filled-{rank}")
os.set_blocking(1, True)
print("last words", flush=True)
if rank == 1:
    sys.exit(3)
"""


class TestNothingIsLeftAfter:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_with_the_view(self, ssh_hosts: SshHosts, user: User, fault: str) -> None:
        see_it_end(ssh_hosts, user.folder, FAULTS[fault])

    @pytest.mark.parametrize("fault", OF_DEAF_RANKS | OF_A_NODE)
    def test_without_a_view(self, ssh_hosts: SshHosts, user: User, fault: str) -> None:
        see_it_end(ssh_hosts, user.folder, FAULTS[fault], *ENV)

    def test_an_end_that_leaves_a_child_and_an_orphan(
        self, ssh_hosts: SshHosts, user: User
    ) -> None:
        with ssh_job(ssh_hosts, user.folder, FAMILY + UP, *NEVER) as job:
            job.wait_until_up()
            ended = job.end()
            assert (ended.status, ended.said) == (0, [])
            assert left(ssh_hosts) == []

    def test_an_interrupt_before_all_nodes_are_ready(self, ssh_hosts: SshHosts, user: User) -> None:
        with ssh_job(ssh_hosts, user.folder, WAIT, *SHORT_GRACE) as job:
            assert until(lambda: len(job.agents(NODE)) == 3)
            first = job.agents(NODE)[-1]
            os.kill(first, signal.SIGSTOP)
            assert until(lambda: len(job.agents("gpu-n00")) == len(job.agents("gpu-n02")) == 3)
            os.kill(job.head.pid, signal.SIGINT)
            assert until(lambda: not job.agents("gpu-n00"))
            os.kill(first, signal.SIGCONT)
            assert job.end().status == 130
            assert "Traceback" not in job.errors()
            assert left(ssh_hosts) == []


class TestLastWords:
    """The culprit's, where the others' noise stands behind them."""

    def test_are_shown_again(self, ssh_hosts: SshHosts, user: User) -> None:
        with ssh_job(ssh_hosts, user.folder, WAIT, *NEVER) as job:
            job.wait_until_up()
            os.kill(job.rank_pid("gpu-n00"), signal.SIGUSR2)
            job.wait_for_line("[gpu-n00/0] noise")
            os.kill(job.rank_pid(NODE), signal.SIGSEGV)
            assert job.end().said[1:] == [
                "slurm-adapter: rank 1 on gpu-n01 failed first (signal SIGSEGV) and said last:",
                "  up",
            ]

    def test_are_not_repeated_where_they_stand_last(self, ssh_hosts: SshHosts, user: User) -> None:
        with ssh_job(ssh_hosts, user.folder, WAIT, *NEVER) as job:
            job.wait_until_up()
            os.kill(job.rank_pid(NODE), signal.SIGUSR2)
            job.wait_for_line("[gpu-n01/1] noise")
            os.kill(job.rank_pid(NODE), signal.SIGSEGV)
            assert len(job.end().said) == 1

    def test_of_a_rank_come_whole_through_a_flood(self, ssh_hosts: SshHosts, user: User) -> None:
        with ssh_job(ssh_hosts, user.folder, FAMILY + FLOOD, *NEVER) as job:
            filled = [user.outside(f"filled-{rank}") for rank in range(3)]
            assert until(lambda: all(file.exists() for file in filled))
            ended = job.end()
            assert ended.status == 3
            assert ended.said[0].startswith("slurm-adapter: rank 1 on gpu-n01 failed first: exit")
            lines = [line for line in ended.out.splitlines() if line.startswith("[gpu-n01/1] ")]
            assert lines[-1] == "[gpu-n01/1] last words"
            assert len(lines) == int(filled[1].read_text()) + 1
            assert left(ssh_hosts) == []

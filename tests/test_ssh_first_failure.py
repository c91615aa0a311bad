"""Of three ranks in a real all-reduce one is killed: it is blamed, not those that lost it."""

import os
import signal

import pytest

from conftest import User
from sshfaults import FAILED, LOST, NEVER, NODE
from sshjobs import left, ssh_job
from steps import SCRIPTS
from testbed import SshHosts

SCRIPT = (SCRIPTS / "endless_reduce.py").read_text()
LOST_PEER = "Connection reset by peer"


@pytest.mark.parametrize("run", range(2))
def test_the_killed_rank_is_named(ssh_hosts: SshHosts, user: User, run: int) -> None:
    del run  # who is heard of first differs from one to the next
    with ssh_job(ssh_hosts, user.folder, SCRIPT, *NEVER) as job:
        job.wait_until_up()
        os.kill(job.rank_pid(NODE), signal.SIGKILL)
        ended = job.end()
        assert ended.status == 137
        assert ended.said[0].startswith(f"{FAILED}signal SIGKILL")
        assert left(ssh_hosts) == []


def test_the_node_of_a_killed_agent_is_named(ssh_hosts: SshHosts, user: User) -> None:
    with ssh_job(ssh_hosts, user.folder, SCRIPT, *NEVER) as job:
        job.wait_until_up()
        os.kill(job.agents(NODE)[-1], signal.SIGKILL)
        ended = job.end()
        assert ended.status == 4
        assert ended.said[0].startswith(f"{LOST}its agent was ended by SIGKILL")
        assert left(ssh_hosts) == []

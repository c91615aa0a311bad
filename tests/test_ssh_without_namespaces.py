"""Nodes that allow no namespaces: a subreaper and parent-death signals do what can be done.

A filter forbids them, as containers have it, on all that the nodes' sshd starts.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from conftest import User
from sshfaults import (
    LOST,
    NEVER,
    NODE,
    OF_A_NODE,
    OF_A_RANK,
    OF_DEAF_RANKS,
    OF_THE_HEAD,
    OTHERS,
    WAIT,
    see_it_end,
)
from sshjobs import is_rank, left, ssh_job
from steps import SCRIPTS
from testbed import SshHosts, processes, until

FAULTS = {
    name: fault
    for name, fault in (OF_THE_HEAD | OF_DEAF_RANKS | OF_A_RANK | OF_A_NODE).items()
    if not name.startswith(("SIGKILL of the", "a stop"))
}
PLAIN = ("--contract", "env", "--view", "off")


@pytest.fixture(scope="module")
def forbidding(ssh_hosts: SshHosts) -> Iterator[SshHosts]:
    """The hosts, with the filter."""
    script = "forbid_call.py"
    path = ssh_hosts.cluster.write(script, (SCRIPTS / script).read_text(), 0o755)
    force = f'ForceCommand={path} unshare /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    with ExitStack() as stack:
        for node in ssh_hosts.nodes:
            stack.enter_context(ssh_hosts.restarted(node, force))
        yield ssh_hosts


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_left_after(forbidding: SshHosts, user: User, fault: str) -> None:
    see_it_end(forbidding, user.folder, FAULTS[fault], *PLAIN)


def test_the_view_is_missed_and_the_job_runs(forbidding: SshHosts, user: User) -> None:
    with ssh_job(forbidding, user.folder, "print('ran')\n") as job:
        ended = job.end()
        assert ended.status == 0
        assert sorted(ended.out.splitlines()) == [f"[gpu-n0{i}/{i}] ran" for i in range(3)]
        assert len(ended.said) == 3
        for line in ended.said:
            assert "a seccomp filter forbids it, as containers have (unshare:" in line


class TestAnAgentThatIsKilled:
    def test_takes_its_rank_along(self, forbidding: SshHosts, user: User) -> None:
        with ssh_job(forbidding, user.folder, WAIT, *NEVER, *PLAIN) as job:
            job.wait_until_up()
            OF_A_NODE["SIGKILL of the agent"].happen(job)
            ended = job.end()
            assert ended.status == 4
            assert ended.said[0] == f"{LOST}its agent was ended by SIGKILL{OTHERS}"
            assert until(lambda: names(forbidding) == ["sleep", "sleep"])

    def test_leaves_to_the_next_contact_what_had_changed_its_session(
        self, forbidding: SshHosts, user: User
    ) -> None:
        with ssh_job(forbidding, user.folder, WAIT, *NEVER, *PLAIN) as job:
            job.wait_until_up()
            OF_A_NODE["SIGKILL of the agent"].happen(job)
            assert job.end().status == 4
            with ssh_job(forbidding, user.folder, "", *PLAIN, nodes=(NODE,)) as following:
                ended = following.end()
                assert ended.status == 0
                (said,) = ended.said
                assert said.startswith("slurm-adapter: warning: ended 2 processes that run ")
                assert said.endswith(" had left on gpu-n01: its agent was killed")
                assert left(forbidding) == []

    def test_has_nobody_else_s_processes_ended(self, forbidding: SshHosts, user: User) -> None:
        with ssh_job(forbidding, user.folder, WAIT, *NEVER, *PLAIN) as running:
            running.wait_until_up()
            ranks = [running.rank_pid(node) for node in forbidding.nodes]
            with ssh_job(forbidding, user.folder, "", *PLAIN) as other:
                assert (other.end().status, other.end().said) == (0, [])
                assert all(map(is_rank, ranks))


def names(hosts: SshHosts) -> list[str]:
    """Return the programs of what runs on any node."""
    return [processes.program(pid) for node in hosts.nodes for pid in hosts.processes(node)]

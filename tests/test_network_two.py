"""Nodes with two networks, of which only the second connects them: what the first one's names say.

For real: a bridge whose ports do not see each other, Gloo, Slurm and sshd.
"""

from collections.abc import Iterator

import pytest

from conftest import ADAPTER, User
from sshruns import run_ssh
from steps import SCRIPTS
from testbed import SshHosts
from testbed.networks import only_second_connects, second_address

SUMS = ["sum 6.0 by eth1"] * 3


@pytest.fixture
def apart(user: User) -> Iterator[User]:
    """The user of such a cluster; NODE-fast is each node's name on the second network."""
    user.write("short_reduce.py", (SCRIPTS / "short_reduce.py").read_text())
    cluster = user.cluster
    names = [f"{cluster.addresses[node]} {node}" for node in ("head", *cluster.nodes)]
    names += [f"{second_address(cluster, node)} {node}-fast" for node in cluster.nodes]
    text = "\n".join(["127.0.0.1 localhost", *names, ""])
    with only_second_connects(cluster), cluster.etc_file("hosts", text):
        yield user


class TestUnderSlurm:
    STEP = ("srun", "-N3", "--ntasks-per-node=1")
    OURS = (*STEP, str(ADAPTER), "exec", "--contract", "env")

    def test_an_all_reduce_works_on_the_network_that_was_chosen(self, apart: User) -> None:
        words = ("--master-suffix=-fast", "--boot", "short_reduce.py", "--", "60")
        assert sorted(apart.run(*self.OURS, *words).splitlines()) == SUMS

    def test_and_fails_without(self, apart: User) -> None:
        """The ranks do meet, by the fast name; Gloo then goes where the nodes' own names lead."""
        python = str(ADAPTER.parent / "python")
        rank = (
            "export MASTER_ADDR=gpu-n00-fast MASTER_PORT=29511 RANK=$SLURM_PROCID WORLD_SIZE=3;"
            f' exec "{python}" short_reduce.py 6'
        )
        step = (*self.STEP, "--kill-on-bad-exit=1")
        assert apart.run(*step, "sh", "-c", rank, check=False) == ""

    def test_a_subnet_that_names_do_not_lead_into_is_told(self, apart: User) -> None:
        done = apart.cluster.run(
            [*self.OURS, "--network", "10.88.0.0/24", "--", "true"],
            cwd=str(apart.folder),
            env=apart.environment,
        )
        assert done.returncode == 3
        assert "no address of gpu-n00 is in 10.88.0.0/24, only 10.77.0.10" in done.stderr


class TestOverSsh:
    def test_the_head_finds_the_one_that_connects_them(
        self, apart: User, ssh_hosts: SshHosts
    ) -> None:
        assert ssh_hosts.nodes == apart.cluster.nodes
        ended = run_ssh(apart, "--contract", "env", "short_reduce.py", "60")
        assert sorted(line for rank in range(3) for line in ended.lines(rank)) == SUMS

    def test_and_says_what_it_tried(self, apart: User, ssh_hosts: SshHosts) -> None:
        assert ssh_hosts.nodes == apart.cluster.nodes
        ended = run_ssh(apart, "--dry-run", "--probe", "--format", "plain", "short_reduce.py")
        rows = ended.out.partition("\nnetwork:\n")[2].splitlines()
        assert rows[0].split() == [
            "node",
            "interface",
            "address",
            "speed",
            "HCAs",
            "GID",
            "evidence",
        ]
        for index, row in enumerate(rows[1:4]):
            peer = 1 if index == 0 else 0
            assert row.split()[:3] == [f"gpu-n0{index}", "eth1", f"10.88.0.1{index}"]
            assert f"measured: connected to gpu-n0{peer} from 10.88.0.1{index}" in row
            assert "; not 10.77.0.0/24: gpu-n00 (eth0, 10.77.0.10) cannot reach gpu-n01" in row
        assert "  not used: eth0: not the way to the others, which is eth1" in rows

    def test_where_none_connects_them_nothing_is_started(
        self, apart: User, ssh_hosts: SshHosts
    ) -> None:
        ended = run_ssh(
            apart, "--network", "eth0", "--contract", "env", "short_reduce.py", "9", check=False
        )
        assert (ended.status, ended.out) == (3, "")
        assert ended.said[0] == (
            "slurm-adapter: the nodes cannot reach each other in the network that you chose"
        )
        assert "gpu-n00 (eth0, 10.77.0.10) cannot reach gpu-n01 (10.77.0.11): " in ended.said[1]
        assert "--network SUBNET chooses another." in ended.said[-1]
        assert [ssh_hosts.processes(node) for node in ssh_hosts.nodes] == [[], [], []]

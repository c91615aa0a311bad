"""Where the nodes of a job over SSH meet: as the host list and the user say, or not at all."""

import pytest

from conftest import User
from sshruns import run_ssh
from testbed import ADDRESSES, SshHosts

SHOW = 'echo "$MASTER_ADDR $GLOO_SOCKET_IFNAME $TP_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"'


@pytest.fixture(autouse=True)
def _hosts(ssh_hosts: SshHosts) -> None:
    """All tests here are of them."""


def test_an_interface_of_the_host_list_is_used_by_every_library(user: User) -> None:
    words = ("--contract", "env", "--command", SHOW)
    done = run_ssh(user, *words, hosts="gpu-n[00-01] interface=eth0")
    for rank in range(2):
        assert done.lines(rank) == [f"{ADDRESSES['gpu-n00']} eth0 eth0 =eth0"]


def test_an_interface_that_is_not_there_stops_the_start(user: User) -> None:
    done = run_ssh(user, "--command", "true", hosts="gpu-n[00-01] interface=ib7", check=False)
    assert (done.status, done.out) == (3, "")
    assert done.said == [
        "slurm-adapter: gpu-n00 has no interface ib7 that is up and has an address",
        "  gpu-n01 has no interface ib7 that is up and has an address",
        "  gpu-n00 has: eth0 (10.77.0.10).",
        "  gpu-n01 has: eth0 (10.77.0.11).",
    ]


def test_net_08_a_variable_that_names_nothing_stops_the_start(user: User) -> None:
    """NET-08: the user's value is checked on the node, not replaced."""
    done = run_ssh(user, "--env", "NCCL_SOCKET_IFNAME=eth2", "--command", "true", check=False)
    assert (done.status, done.out) == (3, "")
    assert "gpu-n00: NCCL_SOCKET_IFNAME=eth2 names no interface that is up" in done.said[0]
    assert "gpu-n00 has: eth0 (10.77.0.10)." in done.err


@pytest.mark.parametrize("way", ["option", "exported"])
def test_a_master_that_is_elsewhere_stops_the_start(user: User, way: str) -> None:
    """MA-08: rank 0 cannot serve where it does not run."""
    option = ["--env", "MASTER_ADDR=192.0.2.7"] if way == "option" else []
    env = {"MASTER_ADDR": "192.0.2.7"} if way == "exported" else {}
    words = (*option, "--contract", "env", "--command", "echo started")
    done = run_ssh(user, *words, env=env, check=False)
    assert (done.status, done.out) == (2, "")
    assert "MASTER_ADDR=192.0.2.7 is no address of gpu-n00, where rank 0 runs" in done.err


def test_a_master_of_the_first_nodes_own_is_kept(user: User) -> None:
    words = ("--env", "MASTER_ADDR=gpu-n00", "--contract", "env", "--command", SHOW)
    assert run_ssh(user, *words).lines(2) == ["gpu-n00 eth0 eth0 =eth0"]

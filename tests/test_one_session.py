"""Servers that allow one session on a connection, MaxSessions 1 (F2-20): the agent's does."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from conftest import User
from laptops import laptop
from sshdetached import detach, end_of, go, logs, nothing_stays, state
from sshruns import run_adapter, run_ssh
from testbed import SshHosts, processes, until


@pytest.fixture(autouse=True)
def _one_session(user: User, ssh_hosts: SshHosts) -> Iterator[None]:
    with ExitStack() as servers:
        for node in ssh_hosts.nodes:
            servers.enter_context(ssh_hosts.restarted(node, "MaxSessions=1"))
        with nothing_stays(user, ssh_hosts):
            yield


def test_code_is_copied_and_run(user: User, ssh_hosts: SshHosts) -> None:
    user.write("code/word.py", "import lib\nprint(lib.WORD)\n")
    user.write("code/lib.py", "WORD = 'copied'\n")
    ended = run_ssh(user, "--sync", "code/word.py")
    assert [ended.lines(rank) for rank in range(3)] == [["copied"]] * 3
    assert until(lambda: not any(map(ssh_hosts.sessions, ssh_hosts.nodes)))


def test_code_is_copied_by_the_interpreter_that_serves_the_ranks(
    user: User, ssh_hosts: SshHosts
) -> None:
    code = f"import time\nwhile not __import__('os').path.exists('{user.folder}/go'):\n"
    user.write("code/wait.py", f"{code}    time.sleep(0.02)\n")
    job = run_ssh(user, "--sync", "--detach", "-q", "code/wait.py").out.strip()
    node = ssh_hosts.nodes[1]
    titles = [processes.title(pid) for pid in ssh_hosts.processes(node)]
    runs = {title.split()[-1] for title in titles if "slurm-adapter agent " in title}
    assert len(runs) == 1
    go(user)
    assert end_of(user, job) == 0


def test_a_detached_job_is_followed_and_stopped(user: User) -> None:
    job = detach(user, "count.py")
    assert until(lambda: logs(user, job).out.count("begin") == 3)
    assert run_adapter(user, "stop", job).status == 0
    assert state(user, job).startswith("ended")
    followed = detach(user, "count.py")
    go(user)
    assert logs(user, followed, "-f").out.count("end") == 3


def test_a_job_is_submitted_and_followed_through_a_login_node(ssh_hosts: SshHosts) -> None:
    with laptop(ssh_hosts, "one-session") as ada:
        ada.write("train.py", "import lib\nprint(lib.WORD)\n")
        ada.write("lib.py", "WORD = 'copied'\n")
        done = ada.submits("--python", "python3", "-N", "2", "--follow", "train.py")
        shutil.rmtree(ada.there("slurm-adapter"))
    assert done.status == 0, done.err
    assert {"[0] copied", "[1] copied"} <= set(done.out.splitlines())

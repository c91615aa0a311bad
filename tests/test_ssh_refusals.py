"""A job that cannot start on all its hosts starts on none, and says which, why and what to do."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from commandline import BIN, adapter
from conftest import User
from sshruns import NODES, left, listening, run_ssh
from testbed import SshHosts, until
from testbed.many import ManyHosts
from testbed.waiting import LONG_S

UNUSABLE = "slurm-adapter: {} of 3 nodes cannot be used; nothing was started"
PYTHON = f"{BIN}/python"


@pytest.fixture(autouse=True)
def _boot_file(user: User, ssh_hosts: SshHosts) -> Iterator[None]:
    """Give a boot file that leaves a trace; nothing runs before and after."""
    user.write("train.py", f"open('{user.folder}/started', 'a').write('.')\n")
    assert until(lambda: not left(ssh_hosts))
    yield
    assert until(lambda: not left(ssh_hosts))


def refusal(user: User, *words: str, hosts: str | None = NODES, status: int = 3) -> list[str]:
    """Run a job that must not start; return the lines it says."""
    ended = run_ssh(user, *words, "train.py", hosts=hosts, check=False)
    assert (ended.status, ended.out) == (status, ""), ended.err
    assert not user.outside("started").exists()
    assert not list(ended.jobs.glob("*/rank-*")), "it has a record of ranks"
    return ended.err.splitlines()


class TestAHostThatIsNotReached:
    def test_for_its_unknown_key(self, user: User, ssh_hosts: SshHosts) -> None:
        """SSH-06."""
        with ssh_hosts.known_hosts(ssh_hosts.known_line("gpu-n00")):
            said = refusal(user)
            known = user.cluster.outside(".ssh/known_hosts").read_text()
            assert known == ssh_hosts.known_line("gpu-n00"), "it was accepted all the same"
        assert said[0] == UNUSABLE.format(2)
        assert said[1].startswith("  gpu-n[01-02]: the host key is not known (for gpu-n01: ")
        assert "`ssh gpu-n01`" in said[2]
        assert len(said) == 3

    def test_for_its_changed_key(self, user: User, ssh_hosts: SshHosts) -> None:
        """SSH-06."""
        with ssh_hosts.restarted("gpu-n01", changed_key=True):
            said = refusal(user)
        assert said[0] == UNUSABLE.format(1)
        assert said[1].startswith("  gpu-n01: the host key has changed (gpu-n01 shows ED25519 ")
        assert said[1].endswith(", not the one in /home/ada/.ssh/known_hosts:2)")
        assert "ssh-keygen -f /home/ada/.ssh/known_hosts -R gpu-n01" in said[2]
        assert len(said) == 3

    def test_for_it_refuses_the_login(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.restarted("gpu-n01", authorized=False):
            said = refusal(user)
        assert said == [
            UNUSABLE.format(1),
            "  gpu-n01: the login as ada was refused (the server offers publickey; tried"
            " /home/ada/.ssh/id_ed25519)",
            "  Put a public key into ~/.ssh/authorized_keys there (ssh-copy-id gpu-n01) or name the"
            " right one with IdentityFile in ~/.ssh/config.",
        ]

    def test_for_no_server_listens_there(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.stopped("gpu-n01"):
            said = refusal(user)
        assert said[:2] == [UNUSABLE.format(1), "  gpu-n01: connection refused (gpu-n01)"]
        assert "start sshd" in said[2]

    def test_for_its_link_is_down(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.cut("gpu-n01"):
            said = refusal(user, "--connect-timeout", "2", hosts="gpu-n01")
        assert said[0] == "slurm-adapter: gpu-n01 cannot be used; nothing was started"
        # What the kernel says where the neighbour was asked for before.
        answers = ("no answer within 2 s", "no route to it")
        assert said[1] in [f"  gpu-n01: {answer} (gpu-n01)" for answer in answers]
        assert "Is the machine on" in said[2]

    def test_for_its_server_says_nothing(self, user: User, ssh_hosts: SshHosts) -> None:
        listener = ssh_hosts.listener("gpu-n01")
        os.kill(listener, signal.SIGSTOP)
        try:
            said = refusal(user, "--connect-timeout", "2", hosts="gpu-n01")
        finally:
            os.kill(listener, signal.SIGCONT)
        assert said[:2] == [
            "slurm-adapter: gpu-n01 cannot be used; nothing was started",
            "  gpu-n01: no answer within 2 s (gpu-n01)",
        ]

    def test_for_its_name_leads_nowhere(self, user: User) -> None:
        said = refusal(user, hosts="gpu-n00,nowhere")
        assert said[0] == "slurm-adapter: 1 of 2 nodes cannot be used; nothing was started"
        assert said[1].startswith("  nowhere: its name cannot be resolved")
        assert "address=" in said[2]

    def test_is_told_together_with_the_others(self, user: User, ssh_hosts: SshHosts) -> None:
        with (
            ssh_hosts.restarted("gpu-n00", authorized=False),
            ssh_hosts.stopped("gpu-n01"),
            ssh_hosts.hidden("gpu-n02", f"{PYTHON}*"),
        ):
            said = refusal(user)
        assert said[0] == UNUSABLE.format(3)
        reasons = [line.partition(" (")[0] for line in said[1::2]]
        assert reasons == [
            "  gpu-n00: the login as ada was refused",
            "  gpu-n01: connection refused",
            f"  gpu-n02: it has no {PYTHON}",
        ]
        assert len(said) == 7


class TestAHostWithoutItsInterpreter:
    WHERE = "  Name the interpreter with --python PATH, or python=PATH in the host file."

    def test_has_another_perhaps(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.hidden("gpu-n01", f"{PYTHON}*"):
            said = refusal(user)
        found = f"  gpu-n01: it has no {PYTHON} (it has /usr/bin/python3)"
        assert said == [UNUSABLE.format(1), found, self.WHERE]

    def test_has_none(self, user: User, ssh_hosts: SshHosts) -> None:
        """SSH-04: the path is the same on all hosts, what it leads to is not there."""
        with ssh_hosts.hidden("gpu-n01", "/usr/bin/python3*"):
            said = refusal(user)
        assert said == [UNUSABLE.format(1), f"  gpu-n01: it has no {PYTHON}", self.WHERE]

    def test_is_told_with_all_that_lack_it(self, user: User) -> None:
        said = refusal(user, "--python", "/opt/none/python")
        found = "  gpu-n[00-02]: it has no /opt/none/python (it has /usr/bin/python3)"
        assert said == [UNUSABLE.format(3), found, self.WHERE]

    def test_has_one_that_is_too_old(self, user: User) -> None:
        """A real one that is made to believe it is 3.8."""
        first = (
            "import sys; sys.version_info = (3, 8, 10);"
            ' exec(open(0, "rb", 0, closefd=False).readline())'
        )
        script = f"#!/bin/sh\nexec /usr/bin/python3 -I -S -c '{first}' \"$@\"\n"
        user.write("python3.8", script, 0o755)
        lab = f'[hosts.gpu-n00]\n[hosts.gpu-n01]\npython = "{user.folder}/python3.8"\n'
        user.write("lab.toml", lab)
        said = refusal(user, "--hosts", "lab.toml", hosts=None)
        assert said == [
            "slurm-adapter: 1 of 2 nodes cannot be used; nothing was started",
            f"  gpu-n01: {user.folder}/python3.8 is Python 3.8.10",
            "  Name one of 3.10 or later with --python PATH, or python=PATH in the host file.",
        ]

    def test_has_something_else_under_its_name(self, user: User) -> None:
        said = refusal(user, "--python", "/bin/cat", hosts="gpu-n01")
        assert said[0] == "slurm-adapter: gpu-n01 cannot be used; nothing was started"
        assert said[1].startswith("  gpu-n01: /bin/cat ended with status 1: /bin/cat: invalid")
        assert said[2] == "  Try ssh gpu-n01 /bin/cat -I -S -c pass."

    @pytest.mark.parametrize("says", ["", "(while sleep 0.5; do printf .; done) &"])
    def test_has_one_that_hangs(self, user: User, says: str) -> None:
        user.write("hangs", f"#!/bin/sh\n{says}\nexec cat >/dev/null\n", 0o755)
        # Until it is started all must go well in that time, on a busy machine, too.
        words = ("--connect-timeout", "10", "--python", f"{user.folder}/hangs")
        said = refusal(user, *words, hosts="gpu-n01")
        assert said[1] == f"  gpu-n01: {user.folder}/hangs did not answer within 10 s"

    @pytest.mark.parametrize("word", ["have", "need"])
    def test_has_one_that_greets_and_goes_silent(self, user: User, word: str) -> None:
        greeting = f"printf '\\nslurm-adapter-agent {word}\\n'"
        user.write("greets", f"#!/bin/sh\n{greeting}\nexec cat >/dev/null\n", 0o755)
        words = ("--connect-timeout", "10", "--python", f"{user.folder}/greets")
        assert refusal(user, *words, hosts="gpu-n01") == [
            f"slurm-adapter: gpu-n01: {user.folder}/greets has begun, and did not answer within"
            " 10 s",
            "  Does its file system or name service hang? --connect-timeout waits longer for a"
            " first answer.",
        ]


class TestAHostThatLacksTheCode:
    REMEDY = "  Copy the code there with --sync, or put it under the same path on every host."

    def test_names_what_it_lacks(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.covered("gpu-n01", user.folder):
            said = refusal(user)
        assert said == [f"slurm-adapter: gpu-n01 has no {user.folder}/train.py", self.REMEDY]

    def test_may_be_one_of_several(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.covered("gpu-n01", "/home/ada"), ssh_hosts.covered("gpu-n02", user.folder):
            said = refusal(user)
        assert said == [
            f"slurm-adapter: gpu-n01 has no {user.folder}",
            f"  gpu-n02 has no {user.folder}/train.py",
            self.REMEDY,
        ]

    def test_or_an_input_is_named_too(self, user: User, ssh_hosts: SshHosts) -> None:
        user.write("data/part", "")
        with ssh_hosts.covered("gpu-n01", user.folder / "data"):
            ended = run_ssh(user, "--input", "d=data/part", "train.py", check=False)
        assert ended.status == 3
        assert f"gpu-n01 has no {user.folder}/data/part, which /" in ended.err
        assert not user.outside("started").exists()


class TestThePort:
    def test_is_the_first_free_one_of_the_first_host(self, user: User) -> None:
        with listening(user, "gpu-n00", "0.0.0.0", 6666), listening(user, "gpu-n01", "", 6667):
            said = run_ssh(user, "-v", "train.py").said
        assert said == ["slurm-adapter: 3 ranks started as ssh-1, rendezvous port 6667"]

    @pytest.mark.parametrize("address", ["0.0.0.0", "10.77.0.10"])
    def test_is_refused_where_the_chosen_one_is_taken(self, user: User, address: str) -> None:
        with listening(user, "gpu-n00", address, 17000):
            said = refusal(user, "--port", "17000")
        assert said == [
            "slurm-adapter: port 17000 on gpu-n00 is taken: Address already in use (given by you)",
            "  Choose another with --port, from 10000 to 32767.",
        ]

    def test_may_be_taken_on_other_hosts(self, user: User) -> None:
        with listening(user, "gpu-n01", "", 17000):
            run_ssh(user, "--port", "17000", "train.py")
        assert user.outside("started").read_text() == "..."


class TestAddresses:
    def test_must_differ(self, user: User) -> None:
        said = refusal(user, hosts="gpu-n00,10.77.0.10")
        assert said[0] == (
            "slurm-adapter: gpu-n00 and 10.77.0.10 have the same address, 10.77.0.10"
        )
        assert "address=" in said[1]

    def test_must_lead_there_from_the_other_hosts(self, user: User) -> None:
        """A host behind a jump host may be reached at an address that is only good there."""
        user.write(
            "ssh config",
            "Host inner\n  HostName 127.0.0.1\n  ProxyJump gpu-n01\n  HostKeyAlias gpu-n01\n",
        )
        env = {"SLURM_ADAPTER_SSH_CONFIG": f"{user.folder}/ssh config"}
        ended = run_ssh(user, "train.py", hosts="gpu-n00,inner", env=env, check=False)
        assert ended.status == 3
        assert ended.err.splitlines() == [
            "slurm-adapter: inner was reached at 127.0.0.1, which never leads there from another"
            " machine",
            "  Give the address by which the others reach it: address=IP in the host file.",
        ]
        assert not user.outside("started").exists()


class TestFewerHosts:
    def test_are_enough_where_the_user_says_so(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.stopped("gpu-n01"):
            words = ("--min-nodes", "2", "node_level.py", "--expect", "3")
            ended = run_ssh(user, *words)
        assert ended.said == ["slurm-adapter: warning: without gpu-n01: connection refused"]
        assert sorted(ended.out.splitlines()) == [
            "[gpu-n00/0] sum 3.0 on node 0 of 2",
            "[gpu-n02/1] sum 3.0 on node 1 of 2",
        ]

    def test_are_then_the_most_of_an_elastic_job(self, user: User, ssh_hosts: SshHosts) -> None:
        words = ("--min-nodes", "2", "--contract", "torchrun", "--elastic", "1:3", "group.py")
        with ssh_hosts.stopped("gpu-n01"):
            ended = run_ssh(user, *words)
        assert sorted(line.partition("] ")[2][:11] for line in ended.out.splitlines()) == [
            *("rank 0 of 2", "rank 1 of 2")
        ]

    def test_may_still_be_too_few(self, user: User, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.stopped("gpu-n00"), ssh_hosts.stopped("gpu-n01"):
            said = refusal(user, "--min-nodes", "2")
        assert said[0] == UNUSABLE.format(2)
        assert said[1] == "  gpu-n[00-01]: connection refused (for gpu-n00: gpu-n00)"


WRONG_USE = [
    ("", None, "no hosts were given to start the job on", "--hosts FILE"),
    ("", "gpu-n00,gpu-n00", "'gpu-n00' is given twice", "Name each host once"),
    ("-N 4", NODES, "4 nodes are wanted, there are 3 in the host list", "--nodes 3"),
    ("--min-nodes 4", NODES, "--min-nodes 4 of 3 hosts", "from 1 to 3"),
    ("--min-nodes 0", NODES, "--min-nodes 0 of 3 hosts", "from 1 to 3"),
    ("--hosts missing", None, "missing", ""),
    ("--exclude gpu-n09", NODES, "gpu-n09", ""),
    ("", "-oProxyCommand=touch$IFS/tmp/x", "'-oProxyCommand", ""),
    ("--logs some", "gpu-n00", "--logs some is not understood", "all, first, none"),
    ("--logs rank=1", "gpu-n00", "there is no rank 1", "all, first, none"),
    ("--link-timeout 0", NODES, "--link-timeout 0", "0.2 seconds or more"),
    ("--link-timeout nan", NODES, "--link-timeout nan", "0.2 seconds or more"),
    ("--connect-timeout 0", NODES, "--connect-timeout 0", "--connect-timeout 60"),
    ("--grace -1", NODES, "--grace -1", "Give seconds"),
    ("--probe", NODES, "--probe", "--dry-run"),
    ("--env MISSING", NODES, "--env MISSING takes over a variable that is not set", "MISSING="),
]


@pytest.mark.parametrize(("options", "hosts", "found", "remedy"), WRONG_USE)
def test_wrong_use_is_told_at_once(
    user: User, options: str, hosts: str | None, found: str, remedy: str
) -> None:
    said = refusal(user, *options.split(), hosts=hosts, status=2)
    assert found in said[0]
    assert remedy in said[-1]
    assert len(said) <= 3


class TestManyConnectionsAtOnce:
    """SSH-03: a server that drops what comes beyond three logins at a time, behind 24 hosts."""

    @pytest.fixture
    def env(self, tmp_path: Path) -> dict[str, str]:
        (tmp_path / "train.py").write_text("print('up')\n")
        return {"XDG_STATE_HOME": str(tmp_path / "state")}

    @pytest.fixture
    def overloaded(self, tmp_path: Path) -> Iterator[ManyHosts]:
        reason = ManyHosts.unavailable()
        if reason:
            pytest.skip(reason)
        own = f"SHLVL=1 XDG_CACHE_HOME={tmp_path}/cache XDG_STATE_HOME={tmp_path}/theirs"
        with ManyHosts.start(24, MaxStartups="3:100:6", SetEnv=own) as hosts:
            yield hosts

    def test_are_made_one_after_the_other(
        self, tmp_path: Path, env: dict[str, str], overloaded: ManyHosts
    ) -> None:
        env["SLURM_ADAPTER_SSH_CONFIG"] = str(overloaded.config)
        words = ("-H", "h[001-024]", "--contract", "env", "--view", "off")
        words += ("--connect-timeout", f"{LONG_S:.0f}", "train.py")
        done = adapter("ssh", *words, cwd=tmp_path, env=env)
        assert (done.status, done.err) == (0, ""), done.err
        expected = [f"[h{number:03}/{number - 1}]" for number in range(1, 25)]
        prefixes = sorted(line.split()[0] for line in done.out.splitlines())
        assert prefixes == expected

    def test_are_given_up_where_others_hold_the_server(
        self, tmp_path: Path, env: dict[str, str], overloaded: ManyHosts
    ) -> None:
        env["SLURM_ADAPTER_SSH_CONFIG"] = str(overloaded.config)
        with ExitStack() as stack:
            for _ in range(3):
                taken = socket.create_connection(("127.0.0.1", overloaded.port))
                stack.callback(taken.close)
                assert taken.recv(4) == b"SSH-"
            words = ("-H", "h[001-024]", "--connect-timeout", "10", "train.py")
            done = adapter("ssh", *words, cwd=tmp_path, env=env)
        assert (done.status, done.out) == (3, "")
        said = done.err.splitlines()
        assert said[0] == "slurm-adapter: 24 of 24 nodes cannot be used; nothing was started"
        assert said[1].startswith("  h[001-024]: the ssh server hung up before the login (for h001")
        assert "MaxStartups" in said[2]

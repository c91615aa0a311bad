"""What the test cluster's SSH hosts, and those on loopback, promise to the tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import SshHosts, processes, until
from testbed.child import Child
from testbed.many import ManyHosts, host_names
from testbed.waiting import LONG_S


def login(
    hosts: SshHosts, node: str, command: str, *options: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command on a node over SSH, as a user would who is asked nothing."""
    return hosts.cluster.run(["ssh", "-o", "BatchMode=yes", *options, node, command])


class TestSshHosts:
    def test_let_their_user_in_by_key_and_are_who_they_say(self, ssh_hosts: SshHosts) -> None:
        for node in ssh_hosts.nodes:
            done = login(ssh_hosts, node, "hostname; id -un; pwd")
            assert (done.stdout, done.stderr) == (f"{node}\nada\n/home/ada\n", "")
            assert login(ssh_hosts, ssh_hosts.cluster.addresses[node], "hostname").returncode == 0

    def test_are_started_once(self, ssh_hosts: SshHosts) -> None:
        assert ssh_hosts.cluster.start_ssh() is ssh_hosts

    def test_send_no_variables_and_receive_none(self, ssh_hosts: SshHosts) -> None:
        words = ["ssh", "-o", "SendEnv=CROSSED", "gpu-n00", "env"]
        done = ssh_hosts.cluster.run(words, env={"CROSSED": "1"})
        assert "HOME=/home/ada" in done.stdout
        assert "CROSSED" not in done.stdout

    def test_refuse_more_openings_than_a_test_allows(self, ssh_hosts: SshHosts) -> None:
        hold = "exec 3<>/dev/tcp/gpu-n01/22; read -r banner <&3; echo $banner; read -r forever"
        with ssh_hosts.restarted("gpu-n01", "MaxStartups=1"):
            with ssh_hosts.cluster.popen(["bash", "-c", hold]) as opening:
                assert opening.stdout
                assert opening.stdout.readline().startswith("SSH-2.0-")
                refused = login(ssh_hosts, "gpu-n01", "true")
                opening.kill()
            assert refused.returncode == 255
            assert "kex_exchange_identification" in refused.stderr
            assert until(lambda: login(ssh_hosts, "gpu-n01", "true").returncode == 0)
        assert login(ssh_hosts, "gpu-n01", "true").returncode == 0

    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            ({"changed_key": True}, "REMOTE HOST IDENTIFICATION HAS CHANGED"),
            ({"authorized": False}, "Permission denied (publickey)"),
        ],
    )
    def test_are_not_who_they_were_or_know_their_user_no_more(
        self, ssh_hosts: SshHosts, fault: dict[str, bool], words: str
    ) -> None:
        with ssh_hosts.restarted("gpu-n01", **fault):
            refused = login(ssh_hosts, "gpu-n01", "true")
            assert refused.returncode == 255
            assert words in refused.stderr
        assert login(ssh_hosts, "gpu-n01", "true").returncode == 0

    def test_show_a_host_key_that_nobody_knows_yet(self, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.known_hosts(ssh_hosts.known_line("gpu-n00")):
            assert login(ssh_hosts, "gpu-n00", "true").returncode == 0
            assert "Host key verification failed" in login(ssh_hosts, "gpu-n01", "true").stderr
        assert login(ssh_hosts, "gpu-n01", "true").returncode == 0

    def test_refuse_connections_or_answer_nothing(self, ssh_hosts: SshHosts) -> None:
        with ssh_hosts.stopped("gpu-n02"):
            assert "Connection refused" in login(ssh_hosts, "gpu-n02", "true").stderr
        with ssh_hosts.cut("gpu-n02"):
            silent = login(ssh_hosts, "gpu-n02", "true", "-o", "ConnectTimeout=1")
            assert silent.returncode == 255
        assert until(lambda: login(ssh_hosts, "gpu-n02", "true").returncode == 0)

    def test_have_folders_that_are_empty_on_one_of_them(self, ssh_hosts: SshHosts) -> None:
        ssh_hosts.cluster.write("shared/file", "everywhere")
        with ssh_hosts.covered("gpu-n01", "/home/ada") as home:
            done = login(ssh_hosts, "gpu-n01", "pwd; ls -A; stat -c '%U %a' .; echo mine > own")
            assert done.stdout == "/home/ada\nada 755\n"
            assert (home / "own").read_text() == "mine\n"
            assert login(ssh_hosts, "gpu-n00", "cat shared/file; ls own").stdout == "everywhere"
        assert login(ssh_hosts, "gpu-n01", "cat shared/file; ls own").stdout == "everywhere"

    def test_lack_an_interpreter_on_one_of_them(self, ssh_hosts: SshHosts) -> None:
        look = "command -v python3 awk; ls /usr/bin/python3 | wc -l"
        both = "/usr/bin/python3\n/usr/bin/awk\n1\n"
        with ssh_hosts.hidden("gpu-n01", "/usr/bin/python3*"):
            assert login(ssh_hosts, "gpu-n01", look).stdout == "/usr/bin/awk\n0\n"
            assert login(ssh_hosts, "gpu-n00", look).stdout == both
        assert login(ssh_hosts, "gpu-n01", look).stdout == both

    def test_count_what_was_left_behind(self, ssh_hosts: SshHosts) -> None:
        assert until(lambda: not any(map(ssh_hosts.processes, ssh_hosts.nodes)))
        stray = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"
        assert login(ssh_hosts, "gpu-n01", stray).returncode == 0
        assert until(lambda: not ssh_hosts.sessions("gpu-n01"))
        assert until(lambda: len(ssh_hosts.processes("gpu-n01")) == 1)
        assert not ssh_hosts.processes("gpu-n00")
        (pid,) = ssh_hosts.processes("gpu-n01")
        os.kill(pid, signal.SIGKILL)
        assert until(lambda: not ssh_hosts.processes("gpu-n01"))

    def test_tell_a_session_from_their_listener(self, ssh_hosts: SshHosts) -> None:
        node = "gpu-n02"
        with ssh_hosts.cluster.popen(["ssh", node, "echo up; exec sleep 1000"]) as client:
            assert client.stdout
            assert client.stdout.readline() == "up\n"
            (session,) = ssh_hosts.sessions(node)
            assert {session, ssh_hosts.listener(node)} < set(ssh_hosts.sshd_pids(node))
            assert session in ssh_hosts.processes(node)
            (command,) = ssh_hosts.processes(node, connections=False)
            os.kill(session, signal.SIGKILL)
            assert client.wait(LONG_S) == 255
        os.kill(command, signal.SIGKILL)
        assert until(lambda: not ssh_hosts.processes(node))


class TestManyHosts:
    @pytest.fixture
    def many(self) -> Iterator[ManyHosts]:
        reason = ManyHosts.unavailable()
        if reason:
            pytest.skip(reason)
        with ManyHosts.start() as hosts:
            yield hosts

    @pytest.fixture
    def owner(self) -> Iterator["subprocess.Popen[str]"]:
        """Run another Python process that serves hosts, with a command left on one of them."""
        code = """if True:
            import subprocess, sys
            from testbed.many import ManyHosts
            with ManyHosts.start(3) as hosts:
                leave = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & readlink /proc/self/ns/pid"
                ssh = ["ssh", "-F", hosts.config, "h003", leave]
                namespace = subprocess.run(ssh, stdout=subprocess.PIPE, text=True).stdout.strip()
                print(namespace, hosts.folder, flush=True)
                sys.stdin.read()
        """
        reason = ManyHosts.unavailable()
        if reason:
            pytest.skip(reason)
        with Child(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        ) as process:
            yield process
            process.kill()

    def test_are_entered_by_name_with_every_key_known(self, many: ManyHosts) -> None:
        assert (len(many.names), many.names[0], many.names[-1]) == (250, "h001", "h250")
        for name, address in ((many.names[0], "127.0.0.1"), (many.names[-1], "127.0.0.250")):
            done = ssh(many, name, "echo $SSH_CONNECTION")
            assert done.stderr == ""
            assert done.stdout.split()[2:] == [address, str(many.port)]

    def test_have_no_more_names_than_there_are_addresses(self) -> None:
        assert host_names(254)[-1] == "h254"
        with pytest.raises(ValueError, match="1 to 254"):
            host_names(255)

    def test_take_other_options(self) -> None:
        with ManyHosts.start(1, ForceCommand="echo forced") as hosts:
            assert ssh(hosts, "h001", "true").stdout == "forced\n"

    def test_end_with_their_owner_however_it_ends(self, owner: "subprocess.Popen[str]") -> None:
        assert owner.stdout
        namespace, folder = owner.stdout.readline().split()
        if os.geteuid() == 0:
            assert len(processes.in_pid_namespace(namespace)) >= 3
        assert Path(folder).exists()
        owner.kill()
        assert until(lambda: not Path(folder).exists())
        if os.geteuid() == 0:
            assert until(lambda: not processes.in_pid_namespace(namespace))


def ssh(hosts: ManyHosts, name: str, command: str) -> "subprocess.CompletedProcess[str]":
    words = ["ssh", "-F", str(hosts.config), name, command]
    return subprocess.run(words, capture_output=True, text=True, timeout=LONG_S, check=False)

"""The way to a host: jump hosts, proxy commands, and what keeps a silent way open (SSH-09)."""

import getpass
import os
import selectors
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loopback import LoopbackSshd, closed_port, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.paramiko_hooks import Transport
from slurm_adapter.remote.transport.port import CommandChannel, Connection
from slurm_adapter.remote.transport.unreachable import UnreachableError
from testbed.waiting import LONG_S

pytestmark = [
    pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd()),
    pytest.mark.usefixtures("unhurried"),
]

UNANSWERED = 3
"""Questions, one a second, that a connection bears without an answer: a busy machine is slow."""


@pytest.fixture(scope="module")
def sshd() -> Iterator[LoopbackSshd]:
    with LoopbackSshd.start(listen="0.0.0.0") as server:
        yield server


@pytest.fixture
def gate() -> Iterator[LoopbackSshd]:
    """A jump host of its own, so that its log tells what came through it."""
    with LoopbackSshd.start(listen="0.0.0.0") as server:
        yield server


def hello(connection: Connection, index: int) -> str:
    return connection.run(f"echo {index}").output.decode().strip()


def through(sshd: LoopbackSshd, gates: dict[str, LoopbackSshd], jump: str, **more: str) -> Path:
    """Write a config in which all hosts are behind `jump`, and the gates are not."""
    blocks = "".join(
        f"Host {name}\n    HostName 127.0.0.1\n    Port {gate.port}\n    IdentityFile {gate.key}\n"
        f"    UserKnownHostsFile {gate.known_hosts}\n    ProxyJump none\n"
        for name, gate in gates.items()
    )
    return sshd.write_config(before=blocks, ProxyJump=jump, **more)


def told(nodes: list[Node], config: Path) -> str:
    with pytest.raises(UnreachableError) as caught:
        connect_all(nodes, hello, config_file=config, retry_s=0.3).all()
    return str(caught.value)


def hosts(count: int) -> list[Node]:
    return [Node(f"127.0.0.{number + 1}") for number in range(count)]


class TestJumpHosts:
    def test_one_connection_to_it_serves_all_hosts_behind(
        self, sshd: LoopbackSshd, gate: LoopbackSshd
    ) -> None:
        config = through(sshd, {"gate": gate}, "gate")
        with closing(connect_all(hosts(12), hello, config_file=config)) as connected:
            assert connected.all() == [str(index) for index in range(12)]
        gate.wait_until_idle()
        assert gate.connections() == 1

    def test_two_in_a_row(self, sshd: LoopbackSshd, gate: LoopbackSshd) -> None:
        with LoopbackSshd.start(listen="0.0.0.0") as second:
            config = through(sshd, {"one": gate, "two": second}, "one,two")
            with closing(connect_all(hosts(4), hello, config_file=config)) as connected:
                assert connected.all() == list("0123")
            assert (gate.connections(), second.connections()) == (1, 1)

    def test_user_and_port_of_the_jump_count(self, sshd: LoopbackSshd, gate: LoopbackSshd) -> None:
        user = getpass.getuser()
        config = through(sshd, {"gate": gate}, f"{user}@gate:{gate.port}")
        config.write_text(config.read_text().replace(f"Port {gate.port}", "Port 1", 1))
        with closing(connect_all(hosts(2), hello, config_file=config)) as connected:
            assert connected.all() == ["0", "1"]

    def test_is_asked_for_its_key_as_any_host(self, sshd: LoopbackSshd, gate: LoopbackSshd) -> None:
        """SSH-06, behind a jump host as before it."""
        gate.known_hosts.write_text("")
        text = told(hosts(3), through(sshd, {"gate": gate}, "gate"))
        assert "127.0.0.[1-3]: its jump host cannot be reached: the host key is not known" in text

    def test_that_cannot_reach_the_host(self, sshd: LoopbackSshd, gate: LoopbackSshd) -> None:
        with closed_port() as port:
            text = told([Node("127.0.0.1", port=port)], through(sshd, {"gate": gate}, "gate"))
        assert f"jump host gate cannot reach it ([127.0.0.1]:{port}" in text

    def test_that_forwards_nothing(self, sshd: LoopbackSshd) -> None:
        with LoopbackSshd.start(AllowTcpForwarding="no") as gate:
            text = told(hosts(1), through(sshd, {"gate": gate}, "gate"))
        assert "jump host gate does not forward connections" in text
        assert "AllowTcpForwarding" in text

    def test_a_host_that_is_its_own(self, sshd: LoopbackSshd) -> None:
        text = told(hosts(1), sshd.write_config(ProxyJump="127.0.0.1"))
        assert "127.0.0.1 is behind jump host 127.0.0.1, which leads back to itself" in text

    def test_jump_hosts_that_need_each_other(self, sshd: LoopbackSshd) -> None:
        before = "Host a\n    ProxyJump b\nHost b\n    ProxyJump a\n"
        text = told(hosts(1), sshd.write_config(before=before, ProxyJump="a"))
        assert "which leads back to itself" in text


class TestProxyCommands:
    def test_run_in_the_user_s_shell(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(
            ProxyCommand=f"ssh -F {sshd.folder}/inner -W %h:%p 127.0.0.1 2>/dev/null"
        )
        inner = config.read_text().replace("ProxyCommand", "# ProxyCommand")
        (sshd.folder / "inner").write_text(inner)
        with closing(connect_all(hosts(2), hello, config_file=config)) as connected:
            assert connected.all() == ["0", "1"]

    def test_that_fails_is_told_in_its_own_words(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(ProxyCommand="sh -c 'echo no way to %h >&2; exit 1'")
        text = told(hosts(1), config)
        assert "no way to 127.0.0.1" in text

    def test_with_fdpass_is_refused(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(ProxyCommand="true", ProxyUseFdpass="yes")
        assert "ProxyUseFdpass" in told(hosts(1), config)

    def test_leaves_no_process(self, sshd: LoopbackSshd, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        config = sshd.write_config(
            ProxyCommand=f"sh -c 'echo $$ > {pid}; exec ssh -F {sshd.folder}/inner -W %h:%p %h'"
        )
        inner = config.read_text().replace("ProxyCommand", "# ProxyCommand")
        (sshd.folder / "inner").write_text(inner)
        connected = connect_all(hosts(1), hello, config_file=config)
        process = int(pid.read_text())
        assert Path(f"/proc/{process}").exists()
        connected.close()
        assert not Path(f"/proc/{process}").exists()


class TestAlgorithms:
    def test_are_those_that_the_config_allows(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(Ciphers="aes256-ctr", MACs="hmac-sha2-512")
        with closing(connect_all(hosts(1), hello, config_file=config)) as connected:
            (connection,) = connected.connections
            transport = connection.transport  # type: ignore[union-attr]
            assert (transport.local_cipher, transport.remote_mac) == ("aes256-ctr", "hmac-sha2-512")

    @pytest.mark.parametrize("option", ["Ciphers", "KexAlgorithms"])
    def test_none_is_taken_that_it_forbids(self, sshd: LoopbackSshd, option: str) -> None:
        only = {"Ciphers": "chacha20-poly1305@openssh.com"}.get(option, "sntrup761x25519-sha512")
        config = sshd.write_config(**{option: only})
        assert f"{option} of the ssh config allows nothing that is available" in told(
            hosts(1), config
        )


class TestSilence:
    """SSH-09: a way that is cut is noticed, on every hop, and a silent one is kept open."""

    def test_every_hop_is_watched(self, sshd: LoopbackSshd, gate: LoopbackSshd) -> None:
        config = through(sshd, {"gate": gate}, "gate", ServerAliveInterval="1")
        config.write_text(f"ServerAliveInterval 1\n{config.read_text()}")
        with closing(connect_all(hosts(1), hello, config_file=config)) as connected:
            assert connected.all() == ["0"]
            # Both servers see the question: a debug line would tell; what they do is answer.
            (connection,) = connected.connections
            assert connection is not None
            hop = connection.transport.sock.get_transport()  # type: ignore[attr-defined]
            for transport in (hop, connection.transport):  # type: ignore[attr-defined]
                assert transport.packetizer.interval_s == 1

    def test_the_default_is_30_s(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(BatchMode="no")
        with closing(connect_all(hosts(1), hello, config_file=config)) as connected:
            (connection,) = connected.connections
            assert connection is not None
            assert connection.transport.packetizer.interval_s == 30  # type: ignore[attr-defined]

    def test_a_silent_connection_is_kept_and_answers_count(
        self, sshd: LoopbackSshd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = threading.Semaphore(0)
        ask = Transport._ask  # noqa: SLF001 - nothing else tells of a question

        def count(transport: Transport) -> None:
            ask(transport)
            asked.release()

        monkeypatch.setattr(Transport, "_ask", count)
        config = sshd.write_config(ServerAliveInterval="1", ServerAliveCountMax=f"{UNANSWERED}")
        with closing(connect_all(hosts(1), hello, config_file=config)) as connected:
            (connection,) = connected.connections
            assert connection is not None
            for _ in range(UNANSWERED + 2):
                assert asked.acquire(timeout=LONG_S)
            assert connection.run("exit 3").status == 3

    def test_a_frozen_node_is_given_up(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(ServerAliveInterval="1", ServerAliveCountMax=f"{UNANSWERED}")
        with closing(connect_all(hosts(1), hello, config_file=config)) as connected:
            (connection,) = connected.connections
            assert connection is not None
            server = int(connection.run("echo $PPID; :").output)
            channel = connection.start("cat")
            os.kill(server, signal.SIGSTOP)
            try:
                before = time.monotonic()
                lost(connection, channel)
                assert time.monotonic() - before > 1, "it was not asked"
                assert channel.status() is None
            finally:
                os.kill(server, signal.SIGKILL)
                channel.close()

    def test_a_frozen_jump_host_is_given_up(self, sshd: LoopbackSshd, gate: LoopbackSshd) -> None:
        config = through(sshd, {"gate": gate}, "gate", ServerAliveInterval="1")
        often = f"ServerAliveInterval 1\nServerAliveCountMax {UNANSWERED}\n"
        config.write_text(f"{often}{config.read_text()}")
        with closing(connect_all(hosts(1), hello, config_file=config)) as connected:
            (connection,) = connected.connections
            assert connection is not None
            channel = connection.start("cat")
            servers = gate.serving()
            for server in servers:
                os.kill(server, signal.SIGSTOP)
            try:
                lost(connection, channel)
            finally:
                for server in servers:
                    os.kill(server, signal.SIGKILL)
                channel.close()


def lost(connection: Connection, channel: CommandChannel) -> None:
    """Wait until a channel's connection is known to be gone."""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while not (channel.read(1) == b"" and not connection.alive()):
            assert selector.select(LONG_S), "nothing was noticed"
            channel.read_error(1)
            channel.status()

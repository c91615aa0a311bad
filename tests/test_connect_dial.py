"""Connections to many nodes at once: what is opened, what is retried, what is told."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from loopback import LoopbackSshd, closed_port, make_key, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.errors import ClusterUnfitError, report
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.port import Connection
from slurm_adapter.remote.transport.unreachable import UnreachableError
from testbed.child import Child
from testbed.waiting import LONG_S

KERNEL_S = 120
"""A kernel of its own accord tries for two minutes to connect."""
PASSPHRASE = "open sesame"  # noqa: S105 - of a key that lives as long as a test

pytestmark = [
    pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd()),
    pytest.mark.usefixtures("unhurried"),
]


@pytest.fixture(scope="module")
def sshd() -> Iterator[LoopbackSshd]:
    with LoopbackSshd.start(listen="0.0.0.0") as server:
        yield server


@pytest.fixture(autouse=True)
def _standard_config(sshd: LoopbackSshd) -> None:
    sshd.write_config()


def hosts(count: int, first: int = 1) -> list[Node]:
    return [Node(f"127.0.0.{number}") for number in range(first, first + count)]


def hello(connection: Connection, index: int) -> str:
    return connection.run(f"echo {index}").output.decode().strip()


def failure(
    nodes: list[Node], config: Path, *, retry_s: float = 0.5, openings: int = 32
) -> UnreachableError:
    """Dial, and return the error that has to come."""
    with pytest.raises(UnreachableError) as caught:
        connect_all(nodes, hello, config_file=config, retry_s=retry_s, openings=openings).all()
    return caught.value


class TestManyNodes:
    def test_come_in_node_order(self, sshd: LoopbackSshd) -> None:
        with closing(connect_all(hosts(40), hello, config_file=sshd.config)) as connected:
            assert connected.all() == [str(index) for index in range(40)]
            names = [one.node.name for one in connected.connections if one is not None]
            assert names == [node.name for node in hosts(40)]

    def test_leave_no_thread_and_no_descriptor(self, sshd: LoopbackSshd) -> None:
        connect_all(hosts(1), hello, config_file=sshd.config).close()
        before = open_descriptors(), set(threading.enumerate())
        connect_all(hosts(20), hello, config_file=sshd.config).close()
        for thread in set(threading.enumerate()) - before[1]:
            thread.join(LONG_S)
            assert not thread.is_alive()
        assert open_descriptors() == before[0]

    def test_a_server_that_sheds_load_is_tried_again(self) -> None:
        """SSH-03: 24 at once where the server takes 3, and others hold those at first."""
        with LoopbackSshd.start(listen="0.0.0.0", MaxStartups="3:100:6") as server:
            with ExitStack() as others:
                for _ in range(3):
                    taken = others.enter_context(socket.create_connection(server.address))
                    assert taken.recv(4) == b"SSH-"
                with released(others, server.wait_for_line, "MaxStartups"):
                    connected = connect_all(
                        hosts(24), hello, config_file=server.config, retry_s=LONG_S
                    )
            with closing(connected):
                assert connected.all() == [str(index) for index in range(24)]

    def test_the_first_step_may_refuse_a_node(self, sshd: LoopbackSshd) -> None:
        def use(connection: Connection, index: int) -> int:
            if index in {1, 2}:
                raise ClusterUnfitError(f"{connection.node.name}: no Python", "Install it.")
            return index

        with closing(connect_all(hosts(4), use, config_file=sshd.config)) as connected:
            assert connected.at_least(2) == [0, 3]
            assert [one.node.name for one in connected.failures] == ["127.0.0.2", "127.0.0.3"]
            with pytest.raises(UnreachableError) as caught:
                connected.all()
        assert caught.value.exit_status == 3
        assert str(caught.value).splitlines() == [
            "2 of 4 nodes cannot be used; nothing was started",
            "127.0.0.[2-3]: no Python",
            "Install it.",
        ]
        assert not any(one.alive() for one in connected.connections if one is not None)

    def test_a_defect_of_the_first_step_comes_out(self, sshd: LoopbackSshd) -> None:
        def use(_: Connection, index: int) -> int:
            return 1 // (index - 1)

        with pytest.raises(ZeroDivisionError):
            connect_all(hosts(3), use, config_file=sshd.config)


class TestFailures:
    """Each says what is wrong and what to do, in a few lines, and ends at once."""

    def test_a_name_that_does_not_resolve(self, sshd: LoopbackSshd) -> None:
        told = str(failure([Node("no-such-host.invalid")], sshd.config))
        assert "no-such-host.invalid: its name cannot be resolved" in told
        assert "address=" in told

    def test_a_port_where_nobody_listens(self, sshd: LoopbackSshd) -> None:
        with closed_port() as port:
            told = str(failure([Node("127.0.0.1", port=port)], sshd.config))
        assert f"127.0.0.1: connection refused ([127.0.0.1]:{port})" in told
        assert "sshd" in told

    def test_a_host_that_does_not_answer(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(ConnectTimeout="1")
        with silent_listener(backlog=0) as port:
            before = time.monotonic()
            told = str(failure([Node("127.0.0.1", port=port)], config))
            assert time.monotonic() - before < KERNEL_S
        assert f"no answer within 1 s ([127.0.0.1]:{port})" in told

    def test_a_server_that_says_nothing(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(ConnectTimeout="1")
        with silent_listener(backlog=5) as port:
            told = str(failure([Node("127.0.0.1", port=port)], config))
        assert "no answer within 1 s" in told

    def test_a_server_that_sheds_load_for_good(self) -> None:
        with (
            LoopbackSshd.start(MaxStartups="1:100:1") as server,
            closing(socket.create_connection(server.address)) as taken,
        ):
            assert taken.recv(4) == b"SSH-"
            told = str(failure(hosts(1), server.config, retry_s=1.0))
        assert "hung up before the login" in told
        assert "MaxStartups" in told

    def test_something_that_is_no_ssh_server(self, sshd: LoopbackSshd) -> None:
        with http_server() as port:
            told = str(failure([Node("127.0.0.1", port=port)], sshd.config))
        assert "hung up before the login" in told

    def test_a_refused_key(self, tmp_path: Path) -> None:
        stranger = make_key(tmp_path / "stranger")
        with LoopbackSshd.start() as server:
            config = server.write_config(IdentityFile=str(stranger))
            told = str(failure(hosts(1), config, retry_s=60))
            assert server.connections() == 1, "it was tried again"
        assert re.search(r"the login as \w+ was refused", told)
        assert "the server offers publickey" in told
        assert f"tried {stranger}" in told
        assert "authorized_keys" in told

    def test_no_key_at_all(self, sshd: LoopbackSshd) -> None:
        config = sshd.write_config(IdentityFile="/nonexistent/key")
        told = str(failure(hosts(1), config))
        assert "no key could be tried" in told

    def test_an_encrypted_key_without_terminal(self, sshd: LoopbackSshd, tmp_path: Path) -> None:
        key = make_key(tmp_path / "locked", passphrase=PASSPHRASE)
        told = str(failure(hosts(1), sshd.write_config(IdentityFile=str(key))))
        assert f"{key} is encrypted" in told
        assert "ssh-add" in told

    def test_an_option_smuggled_into_a_name(self, sshd: LoopbackSshd, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        told = str(failure([Node(f"-oProxyCommand=touch {mark}")], sshd.config))
        assert "is not a host name: it would be an option to ssh" in told
        assert not mark.exists()

    def test_a_broken_config_is_told_in_ssh_s_own_words(self, tmp_path: Path) -> None:
        config = tmp_path / "config"
        config.write_text("Host *\n    Prot 22\n")
        told = str(failure(hosts(3), config))
        assert f"{config}: line 2: Bad configuration option: prot" in told
        assert told.count("Bad configuration option") == 1

    def test_no_ssh_client(self, sshd: LoopbackSshd, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        told = str(failure(hosts(2), sshd.config))
        assert "there is no ssh client here" in told
        assert "apt-get install openssh-client" in told

    def test_are_told_together(self, sshd: LoopbackSshd) -> None:
        with closed_port() as refused:
            nodes = [*hosts(2), *(Node(f"127.0.0.{i}", port=refused) for i in range(10, 40))]
            error = failure([*nodes, Node("no-such-host.invalid")], sshd.config)
        lines = report(error).splitlines()
        assert error.exit_status == 3
        assert lines[0] == "slurm-adapter: 31 of 33 nodes cannot be used; nothing was started"
        assert lines[1].startswith("  127.0.0.[10-39]: connection refused (for 127.0.0.10:")
        assert any(line.startswith("  no-such-host.invalid: ") for line in lines)
        assert len(lines) == 5

    def test_stay_short_where_names_do_not_fold(self, sshd: LoopbackSshd) -> None:
        nodes = [Node(f"{chr(97 + i)}-no-such-host-at-all.invalid") for i in range(20)]
        line = str(failure(nodes, sshd.config)).splitlines()[1]
        assert line.startswith("a-no-such-host-at-all.invalid,b-no-such-host-at-all.invalid,")
        assert "e-no-such-host-at-all.invalid and 15 more: its name cannot be resolved" in line

    def test_say_nothing_on_stderr(
        self, sshd: LoopbackSshd, capfd: pytest.CaptureFixture[str]
    ) -> None:
        config = sshd.write_config(IdentityFile="/nonexistent/key")
        with closed_port() as refused:
            failure([*hosts(2), Node("127.0.0.9", port=refused)], config)
        assert capfd.readouterr().err == ""


def test_a_variable_names_the_config(sshd: LoopbackSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ADAPTER_SSH_CONFIG", str(sshd.config))
    with closing(connect_all(hosts(1), hello)) as connected:
        assert connected.all() == ["0"]


INTERRUPTED = """
import signal, sys, threading
from pathlib import Path
from slurm_adapter.cluster import Node
from slurm_adapter.remote.transport.connect_all import connect_all

opened = []

def use(connection, index):
    opened.append(connection)
    if len(opened) == 2:
        print("open", flush=True)
    return connection.run("sleep 1000", limit_s=1000)  # until it is interrupted

nodes = [Node("127.0.0.1"), Node("127.0.0.2"), Node("127.0.0.3", port=int(sys.argv[2]))]
try:
    connect_all(nodes, use, config_file=Path(sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted", [connection.alive() for connection in opened], flush=True)
"""


def test_ctrl_c_ends_quickly_and_closes_what_was_opened(sshd: LoopbackSshd) -> None:
    with silent_listener(backlog=5) as port:
        config = sshd.write_config(ConnectTimeout="1000")
        with Child(
            [sys.executable, "-c", INTERRUPTED, str(config), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "open\n"
                process.send_signal(signal.SIGINT)
                # Neither the silent server's ConnectTimeout nor the command's limit is waited for.
                out, err = process.communicate(timeout=LONG_S)
            finally:
                process.kill()
    assert (out, err) == ("interrupted [False, False]\n", "")


@contextmanager
def silent_listener(backlog: int) -> Iterator[int]:
    """A port whose listener accepts nothing; with backlog 0 and one waiting, nothing answers."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)
        with closing(socket.create_connection(listener.getsockname())):
            yield listener.getsockname()[1]


@contextmanager
def http_server() -> Iterator[int]:
    """A port at which HTTP is spoken."""

    def answer() -> None:
        with suppress(OSError):  # it was shut down
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def released(held: ExitStack, wait: Callable[[str], object], pattern: str) -> Iterator[None]:
    """Meanwhile let go of what is held as soon as a wait for a pattern has ended."""

    def release() -> None:
        with held:
            wait(pattern)

    thread = threading.Thread(target=release)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

"""A command on a node and its streams: the same promises over SSH and on this machine."""

import gc
import os
import re
import selectors
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from localconnection import LocalConnection, end_let_go
from loopback import LoopbackSshd, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.port import (
    CommandChannel,
    Connection,
    ConnectionLostError,
    NoAnswerError,
)
from testbed.waiting import LONG_S

pytestmark = pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd())


@pytest.fixture(scope="module")
def sshd() -> Iterator[LoopbackSshd]:
    with LoopbackSshd.start() as server:
        yield server


def connect(sshd: LoopbackSshd, name: str = "127.0.0.1") -> Connection:
    connected = connect_all([Node(name)], lambda connection, _: connection, config_file=sshd.config)
    return connected.all()[0]


@pytest.fixture(params=["ssh", "here"])
def node(request: pytest.FixtureRequest, sshd: LoopbackSshd) -> Iterator[Connection]:
    here = LocalConnection(Node("here"))
    with closing(connect(sshd) if request.param == "ssh" else here) as connection:
        yield connection
    end_let_go()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe: who opens one end waits for the other."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def open_gate(gate: Path) -> None:
    """Let whoever reads from it go on."""
    os.close(os.open(gate, os.O_WRONLY))


def wait(channel: CommandChannel, until: Callable[[], bool]) -> None:
    """Wait for news of a channel until something is so."""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while not until():
            assert selector.select(LONG_S), "no news in time"


def quiet(channel: CommandChannel) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        return not selector.select(0)


def read_line(channel: CommandChannel) -> bytes:
    found = bytearray()

    def complete() -> bool:
        while b := channel.read(1):
            found.extend(b)
        return found.endswith(b"\n")

    wait(channel, complete)
    return bytes(found)


def read_all(channel: CommandChannel) -> bytes:
    found: list[bytes] = []

    def ended() -> bool:
        channel.status()
        channel.read_error(1 << 16)
        while data := channel.read(1 << 16):
            found.append(data)
        return data is not None

    wait(channel, ended)
    return b"".join(found)


class TestRun:
    def test_gives_status_and_both_streams(self, node: Connection) -> None:
        answer = node.run("echo out; echo err >&2; exit 7")
        assert (answer.status, answer.output, answer.error) == (7, b"out\n", b"err\n")

    def test_feeds_the_input_to_its_end(self, node: Connection) -> None:
        data = os.urandom(3_000_000)  # more than any window or pipe holds
        answer = node.run("cat", data)
        assert answer.output == data

    def test_bears_a_command_that_does_not_read(self, node: Connection) -> None:
        assert node.run("exec <&-; exit 3", b"x" * 3_000_000).status == 3

    def test_takes_text_for_the_shell_as_it_is(self, node: Connection) -> None:
        command = "printf '%s|' 'a b; echo INJ' \"$(echo 'é')\" '*'"
        assert node.run(command).output == "a b; echo INJ|é|*|".encode()

    def test_starts_in_the_home_directory(self, node: Connection) -> None:
        assert node.run("pwd").output.decode().strip() == str(Path.home())

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
    def test_tells_a_signal_as_a_shell_would(self, node: Connection, number: int) -> None:
        assert node.run(f"kill -{number} $$").status == 128 + number

    def test_waits_for_what_comes_after_the_streams(self, node: Connection) -> None:
        assert node.run("exec >&- 2>&-; read line; exit 5", b"go\n").status == 5

    def test_gives_up_after_the_limit(self, node: Connection, gate: Path) -> None:
        command = f"read go <{shlex.quote(str(gate))}"
        with pytest.raises(NoAnswerError, match=rf"no end of `{re.escape(command)}` within 0\.2 s"):
            node.run(command, limit_s=0.2)
        open_gate(gate)

    def test_hands_no_variable_over(
        self, node: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SSH-02: what a command needs stands in it, quoted by us; nothing is sent beside it."""
        monkeypatch.setenv("LC_SECRET", "x")
        if not isinstance(node, LocalConnection):
            assert node.run("echo ${LC_SECRET-unset}").output == b"unset\n"


class TestChannel:
    def test_returns_none_while_there_is_nothing(self, node: Connection) -> None:
        with closing(node.start("read line; echo $line")) as channel:
            assert channel.read(100) is None
            assert channel.read_error(100) is None
            assert channel.status() is None
            assert quiet(channel)
            assert channel.write(b"hello\n") == 6
            assert read_all(channel) == b"hello\n"

    def test_keeps_what_was_not_read_yet_readable(self, node: Connection) -> None:
        with closing(node.start("echo abc; read line")) as channel:
            wait(channel, lambda: channel.read(1) == b"a")
            assert not quiet(channel)
            assert channel.read(1) == b"b"
            assert not quiet(channel)
            assert channel.read(100) == b"c\n"
            assert channel.read(100) is None
            channel.read_error(1)
            channel.status()
            assert quiet(channel)

    def test_is_quiet_after_its_streams_have_ended(self, node: Connection) -> None:
        with closing(node.start("exec >&- 2>&-; read line; exit 9")) as channel:
            assert read_all(channel) == b""
            wait(channel, lambda: channel.read_error(1) == b"")
            assert channel.status() is None
            assert channel.read(1) == b""
            assert quiet(channel)
            channel.close_input()
            wait(channel, lambda: channel.status() == 9)

    def test_is_quiet_after_its_end(self, node: Connection) -> None:
        with closing(node.start("exit 4")) as channel:
            wait(channel, lambda: channel.status() == 4)
            wait(channel, lambda: channel.read(1) == b"")
            wait(channel, lambda: channel.read_error(1) == b"")
            channel.status()
            assert quiet(channel)

    def test_takes_no_more_than_there_is_room_for(self, node: Connection) -> None:
        block = b"x" * 65536
        with closing(node.start("read line; exec cat")) as channel:
            taken = 0
            while count := channel.write(block):
                taken += count
                assert taken < 1 << 26, "somebody keeps it all"
            # The shell reads byte by byte, so that all of the rest reaches cat.
            assert channel.status() is None

    def test_tells_when_there_is_room_again(self, node: Connection, gate: Path) -> None:
        block = b"x" * 65536
        command = f"read go <{shlex.quote(str(gate))}; exec cat >/dev/null"
        with closing(node.start(command)) as channel:
            while channel.write(block):
                pass
            open_gate(gate)
            wait(channel, lambda: channel.write(block) > 0)

    def test_reads_in_pieces_as_asked(self, node: Connection) -> None:
        with closing(node.start("printf 0123456789")) as channel:
            pieces: list[bytes] = []

            def ended() -> bool:
                while piece := channel.read(3):
                    pieces.append(piece)
                return piece is not None

            wait(channel, ended)
            assert b"".join(pieces) == b"0123456789"
            assert max(map(len, pieces)) <= 3

    def test_closes_twice(self, node: Connection) -> None:
        channel = node.start("cat")
        channel.close()
        channel.close()

    def test_many_at_once(self, node: Connection) -> None:
        with ExitStack() as stack:
            channels = [node.start(f"echo {i}; cat") for i in range(20)]
            for channel in channels:
                stack.callback(channel.close)
            for channel in channels:
                channel.close_input()
            assert [read_all(channel) for channel in channels] == [b"%d\n" % i for i in range(20)]


class TestLostConnection:
    def test_is_told_from_an_end(self, sshd: LoopbackSshd) -> None:
        with closing(connect(sshd)) as node, closing(node.start("echo $PPID; cat")) as channel:
            os.kill(int(read_line(channel)), signal.SIGKILL)
            wait(channel, lambda: channel.read(1) == b"" and not node.alive())
            assert channel.status() is None
            with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1: the connection was lost"):
                channel.write(b"x")
            with pytest.raises(ConnectionLostError):
                node.start("true")

    def test_ends_a_run(self, sshd: LoopbackSshd) -> None:
        with closing(connect(sshd)) as node, pytest.raises(ConnectionLostError):
            node.run("kill -9 $PPID; cat")

    def test_close_ends_channels(self, sshd: LoopbackSshd) -> None:
        node = connect(sshd)
        channel = node.start("exec cat")
        node.close()
        wait(channel, lambda: channel.read(1) == b"")
        assert not node.alive()
        channel.close()
        node.close()

    def test_close_does_not_wait_for_a_dead_node(self, sshd: LoopbackSshd) -> None:
        node = connect(sshd)
        server = int(node.run("echo $PPID; :").output)
        channel = node.start("exec cat >/dev/null")
        closing = threading.Thread(target=node.close)
        os.kill(server, signal.SIGSTOP)
        try:
            closing.start()
            closing.join(100)  # after two minutes the kernel itself gives the connection up
            assert not closing.is_alive()
        finally:
            os.kill(server, signal.SIGKILL)
            closing.join()
            channel.close()


def test_what_runs_on_is_not_forgotten_where_many_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python warns of a child that is given up before anybody has seen its end."""
    given_up: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: given_up.append(told.exc_value))
    here = LocalConnection(Node("here"))

    def start_some() -> None:
        for _ in range(40):
            here.start("exec sleep 0.05").close()

    threads = [threading.Thread(target=start_some) for _ in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
        end_let_go()
    gc.collect()
    assert given_up == []

"""Nothing that others have a part in reaches the terminal as it is (servers, nodes, files)."""

import contextlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from loopback import LoopbackSshd, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.errors import AdapterError, message, printable, report
from slurm_adapter.launch.observer import Observer
from slurm_adapter.node.protocol.encoding import agent_frame
from slurm_adapter.node.protocol.messages import (
    AgentMessage,
    Gone,
    RankEnded,
    RankOutput,
    Unfit,
    Warned,
)
from slurm_adapter.remote.agent_archive import agent_files
from slurm_adapter.remote.transport.connector import Connector
from slurm_adapter.remote.transport.prompts import Terminal as Questions
from slurm_adapter.show.harmless import harmless
from steps import SCRIPTS
from terminal import Terminal, terminal
from testbed.child import Child
from testbed.waiting import LONG_S, until

ADAPTER = Path(sys.executable).with_name("slurm-adapter")
TITLE, CLEAR, HIDE, UP = "\x1b]0;title\x07", "\x1b[2J", "\x1b[8m", "\x1b[5A"
HOSTILE = f"{TITLE}{CLEAR}{HIDE}{UP}"
FORGED = f" {HOSTILE}\nslurm-adapter: job is done"
ENDED = (RankEnded(0, 3, 1.0), Gone(""))
# How a panel is drawn and taken away, and what is drawn.
PANEL = re.compile(rb"\x1b7.*?\x1b8|\x1b\[\d+A", re.DOTALL)
NOTHING_OBEYED = ("\x1b]", "\x1b[2J", "\x1b[8m", "\x1b[5A", "\x07", "\x9b")


def obeyed(written: bytes) -> list[str]:
    """Return what of it a terminal obeys, beside colours of prefixes and line ends."""
    text = written.decode(errors="replace")
    return [mark for mark in NOTHING_OBEYED if mark in text]


class TestPrintable:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("plain ~", "plain ~"),
            ("日本 é 🙂 ½°", "日本 é 🙂 ½°"),
            ("full\u3000width", r"full\u3000width"),
            (TITLE, r"\x1b]0;title\x07"),
            ("日本\x1b[2J", r"日本\x1b[2J"),
            ("\x9b2J", r"\x9b2J"),
            ("\x7f\0\b\r\n\t", r"\x7f\x00\x08\r\n\t"),
            ("gpu\u202e10", r"gpu\u202e10"),
            ("a\u2066b\u2069\u200f", r"a\u2066b\u2069\u200f"),
            ("gpu\u200b1\u200d\ufeff\u00ad", r"gpu\u200b1\u200d\ufeff\xad"),
            ("gpu\u115f\u3164\ufe0f\u034f1", r"gpu\u115f\u3164\ufe0f\u034f1"),
            ("\U000e0041\U000e0101", r"\U000e0041\U000e0101"),
            ("a\u2028b\u2029c\u0085", r"a\u2028b\u2029c\x85"),
            ("caf\udce9", r"caf\xe9"),
            ("\ud83d", r"\ud83d"),
        ],
    )
    def test_shows_what_has_no_mark_of_its_own(self, text: str, shown: str) -> None:
        assert printable(text) == shown
        assert printable(shown) == shown

    def test_no_line_of_others_begins_like_one_of_ours(self) -> None:
        text = f"lost {HOSTILE}\nslurm-adapter: job is done\r\nslurm-adapter: really\vx\u2028y"
        lines = message(text).split("\n")
        assert [line.startswith("slurm-adapter: ") for line in lines] == [True, *[False] * 4]
        assert not obeyed(message(text).encode())
        assert report(AdapterError(text)) == message(text)
        assert message("") == "slurm-adapter: "

    def test_what_stands_in_by_two_blanks_stays_so(self) -> None:
        assert message("first\n  second\nthird") == "slurm-adapter: first\n  second\n  third"


def test_a_program_s_log_has_nothing_to_obey(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for tell in (Observer().say, Observer().warn, Observer().note, Observer().detail):
            tell(f"lost{FORGED}")
    assert len(caplog.messages) == 4
    assert not obeyed("".join(caplog.messages).encode())


def run_at(shown: Terminal, *words: str, env: dict[str, str] | None = None) -> bytes:
    """Run a program at a terminal; return what it wrote there."""
    with Child(
        words,
        stdin=subprocess.DEVNULL,
        stdout=shown.stream,
        stderr=shown.stream,
        env={**os.environ, **(env or {})},
    ) as child:
        child.wait(LONG_S)
    return shown.drain()


class TestRanksOutput:
    # A colour, a title, a clear, the alternate screen, a question to the terminal, the cursor up.
    PRINTED = b"\x1b[31mred\x1b[0m\x1b]0;t\x07\x1b[2J\x1b[?1049h\x1b[6n\x1b[9A\x1b[?25lend\n"

    def words(self, tmp_path: Path, *more: str) -> list[str]:
        (tmp_path / "printed").write_bytes(self.PRINTED)
        where = ["--job-folder", str(tmp_path / "job"), "--view", "off", "--contract", "env"]
        return [str(ADAPTER), "local", *where, *more, "--command", f"cat {tmp_path}/printed"]

    def test_has_colours_at_a_terminal_and_nothing_else(self, tmp_path: Path) -> None:
        with terminal(80, 24) as shown:
            written = run_at(shown, *self.words(tmp_path))
        assert b"\x1b[31mred\x1b[0mend\x1b[0m" in written
        assert not obeyed(written)

    def test_is_as_it_was_printed_where_that_is_wanted(self, tmp_path: Path) -> None:
        with terminal(80, 24) as shown:
            written = run_at(shown, *self.words(tmp_path, "--raw"))
        assert self.PRINTED.replace(b"\n", b"\r\n") in written

    def test_is_as_it_was_printed_in_a_pipe(self, tmp_path: Path) -> None:
        done = subprocess.run(self.words(tmp_path), capture_output=True, check=True)
        assert self.PRINTED in done.stdout

    @pytest.mark.parametrize("raw", [False, True])
    @pytest.mark.parametrize("rank", [None, 0])
    def test_of_a_job_s_files_is_no_other(self, rank: int | None, *, raw: bool) -> None:
        code = (
            "from slurm_adapter.show.observers import OutputPrinter as P;"
            "from slurm_adapter.launch.observer import Chunk;"
            f"P([('', range(1))], own_log=False, raw={raw}).show(Chunk({rank}, {self.PRINTED!r}))"
        )
        with terminal(80, 24) as shown:
            written = run_at(shown, sys.executable, "-c", code)
        assert bool(obeyed(written)) == raw
        assert b"red" in written

    @pytest.mark.parametrize(
        "piece",
        [
            b"\x1b",
            b"\x1b]",
            b"\x1b[",
            b"\x1b[1;",
            b"\x1bP",
            b"\xc2\x9b",
            b"\x1b ",
            b"\r",
            b"\x1b[m",
        ],
    )
    def test_of_any_kind_takes_time_in_proportion(self, piece: bytes) -> None:
        """A quadratic way would take hours."""
        assert harmless(piece * (1 << 20) + b"\n").endswith(b"\n")

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (["sbatch", "--raw", "x.py"], "without --follow nothing is"),
            (["ssh", "-H", "n1", "--detach", "--raw", "x.py"], "with --detach nothing is"),
        ],
    )
    def test_is_not_asked_for_where_there_is_none(self, words: list[str], found: str) -> None:
        done = subprocess.run([ADAPTER, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert found in done.stderr


class TestStdout:
    CODE = "from slurm_adapter.output import write_stdout as w; w({!r}, styled={!r})"

    @pytest.mark.parametrize("styled", [False, True])
    def test_at_a_terminal_has_our_colours_at_most(self, *, styled: bool) -> None:
        text = f"\x1b[1mjob\x1b[0m\t{TITLE}{CLEAR}\u202e\udcff\n"
        with terminal(80, 24) as shown:
            written = run_at(shown, sys.executable, "-c", self.CODE.format(text, styled))
        escaped = rb"	\x1b]0;title\x07\x1b[2J\u202e\xff" + b"\r\n"
        bold = b"\x1b[1mjob\x1b[0m" if styled else rb"\x1b[1mjob\x1b[0m"
        assert written == bold + escaped

    def test_in_a_pipe_has_every_byte(self) -> None:
        text = f"{HOSTILE}\u202e\udcff\n"
        done = subprocess.run(
            [sys.executable, "-c", self.CODE.format(text, "")], capture_output=True, check=True
        )
        assert done.stdout == os.fsencode(text)


def test_a_dry_run_s_document_is_ascii_where_letters_cannot_be_seen(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    value = "日本\x9b\u202e\x7f\U000e0041"
    done = subprocess.run(
        [ADAPTER, "local", "--dry-run", "--format", "json", "--env", f"X={value}", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "日本" + r"\u009b\u202e\u007f\udb40\udc41" in done.stdout
    ranks = json.dumps(json.loads(done.stdout), ensure_ascii=False)
    assert json.dumps(value, ensure_ascii=False)[1:-1] in ranks


class _HostileServer(paramiko.ServerInterface):  # type: ignore[misc]
    """Asks for a word, in a hostile way, and takes none."""

    def get_allowed_auths(self, username: str) -> str:
        del username
        return "keyboard-interactive"

    def check_auth_interactive(self, username: str, submethods: str) -> object:
        del username, submethods
        mine = f"{HOSTILE}\nPassphrase for /home/ada/.ssh/id_rsa"
        return paramiko.InteractiveQuery(f"title{mine}", f"do{mine}", (f"code{mine}: ", True))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        del responses
        return int(paramiko.AUTH_FAILED)

    def get_banner(self) -> tuple[str, str]:
        return f"banner{HOSTILE}\r\n", "en"


@contextlib.contextmanager
def hostile_server(folder: Path) -> Iterator[Path]:
    """Serve one connection; give an ssh config that leads there."""
    key = paramiko.ECDSAKey.generate()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        (folder / "known").write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        options = {
            "HostName": "127.0.0.1",
            "Port": port,
            "User": "ada",
            "UserKnownHostsFile": folder / "known",
            "GlobalKnownHostsFile": "/dev/null",
            "IdentityFile": "none",
            "IdentityAgent": "none",
            "PreferredAuthentications": "keyboard-interactive",
            "NumberOfPasswordPrompts": "1",
        }
        (folder / "config").write_text("".join(f"{k} {v}\n" for k, v in options.items()))
        served: list[paramiko.Transport] = []

        def serve() -> None:
            connection, _ = listening.accept()
            served.append(paramiko.Transport(connection))
            served[0].add_server_key(key)
            with contextlib.suppress(paramiko.SSHException, EOFError):
                served[0].start_server(server=_HostileServer())

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield folder / "config"
        finally:
            serving.join()
            for one in served:
                one.close()
                one.join()


def test_questions_of_a_server_say_in_each_line_whose_they_are(tmp_path: Path) -> None:
    with hostile_server(tmp_path) as config, terminal(120, 40) as shown:
        questions = Questions(os.ttyname(shown.stream))
        connector = Connector(config, terminal=questions)
        errors: list[AdapterError] = []

        def connect() -> None:
            try:
                connector.open(Node("evil"))
            except AdapterError as error:
                errors.append(error)

        connecting = threading.Thread(target=connect)
        connecting.start()
        try:
            assert until(lambda: any(row.endswith("id_rsa:") for row in shown.rows()))
            rows = shown.rows()
            shown.type("x\n")
            connecting.join()
        finally:
            connector.cancel()
            connecting.join()
            connector.close()
            questions.close()
        assert [row.partition(")")[0] for row in rows] == ["(ada@evil"] * 6
        assert not obeyed(shown.written)
        assert "the login as ada was refused" in str(errors[0])


@pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd())
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_a_host_prints_is_told_with_nothing_to_obey(tmp_path: Path, stream: str) -> None:
    said = tmp_path / "said"
    said.write_text(f"why {HOSTILE}\nslurm-adapter: job is done\n")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat {said} {'>&2' if stream == 'stderr' else ''}\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / "train.py").touch()
    with LoopbackSshd.start() as server, terminal(120, 40) as shown:
        written = run_at(
            shown,
            *(str(ADAPTER), "ssh", "-H", "127.0.0.1", "--python", str(python)),
            str(tmp_path / "train.py"),
            env={"SLURM_ADAPTER_SSH_CONFIG": str(server.config), "HOME": str(tmp_path)},
        )
        assert rb"why \x1b]0;title\x07" in written
        assert not obeyed(written)
        assert sum(line.startswith(b"slurm-adapter: ") for line in written.splitlines()) == 1


@pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd())
@pytest.mark.parametrize(
    "told",
    [
        pytest.param([Warned(f"warning{FORGED}"), *ENDED], id="a warning"),
        pytest.param([Unfit(3, f"found{FORGED}", f"remedy{FORGED}")], id="an error"),
        pytest.param([ENDED[0], Gone(f"pid 1{FORGED}")], id="what is left"),
        pytest.param([RankOutput(0, f"{FORGED}\n".encode(), is_error=False), *ENDED], id="output"),
        pytest.param([RankOutput(0, f"{FORGED}\n".encode(), is_error=True), *ENDED], id="errors"),
    ],
)
def test_what_a_hostile_node_tells_is_not_obeyed(tmp_path: Path, told: list[AgentMessage]) -> None:
    hostile = b"".join(map(agent_frame, told)).hex()
    rest = len(agent_files().first.partition(b"\n")[2])
    python = tmp_path / "python"
    agent = SCRIPTS / "hostile_agent.py"
    python.write_text(f'#!/bin/sh\nHOSTILE={hostile} REST={rest} exec {agent} "$@"\n')
    python.chmod(0o755)
    with LoopbackSshd.start() as server, terminal(120, 40) as shown:
        written = run_at(
            shown,
            *(str(ADAPTER), "ssh", "-H", "127.0.0.1", "--python", str(python), "--grace", "0.1"),
            *("--link-timeout", "5"),
            *("--code", str(tmp_path), "--contract", "env", "--command", "true"),
            env={"SLURM_ADAPTER_SSH_CONFIG": str(server.config), "HOME": str(tmp_path)},
        )
    assert b"job is done" in written
    assert not obeyed(PANEL.sub(b"", written))
    assert not re.search(rb"^slurm-adapter: job is done", written, re.MULTILINE)

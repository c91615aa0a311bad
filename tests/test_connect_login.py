"""Logging in: which keys are tried, what is asked at the terminal, and how often."""

import os
import pty
import re
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from loopback import LoopbackSshd, make_key, public_part, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.prompts import NoTerminalError, Terminal
from slurm_adapter.remote.transport.unreachable import UnreachableError
from testbed.child import Child
from testbed.waiting import LONG_S

pytestmark = [
    pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd()),
    pytest.mark.usefixtures("unhurried"),
]

PASSWORD = "correct horse"  # noqa: S105 - of a server that lives as long as the tests
PASSPHRASE = "open sesame"  # noqa: S105 - likewise
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives the user a password")


@pytest.fixture(scope="module")
def sshd() -> Iterator[LoopbackSshd]:
    with LoopbackSshd.start(listen="0.0.0.0") as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackSshd]:
    """One that takes a password."""
    with LoopbackSshd.start(
        listen="0.0.0.0", password=PASSWORD, PasswordAuthentication="yes"
    ) as one:
        yield one


class Typist:
    """Somebody at a terminal: answers prompts, and keeps all that the terminal showed."""

    def __init__(self, answers: list[tuple[str, str]]) -> None:
        self.shown = ""
        self._answers = list(answers)
        self._master, self._slave = pty.openpty()
        self.terminal = Terminal(os.ttyname(self._slave))
        self._thread = threading.Thread(target=self._type, daemon=True)
        self._thread.start()

    @property
    def unanswered(self) -> list[tuple[str, str]]:
        return self._answers

    def _type(self) -> None:
        seen = 0
        while True:
            try:
                data = os.read(self._master, 1024)
            except OSError:
                return
            self.shown += data.decode()
            while self._answers and re.search(self._answers[0][0], self.shown[seen:]):
                seen = len(self.shown)
                os.write(self._master, f"{self._answers.pop(0)[1]}\n".encode())

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._slave)[3] & termios.ECHO)

    def close(self) -> None:
        self.terminal.close()
        os.close(self._slave)
        self._thread.join(LONG_S)
        os.close(self._master)


@contextmanager
def typist(*answers: tuple[str, str]) -> Iterator[Typist]:
    with closing(Typist(list(answers))) as one:
        yield one


def log_in(sshd: LoopbackSshd, terminal: Terminal | None = None, count: int = 1) -> None:
    nodes = [Node(f"127.0.0.{number + 1}") for number in range(count)]
    with closing(
        connect_all(
            nodes,
            lambda connection, _: connection.run("true").status,
            config_file=sshd.config,
            terminal=terminal,
            retry_s=0,
        )
    ) as connected:
        assert connected.all() == [0] * count


def refusal(sshd: LoopbackSshd, terminal: Terminal | None = None) -> str:
    with pytest.raises(UnreachableError) as caught:
        log_in(sshd, terminal)
    return str(caught.value)


@contextmanager
def agent(*keys: Path) -> Iterator[str]:
    """A running ssh-agent that holds keys; gives its socket."""
    with Child(
        ["ssh-agent", "-D"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            path = process.stdout.readline().partition("SSH_AUTH_SOCK=")[2].partition(";")[0]
            for key in keys:
                subprocess.run(
                    ["ssh-add", "-q", key], check=True, env={**os.environ, "SSH_AUTH_SOCK": path}
                )
            yield path
        finally:
            process.terminate()  # unlike a killed one, it takes its socket away


class TestKeys:
    @pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
    def test_of_each_type(self, sshd: LoopbackSshd, tmp_path: Path, kind: str) -> None:
        key = make_key(tmp_path / "key", kind)
        with accepted(sshd, key):
            sshd.write_config(IdentityFile=str(key))
            log_in(sshd)

    def test_the_second_file_works_where_the_first_is_refused(
        self, sshd: LoopbackSshd, tmp_path: Path
    ) -> None:
        stranger = make_key(tmp_path / "stranger")
        sshd.write_config(IdentityFile=f"{stranger}\n    IdentityFile {sshd.key}")
        log_in(sshd)

    def test_in_an_agent(self, sshd: LoopbackSshd, tmp_path: Path) -> None:
        with agent(sshd.key) as path:
            sshd.write_config(
                IdentityAgent=path, IdentitiesOnly="no", IdentityFile=str(tmp_path / "none")
            )
            log_in(sshd, count=5)

    def test_only_the_agent_keys_that_files_name(self, sshd: LoopbackSshd, tmp_path: Path) -> None:
        other = make_key(tmp_path / "other")
        with agent(sshd.key, other) as path:
            sshd.write_config(IdentityAgent=path, IdentityFile=str(other))
            told = refusal(sshd)
            assert told.count("(agent, SHA256:") == 1
            # Its public half alone is enough to name it.
            named = tmp_path / "named"
            named.write_text("not a key")
            Path(f"{named}.pub").write_text(f"{public_part(sshd.key)}\n")
            sshd.write_config(IdentityAgent=path, IdentityFile=str(named))
            log_in(sshd)

    def test_an_agent_that_is_gone_is_passed_over(self, sshd: LoopbackSshd, tmp_path: Path) -> None:
        sshd.write_config(IdentityAgent=str(tmp_path / "gone"))
        log_in(sshd)

    def test_with_a_certificate(self, tmp_path: Path) -> None:
        authority = make_key(tmp_path / "ca")
        key = make_key(tmp_path / "key")
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True)
        subprocess.run(
            [
                "ssh-keygen",
                "-q",
                "-s",
                authority,
                "-I",
                "me",
                "-n",
                user.stdout.strip(),
                f"{key}.pub",
            ],
            check=True,
        )
        with LoopbackSshd.start(
            TrustedUserCAKeys=f"{authority}.pub", AuthorizedKeysFile="none"
        ) as server:
            server.write_config(IdentityFile=str(key))
            log_in(server)

    def test_none_are_tried_where_the_config_forbids_it(self, sshd: LoopbackSshd) -> None:
        sshd.write_config(PubkeyAuthentication="no")
        told = refusal(sshd)
        assert "no key could be tried" in told

    def test_more_than_the_server_bears(self, tmp_path: Path) -> None:
        keys = [make_key(tmp_path / f"key{number}") for number in range(4)]
        with LoopbackSshd.start(MaxAuthTries="2") as server:
            server.write_config(IdentityFile="\n    IdentityFile ".join(map(str, keys)))
            told = refusal(server)
        assert "Too many authentication failures" in told

    def test_a_passphrase_is_asked_for_once_for_all_hosts(self, tmp_path: Path) -> None:
        key = make_key(tmp_path / "locked", passphrase=PASSPHRASE)
        with LoopbackSshd.start(listen="0.0.0.0") as server, accepted(server, key):
            server.write_config(IdentityFile=str(key), BatchMode="no")
            with typist(("Passphrase for ", "wrong"), ("Passphrase for ", PASSPHRASE)) as user:
                log_in(server, user.terminal, count=8)
                assert user.shown.count("Passphrase for") == 2
                assert "sesame" not in user.shown, "it was echoed"

    def test_a_passphrase_is_not_asked_for_in_batch_mode(
        self, sshd: LoopbackSshd, tmp_path: Path
    ) -> None:
        key = make_key(tmp_path / "locked", passphrase=PASSPHRASE)
        sshd.write_config(IdentityFile=str(key), BatchMode="yes")
        with typist() as user:
            assert "BatchMode forbids to ask" in refusal(sshd, user.terminal)
            assert user.shown == ""


@as_root
class TestPasswords:
    @pytest.fixture(autouse=True)
    def _no_keys(self, server: LoopbackSshd) -> None:
        server.write_config(IdentityFile="/nonexistent", BatchMode="no")

    def test_once_for_each_host(self, server: LoopbackSshd) -> None:
        prompt = r"@127\.0\.0\.\d's password: "
        with typist((prompt, PASSWORD), (prompt, PASSWORD), (prompt, PASSWORD)) as user:
            log_in(server, user.terminal, count=3)
            assert PASSWORD not in user.shown
            assert sorted(re.findall(r"@(\S+)'s password", user.shown)) == [
                "127.0.0.1",
                "127.0.0.2",
                "127.0.0.3",
            ]

    def test_a_wrong_one_is_asked_for_again(self, server: LoopbackSshd) -> None:
        with typist(("password: ", "wrong"), ("password: ", PASSWORD)) as user:
            log_in(server, user.terminal)

    def test_not_for_ever(self, server: LoopbackSshd) -> None:
        with typist(*[("password: ", "wrong")] * 4) as user:
            told = refusal(server, user.terminal)
            assert user.shown.count("password: ") == 3
        assert "and what you typed" in told

    def test_not_without_a_terminal(self, server: LoopbackSshd, tmp_path: Path) -> None:
        told = refusal(server, Terminal(str(tmp_path / "no-tty")))
        assert "the server offers publickey, password" in told
        assert "a password was not asked for: there is no terminal" in told

    def test_not_in_batch_mode(self, server: LoopbackSshd) -> None:
        server.write_config(IdentityFile="/nonexistent", BatchMode="yes")
        with typist() as user:
            assert "BatchMode is on" in refusal(server, user.terminal)

    def test_not_where_the_host_key_is_not_the_known_one(
        self, server: LoopbackSshd, tmp_path: Path
    ) -> None:
        old = public_part(make_key(tmp_path / "old"))
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{server.port} {old}\n")
        server.write_config(
            IdentityFile="/nonexistent",
            BatchMode="no",
            StrictHostKeyChecking="no",
            UserKnownHostsFile=str(known),
        )
        with typist(("password: ", PASSWORD)) as user:
            assert "the host key is not the known one" in refusal(server, user.terminal)
            assert user.shown == ""

    def test_as_a_second_factor(self) -> None:
        with LoopbackSshd.start(
            password=PASSWORD,
            PasswordAuthentication="yes",
            AuthenticationMethods="publickey,password",
        ) as server:
            server.write_config(BatchMode="no")
            with typist(("password: ", PASSWORD)) as user:
                log_in(server, user.terminal)

    def test_by_the_server_s_own_questions(self) -> None:
        with LoopbackSshd.start(
            password=PASSWORD, UsePAM="yes", KbdInteractiveAuthentication="yes"
        ) as server:
            server.write_config(IdentityFile="/nonexistent", BatchMode="no")
            with typist((r"@127\.0\.0\.1\) Password: ", PASSWORD)) as user:
                log_in(server, user.terminal)
                assert PASSWORD not in user.shown


class TestUnknownHostAtATerminal:
    @pytest.fixture(autouse=True)
    def _unknown(self, sshd: LoopbackSshd) -> None:
        sshd.write_config(StrictHostKeyChecking="ask", BatchMode="no")
        sshd.known_hosts.write_text("")

    def test_yes_connects_and_adds(self, sshd: LoopbackSshd) -> None:
        with typist(
            ("continue connecting|Continue connecting", "perhaps"), ("type 'yes'", "yes")
        ) as user:
            log_in(sshd, user.terminal)
            assert "shows ED25519 SHA256:" in user.shown
        assert "127.0.0.1" in sshd.known_hosts.read_text()
        log_in(sshd)

    def test_no_stops(self, sshd: LoopbackSshd) -> None:
        with typist(("ontinue connecting", "no")) as user:
            assert "you did not accept the host key" in refusal(sshd, user.terminal)
        assert sshd.known_hosts.read_text() == ""

    def test_the_fingerprint_is_a_yes(self, sshd: LoopbackSshd) -> None:
        shown = subprocess.run(
            ["ssh-keygen", "-lf", sshd.folder / "host_ed25519.pub"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[1]
        with typist(("ontinue connecting", shown)) as user:
            log_in(sshd, user.terminal)

    def test_another_fingerprint_is_a_no(self, sshd: LoopbackSshd) -> None:
        with typist(("ontinue connecting", "SHA256:abc")) as user:
            assert "you did not accept the host key" in refusal(sshd, user.terminal)


class TestTerminal:
    def test_a_withdrawn_question_restores_the_echo(self) -> None:
        with typist() as user:
            shown = threading.Event()

            def ask() -> None:
                try:
                    user.terminal.ask("Secret: ", echo=False)
                except NoTerminalError:
                    shown.set()

            thread = threading.Thread(target=ask)
            thread.start()
            user.terminal.withdraw()
            thread.join(LONG_S)
            assert shown.is_set()
            assert user.echoes()

    def test_is_not_there_where_the_path_is_no_terminal(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        assert not Terminal(str(tmp_path / "file")).there()
        assert not Terminal(str(tmp_path / "none")).there()


@contextmanager
def accepted(sshd: LoopbackSshd, key: Path) -> Iterator[None]:
    """Let the server accept one more key."""
    path = sshd.folder / "authorized_keys"
    before = path.read_text()
    path.write_text(f"{before}{public_part(key)}\n")
    try:
        yield
    finally:
        path.write_text(before)

"""What the user's ssh would refuse is refused: each case is tried with ssh itself, too."""

import contextlib
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loopback import LoopbackSshd, make_key, public_part, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.errors import BadValueError
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.known_hosts_command import split_words
from slurm_adapter.remote.transport.ssh_config import SshConfig
from slurm_adapter.remote.transport.ssh_options import OPTIONS
from slurm_adapter.remote.transport.ssh_settings import parse_options, read_settings
from slurm_adapter.remote.transport.unreachable import UnreachableError

pytestmark = pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd())


def own_address() -> str:
    """Return an address of this machine that is no loopback's, empty where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.77", 9))
        except OSError:
            return ""
        found = str(asking.getsockname()[0])
    return "" if found.startswith("127.") else found


HERE = own_address()
needs_address = pytest.mark.skipif(not HERE, reason="this machine has no network")


@pytest.fixture(scope="module")
def sshd() -> Iterator[LoopbackSshd]:
    with LoopbackSshd.start(listen="0.0.0.0", host_keys=("ed25519", "rsa")) as server:
        yield server


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a key that is not the server's."""
    return public_part(make_key(tmp_path_factory.mktemp("other") / "key"))


@pytest.fixture(autouse=True)
def known(sshd: LoopbackSshd) -> str:
    """Have the server's key known under the name `gpu`; return it."""
    key = public_part(sshd.folder / "host_ed25519")
    sshd.known_hosts.write_text(f"gpu {key}\n")
    return key


def configure(sshd: LoopbackSshd, **settings: str) -> None:
    sshd.write_config(**{"HostKeyAlias": "gpu", "UpdateHostKeys": "no", **settings})


def ssh_accepts(sshd: LoopbackSshd, name: str = "127.0.0.1") -> bool:
    words = ["ssh", "-F", str(sshd.config), name, "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 255}, done.stderr
    return done.returncode == 0


def refusal(sshd: LoopbackSshd, name: str = "127.0.0.1") -> str:
    """Connect; return why not, empty where it went well."""
    with closing(
        connect_all([Node(name)], lambda one, _: one.run("true").status, config_file=sshd.config)
    ) as connected:
        try:
            assert connected.all() == [0]
        except UnreachableError as error:
            return str(error)
    return ""


def both(sshd: LoopbackSshd, name: str = "127.0.0.1") -> str:
    """Return why the host is refused, empty where it is not: as ssh does."""
    before = sshd.known_hosts.read_text()
    accepted = ssh_accepts(sshd, name)
    learned = names_in(sshd)
    sshd.known_hosts.write_text(before)
    why = refusal(sshd, name)
    assert accepted == (not why), why
    if accepted:
        assert names_in(sshd) == learned
    return why


def names_in(sshd: LoopbackSshd) -> set[str]:
    lines = sshd.known_hosts.read_text().splitlines()
    return {name for line in lines for name in line.split(" ssh-")[0].split(",")}


@needs_address
class TestCheckHostIP:
    @pytest.mark.parametrize("strict", ["yes", "ask", "accept-new"])
    def test_refuses_another_key_under_the_address(
        self, sshd: LoopbackSshd, known: str, other: str, strict: str
    ) -> None:
        configure(sshd, CheckHostIP="yes", StrictHostKeyChecking=strict)
        sshd.known_hosts.write_text(f"gpu {known}\n[{HERE}]:{sshd.port} {other}\n")
        why = both(sshd, HERE)
        assert "the host key is not the one of its address (CheckHostIP)" in why
        assert f"not the one for {HERE} in {sshd.known_hosts}:2" in why
        assert f"ssh-keygen -f {sshd.known_hosts} -R '[{HERE}]:{sshd.port}'" in why

    def test_only_warns_where_checking_is_off(
        self, sshd: LoopbackSshd, known: str, other: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        configure(sshd, CheckHostIP="yes", StrictHostKeyChecking="no")
        sshd.known_hosts.write_text(f"gpu {known}\n[{HERE}]:{sshd.port} {other}\n")
        assert not both(sshd, HERE)
        assert f"not the one for {HERE}" in capfd.readouterr().err

    @pytest.mark.parametrize("check", ["no", "yes"])
    @pytest.mark.parametrize("name", ["gpu {own}\n", ""])
    def test_learns_the_address(
        self, sshd: LoopbackSshd, known: str, name: str, check: str
    ) -> None:
        configure(sshd, CheckHostIP=check, StrictHostKeyChecking="accept-new", HashKnownHosts="no")
        sshd.known_hosts.write_text(name.format(own=known))
        assert not both(sshd, HERE)
        assert (f"[{HERE}]:{sshd.port}" in names_in(sshd)) == (check == "yes")

    @pytest.mark.parametrize(
        "lines", ["gpu {own}\n{at} {own}\n", "{at} {own}\n", "{at} {other}\n", "gpu {other}\n"]
    )
    def test_decides_as_ssh_does(
        self, sshd: LoopbackSshd, known: str, other: str, lines: str
    ) -> None:
        at = f"[{HERE}]:{sshd.port}"
        for strict in ("yes", "accept-new"):
            configure(sshd, CheckHostIP="yes", StrictHostKeyChecking=strict)
            sshd.known_hosts.write_text(lines.format(own=known, other=other, at=at))
            both(sshd, HERE)

    def test_is_not_for_loopback(self, sshd: LoopbackSshd, known: str, other: str) -> None:
        configure(sshd, CheckHostIP="yes")
        sshd.known_hosts.write_text(f"gpu {known}\n[127.0.0.1]:{sshd.port} {other}\n")
        assert not both(sshd)


class TestKnownHostsCommand:
    @staticmethod
    def write(sshd: LoopbackSshd, script: str, words: str = "%H", **settings: str) -> Path:
        command = sshd.folder / "known command"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        configure(sshd, KnownHostsCommand=f'"{command}" {words}', **settings)
        return command

    def test_may_revoke(self, sshd: LoopbackSshd, known: str) -> None:
        self.write(sshd, f"echo '@revoked gpu {known}'")
        why = both(sshd)
        assert "the host key is revoked" in why
        assert "see KnownHostsCommand-HOSTNAME:1" in why

    @pytest.mark.parametrize("strict", ["yes", "no", "accept-new"])
    def test_may_know_the_key_that_no_file_has(
        self, sshd: LoopbackSshd, known: str, strict: str
    ) -> None:
        self.write(sshd, f"echo 'gpu {known}'", StrictHostKeyChecking=strict)
        sshd.known_hosts.write_text("")
        assert not both(sshd)
        assert sshd.known_hosts.read_text() == ""

    def test_may_know_another(self, sshd: LoopbackSshd, other: str) -> None:
        self.write(sshd, f"echo 'gpu {other}'")
        sshd.known_hosts.write_text("")
        assert "the host key has changed" in both(sshd)

    def test_chooses_the_type_that_is_asked_for(self, sshd: LoopbackSshd) -> None:
        rsa = public_part(sshd.folder / "host_rsa")
        # ssh 9.2 asks for its order by the host's name, later ones by its alias.
        self.write(sshd, f"echo 'gpu,127.0.0.1 {rsa}'")
        sshd.known_hosts.write_text("")
        assert not both(sshd)

    @pytest.mark.parametrize("script", ["echo no; exit 3", "kill $$"])
    def test_stops_everything_where_it_fails(self, sshd: LoopbackSshd, script: str) -> None:
        self.write(sshd, f"echo why >&2; {script}")
        why = both(sshd)
        assert "failed: why" in why
        assert "KnownHostsCommand" in why

    @pytest.mark.parametrize("command", ["/no/such/program %H", "relative %H", '/bin/sh "'])
    def test_is_left_out_where_it_cannot_be_run(
        self, sshd: LoopbackSshd, command: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        configure(sshd, KnownHostsCommand=command)
        if command.endswith('"'):  # it does not get through a file
            assert split_words(command) is None
            return
        assert not both(sshd)
        assert f"KnownHostsCommand {command} is left out" in capfd.readouterr().err

    @pytest.mark.parametrize("hashed_by", ["sha256", "md5"])
    def test_is_told_what_ssh_tells(self, sshd: LoopbackSshd, hashed_by: str) -> None:
        words = "%H %I %t %f %K %h %n %p %r %k %u '%%' \"a b\" c\\ d"
        told = sshd.folder / "told"
        self.write(
            sshd, f'printf "<%s>" "$@" >> {told}; echo >> {told}', words, FingerprintHash=hashed_by
        )
        lines = []
        for accepted in (ssh_accepts, lambda server: not refusal(server)):
            assert accepted(sshd)
            lines.append(told.read_text().replace("<127.0.0.1><ORDER>", "<gpu><ORDER>"))
            told.unlink()
        assert lines[0] == lines[1]
        assert [line.count("<") for line in lines[0].splitlines()] == [14, 14]

    @needs_address
    def test_is_asked_for_the_address_too(self, sshd: LoopbackSshd, known: str, other: str) -> None:
        script = f'[ "$2" = ADDRESS ] && echo "$1 {other}" || echo "gpu {known}"'
        self.write(sshd, script, "%H %I", CheckHostIP="yes")
        assert "see" not in (why := both(sshd, HERE))
        assert "KnownHostsCommand-ADDRESS:1" in why


class TestRequiredRSASize:
    def test_is_what_a_host_key_must_have(self, sshd: LoopbackSshd) -> None:
        rsa = public_part(sshd.folder / "host_rsa")
        sshd.known_hosts.write_text(f"gpu {rsa}\n")
        configure(sshd, HostKeyAlgorithms="rsa-sha2-512")
        assert not both(sshd)
        configure(sshd, HostKeyAlgorithms="rsa-sha2-512", RequiredRSASize="4096")
        assert "the host key is too short: 3072 bits" in both(sshd)

    def test_is_what_a_user_key_must_have(self, sshd: LoopbackSshd, tmp_path: Path) -> None:
        key = accepted_key(sshd, tmp_path, "rsa")
        configure(sshd, IdentityFile=str(key))
        assert not both(sshd)
        configure(sshd, IdentityFile=str(key), RequiredRSASize="4096")
        assert "has 3072 bits, and RequiredRSASize is 4096" in both(sshd)

    def test_has_an_older_name(self) -> None:
        assert read_settings("n", {"rsaminsize": ["3072"]}, {}).least_rsa_bits == 3072
        assert read_settings("n", {}, {}).least_rsa_bits == 1024


def accepted_key(sshd: LoopbackSshd, tmp_path: Path, kind: str) -> Path:
    """Return a key of the user's that the server accepts."""
    key = make_key(tmp_path / kind, kind)
    with (sshd.folder / "authorized_keys").open("a") as file:
        file.write(f"{public_part(key)}\n")
    return key


class TestUserKeys:
    @pytest.mark.parametrize(
        ("kind", "accepted", "works"),
        [
            ("rsa", "ssh-ed25519", False),
            ("rsa", "rsa-sha2-256", True),
            ("rsa", "-rsa-sha2-*", False),
            ("rsa", "rsa-sha2-*-cert-v01@openssh.com", False),
            ("ed25519", "ssh-*", True),
            ("ed25519", "-ssh-ed25519*", False),
            ("ecdsa", "ecdsa-sha2-nistp384", False),
            ("ecdsa", "+ssh-rsa", True),
        ],
    )
    def test_are_of_a_type_that_is_accepted(
        self, sshd: LoopbackSshd, tmp_path: Path, kind: str, accepted: str, *, works: bool
    ) -> None:
        key = accepted_key(sshd, tmp_path, kind)
        configure(sshd, IdentityFile=str(key), PubkeyAcceptedAlgorithms=accepted)
        why = both(sshd)
        assert (not why) == works
        assert works or "which PubkeyAcceptedAlgorithms does not have" in why

    @pytest.mark.parametrize("mode", [0o644, 0o640, 0o601])
    def test_are_nobody_else_s(self, sshd: LoopbackSshd, tmp_path: Path, mode: int) -> None:
        key = accepted_key(sshd, tmp_path, "ed25519")
        key.chmod(mode)
        configure(sshd, IdentityFile=str(key))
        assert f"is open to others (mode {mode:o}): chmod 600 it" in both(sshd)


class TestNewKeys:
    @pytest.mark.parametrize("strict", ["no", "accept-new", "yes"])
    def test_are_refused_where_no_file_can_have_them(self, sshd: LoopbackSshd, strict: str) -> None:
        configure(sshd, UserKnownHostsFile="none", StrictHostKeyChecking=strict)
        assert "no known_hosts file can have it" in both(sshd)

    @pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\u00a0", "\u2003"])
    def test_are_not_in_lines_that_ssh_cannot_read(
        self, sshd: LoopbackSshd, known: str, mark: str
    ) -> None:
        configure(sshd)
        sshd.known_hosts.write_text(f"gpu {known}\n".replace(" ", mark, 1))
        assert "the host key is not known" in both(sshd)

    @pytest.mark.parametrize("kind", ["ssh-ed", "ssh-rsa", "ssh-ed25519x", "1024"])
    def test_are_not_in_lines_with_another_type(
        self, sshd: LoopbackSshd, known: str, kind: str
    ) -> None:
        configure(sshd)
        sshd.known_hosts.write_text(f"gpu {known}\n".replace("ssh-ed25519", kind, 1))
        assert "the host key is not known" in both(sshd)


class TestSessionType:
    @pytest.mark.parametrize("kind", ["none", "subsystem"])
    def test_without_commands_stops_the_start(self, sshd: LoopbackSshd, kind: str) -> None:
        configure(sshd, SessionType=kind)
        assert f"SessionType {kind} for 127.0.0.1: ssh would run no command" in refusal(sshd)

    def test_of_a_jump_host_is_no_matter(self, sshd: LoopbackSshd) -> None:
        jump = "Host jump\n    HostName localhost\n    SessionType none\n    ProxyJump none\n"
        sshd.write_config(before=jump, HostKeyAlias="gpu", ProxyJump="jump")
        assert ssh_accepts(sshd)
        assert not refusal(sshd)


class TestRekeyLimit:
    KEYS = "SSH2_MSG_NEWKEYS received"

    @pytest.fixture
    def telling(self, known: str) -> Iterator[LoopbackSshd]:
        """Return a server that tells when keys are exchanged."""
        del known
        with LoopbackSshd.start(LogLevel="DEBUG1") as server:
            yield server

    def test_in_bytes(self, telling: LoopbackSshd) -> None:
        telling.write_config(RekeyLimit="1M")
        data = bytes(range(256)) * (5 << 12)
        with closing(
            connect_all(
                [Node("127.0.0.1")],
                lambda one, _: one.run("cat", data).output,
                config_file=telling.config,
            )
        ) as connected:
            assert connected.all() == [data]
            telling.wait_for_line(self.KEYS, 4)

    def test_in_seconds(self, telling: LoopbackSshd) -> None:
        telling.write_config(RekeyLimit="default 1", ServerAliveInterval="1")
        with contextlib.ExitStack() as stack:
            connected = connect_all(
                [Node("127.0.0.1")], lambda one, _: one, config_file=telling.config
            )
            stack.callback(connected.close)
            (connection,) = connected.all()
            telling.wait_for_line(self.KEYS, 3)
            assert connection.run("echo hi").output == b"hi\n"


class TestOptions:
    def test_every_one_that_ssh_prints_is_listed(self) -> None:
        done = subprocess.run(
            ["ssh", "-G", "-F", "none", "host"], capture_output=True, text=True, check=True
        )
        assert parse_options(done.stdout).keys() - OPTIONS.keys() == set()

    @pytest.fixture
    def newer(self, tmp_path: Path) -> dict[str, str]:
        """Return an environment with an ssh that has options which nobody has heard of."""
        program = tmp_path / "bin" / "ssh"
        program.parent.mkdir()
        real = shlex.quote(subprocess.check_output(["which", "ssh"], text=True).strip())
        program.write_text(
            f'#!/bin/sh\n{real} "$@" || exit\necho newflag no\n'
            'case "$*" in *none*) echo maxkeyage 0;; *) echo maxkeyage 30;; esac\n'
        )
        program.chmod(0o755)
        return {"PATH": f"{program.parent}:/usr/bin:/bin"}

    def test_one_that_is_not_known_stops_the_start(
        self, newer: dict[str, str], tmp_path: Path
    ) -> None:
        config = tmp_path / "config"
        config.write_text("IgnoreUnknown MaxKeyAge\nHost *\n    MaxKeyAge 30\n")
        with pytest.raises(BadValueError) as caught:
            SshConfig(config, newer).settings(Node("n1"))
        assert f"n1: the ssh config sets maxkeyage to 30 ({config}:3)" in caught.value.found
        assert "SLURM_ADAPTER_SSH_CONFIG" in caught.value.remedy

    def test_one_that_is_not_known_is_no_matter_where_it_has_its_default(
        self, newer: dict[str, str], tmp_path: Path
    ) -> None:
        config = tmp_path / "none"
        config.write_text("User u\n")
        assert SshConfig(config, newer).settings(Node("n1")).user == "u"

"""Is it the right host? known_hosts as OpenSSH reads it, and what follows from it (SSH-06)."""

import base64
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopback import LoopbackSshd, make_key, public_part, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.remote.transport.algorithms import order_key_types
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.connect_error import ConnectError
from slurm_adapter.remote.transport.known_hosts import (
    KnownHosts,
    fingerprint,
    known_hosts_line,
)
from slurm_adapter.remote.transport.revoked import RevokedKeys
from slurm_adapter.remote.transport.shown_key import judge
from slurm_adapter.remote.transport.unreachable import UnreachableError

pytestmark = pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd())

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 42 + "E"
OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAI" + "B" * 42 + "E"

# A list that revokes nothing: magic, formats, dates and flags, two empty strings.
KRL = b"SSHKRL\n\0" + b"\0\0\0\1" + bytes(24) + bytes(8)
RELAY = """\
import os, socket, sys, threading
server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def back():
    while data := server.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    server.sendall(data)
os._exit(0)
"""


@pytest.fixture(scope="module")
def sshd() -> Iterator[LoopbackSshd]:
    with LoopbackSshd.start() as server:
        yield server


@pytest.fixture(scope="module")
def rsa(tmp_path_factory: pytest.TempPathFactory) -> str:
    return public_part(make_key(tmp_path_factory.mktemp("rsa") / "key", "rsa"))


@pytest.fixture
def node(sshd: LoopbackSshd) -> Node:
    sshd.write_config()
    sshd.known_hosts.write_text("")
    return Node("127.0.0.1")


def host_key(sshd: LoopbackSshd) -> str:
    return public_part(sshd.folder / "host_ed25519")


def place(sshd: LoopbackSshd) -> str:
    return f"[127.0.0.1]:{sshd.port}"


def connect(sshd: LoopbackSshd, node: Node) -> None:
    with closing(
        connect_all(
            [node], lambda connection, _: connection.run("true").status, config_file=sshd.config
        )
    ) as connected:
        assert connected.all() == [0]


def refusal(sshd: LoopbackSshd, node: Node) -> str:
    with pytest.raises(UnreachableError) as caught:
        connect(sshd, node)
    assert caught.value.exit_status == 3
    return str(caught.value)


def trusted_by_ssh(sshd: LoopbackSshd, name: str) -> bool:
    """Say whether ssh itself would connect."""
    words = ["ssh", "-F", str(sshd.config), "-o", "BatchMode=yes", name, "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "Host key verification failed" in done.stderr, done.stderr
    return done.returncode == 0


def write_revoked(path: Path, sshd: LoopbackSshd, text: str, rsa: str) -> None:
    path.write_text(text.format(own=host_key(sshd), other=f"ssh-ed25519 {OTHER}", rsa=rsa))


class TestChanged:
    """SSH-06."""

    def test_stops_and_names_host_port_and_line(
        self, sshd: LoopbackSshd, node: Node, tmp_path: Path
    ) -> None:
        old = public_part(make_key(tmp_path / "old"))
        sshd.known_hosts.write_text(f"# mine\n\n{place(sshd)} {old}\n")
        told = refusal(sshd, node)
        assert "the host key has changed" in told
        assert f"{place(sshd)} shows ED25519 SHA256:" in told
        assert f"{sshd.known_hosts}:3" in told
        assert f"ssh-keygen -f {sshd.known_hosts} -R '{place(sshd)}'" in told

    def test_the_remedy_is_one(self, sshd: LoopbackSshd, node: Node, tmp_path: Path) -> None:
        old = public_part(make_key(tmp_path / "old"))
        sshd.known_hosts.write_text(f"{place(sshd)} {old}\n")
        command = refusal(sshd, node).partition("take the old one away with `")[2].partition("`")[0]
        subprocess.run(shlex.split(command), check=True, capture_output=True)
        assert "the host key is not known" in refusal(sshd, node)

    @pytest.mark.parametrize("strict", ["yes", "accept-new", "ask"])
    def test_stops_however_strict(
        self, sshd: LoopbackSshd, node: Node, tmp_path: Path, strict: str
    ) -> None:
        sshd.write_config(StrictHostKeyChecking=strict)
        old = public_part(make_key(tmp_path / "old"))
        sshd.known_hosts.write_text(f"{place(sshd)} {old}\n")
        assert "the host key has changed" in refusal(sshd, node)

    def test_passes_with_a_warning_where_checking_is_off(
        self, sshd: LoopbackSshd, node: Node, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        sshd.write_config(StrictHostKeyChecking="no")
        old = public_part(make_key(tmp_path / "old"))
        sshd.known_hosts.write_text(f"{place(sshd)} {old}\n")
        connect(sshd, node)
        assert "StrictHostKeyChecking is off" in capfd.readouterr().err

    def test_a_known_type_is_asked_for(self) -> None:
        """A server with several keys shows the one that is known, not the one we like best."""
        with LoopbackSshd.start(host_keys=("ed25519", "ecdsa", "rsa")) as server:
            for kind in ("rsa", "ecdsa", "ed25519"):
                known = public_part(server.folder / f"host_{kind}")
                server.known_hosts.write_text(f"{place(server)} {known}\n")
                connect(server, Node("127.0.0.1"))


class TestUnknown:
    """SSH-06."""

    def test_stops_and_tells_the_fingerprint(self, sshd: LoopbackSshd, node: Node) -> None:
        told = refusal(sshd, node)
        shown = subprocess.run(
            ["ssh-keygen", "-lf", sshd.folder / "host_ed25519.pub"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[1]
        assert "the host key is not known" in told
        assert f"{place(sshd)} shows ED25519 {shown}" in told
        assert f"ssh -p {sshd.port} 127.0.0.1" in told
        assert "ssh-keyscan" in told

    def test_stops_without_a_terminal_where_it_would_ask(
        self, sshd: LoopbackSshd, node: Node
    ) -> None:
        sshd.write_config(StrictHostKeyChecking="ask", BatchMode="yes")
        assert "the host key is not known" in refusal(sshd, node)
        assert sshd.known_hosts.read_text() == ""

    @pytest.mark.parametrize("hashed", ["yes", "no"])
    def test_is_added_where_new_ones_are_accepted(
        self, sshd: LoopbackSshd, node: Node, hashed: str
    ) -> None:
        sshd.write_config(StrictHostKeyChecking="accept-new", HashKnownHosts=hashed)
        sshd.known_hosts.write_text(f"other {host_key(sshd)}")  # no line break at its end
        connect(sshd, node)
        sshd.write_config(StrictHostKeyChecking="yes")
        connect(sshd, node)
        assert lines_for(sshd.known_hosts, place(sshd)) == [2]
        assert ("127.0.0.1" in sshd.known_hosts.read_text()) == (hashed == "no")
        assert lines_for(sshd.known_hosts, "other") == [1]

    def test_is_added_to_a_file_that_was_not_there(
        self, sshd: LoopbackSshd, node: Node, tmp_path: Path
    ) -> None:
        path = tmp_path / "new" / "known_hosts"
        sshd.write_config(StrictHostKeyChecking="no", UserKnownHostsFile=str(path))
        connect(sshd, node)
        assert lines_for(path, place(sshd)) == [1]
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700

    def test_an_authority_s_line_is_no_key(self, sshd: LoopbackSshd, node: Node) -> None:
        sshd.known_hosts.write_text(f"@cert-authority {place(sshd)} {host_key(sshd)}\n")
        told = refusal(sshd, node)
        assert "the host key is not known" in told
        assert "certificates cannot be verified here" in told

    def test_a_revoked_key_stops_in_every_case(self, sshd: LoopbackSshd, node: Node) -> None:
        sshd.write_config(StrictHostKeyChecking="no")
        key = host_key(sshd)
        sshd.known_hosts.write_text(f"{place(sshd)} {key}\n@revoked * {key}\n")
        assert "the host key is revoked" in refusal(sshd, node)


class TestKnown:
    def test_under_an_alias(self, sshd: LoopbackSshd, node: Node) -> None:
        sshd.write_config(HostKeyAlias="Gpu")
        sshd.known_hosts.write_text(f"gpu {host_key(sshd)}\n")
        connect(sshd, node)

    def test_without_the_port(self, sshd: LoopbackSshd, node: Node) -> None:
        sshd.known_hosts.write_text(f"127.0.0.1 {host_key(sshd)}\n")
        connect(sshd, node)

    def test_in_a_global_file(self, sshd: LoopbackSshd, node: Node, tmp_path: Path) -> None:
        path = tmp_path / "global"
        path.write_text(f"{place(sshd)} {host_key(sshd)}\n")
        sshd.write_config(GlobalKnownHostsFile=str(path))
        connect(sshd, node)


class TestNoHostAuthenticationForLocalhost:
    """It is for this very machine: what a way through another one calls so is not meant."""

    @pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "here"])
    def test_takes_any_key_on_loopback(self, sshd: LoopbackSshd, node: Node, name: str) -> None:
        del node  # which leaves no key known
        own = {"HostName": "localhost"} if name == "here" else {"HostName": name}
        sshd.write_config(NoHostAuthenticationForLocalhost="yes", **own)
        connect(sshd, Node(name))
        assert trusted_by_ssh(sshd, name)
        assert sshd.known_hosts.read_text() == ""

    @pytest.mark.parametrize(
        "way",
        [
            {"HostKeyAlias": "gpu"},
            {"ProxyCommand": ""},
            {"ProxyJump": "jump"},
        ],
    )
    def test_takes_none_elsewhere(
        self, sshd: LoopbackSshd, node: Node, way: dict[str, str]
    ) -> None:
        jump = "Host jump\n    HostKeyAlias jump\n    HostName localhost\n    ProxyJump none\n"
        if "ProxyCommand" in way:
            relay = sshd.folder / "relay.py"
            relay.write_text(RELAY)
            way = {"ProxyCommand": shlex.join([sys.executable, str(relay), str(sshd.port)])}
        sshd.write_config(before=jump, NoHostAuthenticationForLocalhost="yes", **way)
        sshd.known_hosts.write_text(f"jump {host_key(sshd)}\n")
        assert "the host key is not known" in refusal(sshd, node)
        assert not trusted_by_ssh(sshd, "127.0.0.1")


class TestRevokedHostKeys:
    @pytest.fixture
    def revoked(self, sshd: LoopbackSshd, node: Node, tmp_path: Path) -> Path:
        """Return the file, empty; the server's key is known."""
        del node
        path = tmp_path / "revoked keys"
        path.write_text("")
        sshd.write_config(RevokedHostKeys=f'"{path}"')
        sshd.known_hosts.write_text(f"{place(sshd)} {host_key(sshd)}\n")
        return path

    @pytest.mark.parametrize("text", ["", "# {own}\n\n", "{other}\n", "{other} x\n {rsa}"])
    def test_leave_others_alone(
        self, sshd: LoopbackSshd, revoked: Path, rsa: str, text: str
    ) -> None:
        write_revoked(revoked, sshd, text, rsa)
        connect(sshd, Node("127.0.0.1"))
        assert trusted_by_ssh(sshd, "127.0.0.1")

    @pytest.mark.parametrize("text", ["{own}", "# x\n{rsa}\n\n \t{own} a comment\n{other}\n"])
    def test_stop_at_one_of_them(
        self, sshd: LoopbackSshd, revoked: Path, rsa: str, text: str
    ) -> None:
        write_revoked(revoked, sshd, text, rsa)
        told = refusal(sshd, Node("127.0.0.1"))
        assert "the host key is revoked" in told
        assert "shows ED25519 SHA256:" in told
        assert f"see {revoked}" in told
        assert not trusted_by_ssh(sshd, "127.0.0.1")

    def test_stop_where_nothing_else_is_checked(self, sshd: LoopbackSshd, revoked: Path) -> None:
        sshd.write_config(
            RevokedHostKeys=f'"{revoked}"',
            StrictHostKeyChecking="no",
            NoHostAuthenticationForLocalhost="yes",
        )
        revoked.write_text(host_key(sshd))
        assert "the host key is revoked" in refusal(sshd, Node("127.0.0.1"))

    @pytest.mark.parametrize("how", ["", "key: ", "sha1: ", "sha256: ", "other", "serial: 5"])
    def test_may_be_a_list_that_ssh_keygen_made(
        self, sshd: LoopbackSshd, revoked: Path, tmp_path: Path, how: str
    ) -> None:
        known = public_part(make_key(tmp_path / "other")) if how == "other" else host_key(sshd)
        listed = tmp_path / "listed"
        listed.write_text("serial: 5\n" if "serial" in how else f"{how.strip('other')}{known}\n")
        authority = ["-s", f"{sshd.folder}/host_ed25519.pub"] if "serial" in how else []
        words = ["ssh-keygen", "-kqf", str(revoked), *authority, str(listed)]
        subprocess.run(words, check=True, capture_output=True)
        if how in {"other", "serial: 5"}:
            connect(sshd, Node("127.0.0.1"))
        else:
            assert f"see {revoked}" in refusal(sshd, Node("127.0.0.1"))
        assert trusted_by_ssh(sshd, "127.0.0.1") == (how in {"other", "serial: 5"})

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (None, "No such file or directory"),
            (b"garbage\n", "line 1 is no public key"),
            (b"# x\nssh-ed25519 AAAA\n", "line 2 is no public key"),
            (f"ssh-ed25519 {KEY[:-4]}\n".encode(), "line 1 is no public key"),
            (f"@revoked * ssh-ed25519 {KEY}\n".encode(), "line 1 is no public key"),
            (b"SSHKRL\n\0", "ssh-keygen: incomplete message"),
            (KRL + b"\x02\0\0\0\3abc", "ssh-keygen: incomplete message"),
            (KRL + b"\x02\0\0\1\0abc", "ssh-keygen: incomplete message"),
            (KRL + b"\x03\0\0\0\7\0\0\0\3abc", "ssh-keygen: invalid format"),
            (KRL.replace(b"\0\1", b"\0\2"), "ssh-keygen: invalid format"),
        ],
    )
    def test_stop_everything_where_they_cannot_be_read(
        self, sshd: LoopbackSshd, revoked: Path, content: bytes | None, why: str
    ) -> None:
        revoked.unlink() if content is None else revoked.write_bytes(content)
        told = refusal(sshd, Node("127.0.0.1"))
        assert f"the RevokedHostKeys file {revoked} cannot be read ({why})" in told
        assert f"`ssh-keygen -k -f '{revoked}' KEY.pub...`" in told
        assert not trusted_by_ssh(sshd, "127.0.0.1")

    def test_stop_everything_where_nobody_can_read_a_list(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "krl"
        path.write_bytes(KRL)
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(ConnectError, match="there is no ssh-keygen here"):
            RevokedKeys(path).hold("ssh-ed25519", base64.b64decode(KEY))


class TestJudge:
    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            ("n1 {ed}\n", "known"),
            ("n1 {other}\n", "changed"),
            ("n2 {ed}\n", "unknown"),
            ("n1 {rsa}\n", "changed"),
            ("n1 {other}\nn1 {ed}\n", "known"),
            ("n?,x {ed}\n", "known"),
            ("n*,!n1 {ed}\n", "unknown"),
            ("N1 {ed}\n", "known"),
            ("@revoked n1 {ed}\nn1 {ed}\n", "revoked"),
            ("@revoked n2 {ed}\nn1 {ed}\n", "known"),
            ("@cert-authority n1 {ed}\n", "unknown"),
            ("@unheard n1 {ed}\n", "unknown"),
            ("n1 ssh-ed25519 not-base-64!\n", "unknown"),
            ("n1 ssh-rsa {ed_blob}\n", "unknown"),
            ("n1\n", "unknown"),
            ("# n1 {ed}\n", "unknown"),
            ("  n1 {ed} a comment\r\n", "known"),
            ("|1|broken|x {ed}\n", "unknown"),
            ("", "unknown"),
        ],
    )
    def test_table(self, tmp_path: Path, rsa: str, content: str, kind: str) -> None:
        path = tmp_path / "known_hosts"
        path.write_text(
            content.format(
                ed=f"ssh-ed25519 {KEY}", other=f"ssh-ed25519 {OTHER}", rsa=rsa, ed_blob=KEY
            )
        )
        keys = KnownHosts([path]).keys("n1")
        assert judge(keys, "ssh-ed25519", blob(KEY)).kind == kind

    def test_orders_the_types_that_are_known_first(self, tmp_path: Path, rsa: str) -> None:
        path = tmp_path / "known_hosts"
        path.write_text(f"n1 {rsa}\n")
        known = KnownHosts([path]).keys("n1")
        offered = ("ssh-ed25519", "rsa-sha2-512", "rsa-sha2-256")
        allowed = ("ssh-ed25519", "rsa-sha2-256", "rsa-sha2-512", "sk-x")
        assert order_key_types(offered, known, allowed) == (
            "rsa-sha2-256",
            "rsa-sha2-512",
            "ssh-ed25519",
        )
        assert order_key_types(offered, (), ("ssh-ed25519",)) == ("ssh-ed25519",)
        with pytest.raises(ConnectError, match="HostKeyAlgorithms"):
            order_key_types(offered, (), ("ssh-dss",))

    def test_fingerprint(self, tmp_path: Path) -> None:
        key = make_key(tmp_path / "key")
        shown = subprocess.run(
            ["ssh-keygen", "-lf", f"{key}.pub"], capture_output=True, text=True, check=True
        ).stdout.split()[1]
        assert fingerprint(blob(public_part(key).split()[1])) == shown


HOSTS = st.sampled_from(
    [
        *(
            "n1",
            "N1",
            "n2",
            "n1,n2",
            "n*",
            "n?",
            "*,!n1",
            "!n1,*",
            "n*,!n?",
            "[n1]:22",
            "[n1]:2222",
        ),
        *("[n*]:2222", "[*]:*", "fe80::1", "10.0.0.?", "n1,", ",n1", "!n1", "n1,n1"),
    ]
)
LINE = st.builds(
    lambda marker, hosts, hashed, key, end: (marker, hosts, hashed, key, end),
    st.sampled_from(["", "", "", "@revoked ", "@cert-authority "]),
    HOSTS,
    st.booleans(),
    st.sampled_from([KEY, OTHER]),
    st.sampled_from(["", " comment", " comment with blanks", "\r"]),
)


@settings(max_examples=30)
@given(
    st.lists(LINE, max_size=6),
    st.sampled_from(["n1", "N2", "[n1]:2222", "[n7]:23", "fe80::1", "10.0.0.7", "x"]),
)
def test_lines_mean_what_ssh_keygen_finds(
    tmp_path: Path, lines: list[tuple[str, str, bool, str, str]], name: str
) -> None:
    path = tmp_path / "known_hosts"
    text = ""
    for number, (marker, hosts, hashed, key, end) in enumerate(lines):
        single = hashed and not any(letter in hosts for letter in ",*?!")
        salt = bytes([number]) * 20 if single else None
        line = known_hosts_line(hosts, "ssh-ed25519", blob(key), salt)
        text += f"{marker}{line.rstrip()}{end}\n"
    path.write_text(text)
    found = sorted(key.line for key in KnownHosts([path]).keys(name))
    assert found == lines_for(path, name)


def blob(text: str) -> bytes:
    return base64.b64decode(text)


def lines_for(path: Path, name: str) -> list[int]:
    """Return the numbers of the lines that ssh-keygen finds for a host."""
    done = subprocess.run(
        ["ssh-keygen", "-F", name, "-f", path], capture_output=True, text=True, check=False
    )
    marks = [line for line in done.stdout.splitlines() if line.startswith("# Host ")]
    return [int(mark.partition(" found: line ")[2].split()[0]) for mark in marks]

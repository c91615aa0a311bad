"""Hosts are reached as the user's ssh would reach them: ssh itself is asked (SSH-05)."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopback import LoopbackSshd, why_no_sshd
from slurm_adapter.cluster import Node
from slurm_adapter.errors import AdapterError, BadValueError
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.host_blocks import read_host_blocks
from slurm_adapter.remote.transport.patterns import matches, matches_list
from slurm_adapter.remote.transport.proxy_jump import jump_hosts
from slurm_adapter.remote.transport.ssh_config import SshConfig
from slurm_adapter.remote.transport.ssh_settings import SshSettings
from slurm_adapter.remote.transport.tokens import expand, tokens

pytestmark = pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd())

ME = pwd.getpwuid(os.getuid()).pw_name
HOME = pwd.getpwuid(os.getuid()).pw_dir


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config"


def effective(
    config: Path, node: Node, environment: Mapping[str, str] | None = None
) -> SshSettings:
    return SshConfig(config, environment).settings(node)


class TestWhatParamikoMisreads:
    """SSH-05."""

    def test_include(self, config: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.write_text("Host fabhost\n    HostName 10.0.0.9\n    Port 2200\n    User u\n")
        config.write_text(f"Include {other}\n")
        found = effective(config, Node("fabhost"))
        assert (found.hostname, found.port, found.user) == ("10.0.0.9", 2200, "u")

    def test_match_final_all(self, config: Path) -> None:
        config.write_text("Match final all\n    User z\n")
        assert effective(config, Node("n1")).user == "z"

    def test_match_host_with_equals(self, config: Path) -> None:
        config.write_text('Match host="*"\n    User y\n')
        assert effective(config, Node("n1")).user == "y"

    def test_reach_the_connection(self) -> None:
        with LoopbackSshd.start() as server:
            other = server.folder / "other"
            other.write_text(f"Host fabhost\n    HostName 127.0.0.1\n    Port {server.port}\n")
            config = server.write_config(before=f"Include {other}", Port="1")
            config.write_text(config.read_text() + 'Match final all\nMatch host="*"\n')
            with closing(
                connect_all(
                    [Node("fabhost")], lambda one, _: one.run("echo hi").output, config_file=config
                )
            ) as connected:
                assert connected.all() == [b"hi\n"]


class TestSettings:
    def test_every_option_that_counts(self, config: Path) -> None:
        config.write_text(
            "Host n1\n"
            "    HostName %h.lab\n"
            "    Port 2222\n"
            "    User %%u\n"
            "    HostKeyAlias Gpu\n"
            "    UserKnownHostsFile /a/b ~/%h/known %d/%r\n"
            "    GlobalKnownHostsFile none\n"
            '    RevokedHostKeys "~/my revoked keys"\n'
            "    StrictHostKeyChecking accept-new\n"
            "    HashKnownHosts yes\n"
            '    IdentityFile "~/my key"\n'
            "    IdentityFile ${BASE}/%n-%p\n"
            "    CertificateFile ~/cert.pub\n"
            "    IdentitiesOnly yes\n"
            "    IdentityAgent %d/agent\n"
            "    PreferredAuthentications password,publickey\n"
            "    NumberOfPasswordPrompts 1\n"
            "    BatchMode yes\n"
            "    ProxyCommand nc -X %h %p %r '%%' 2>&1\n"
            "    AddressFamily inet6\n"
            "    BindAddress ::1\n"
            "    ConnectTimeout 7\n"
            "    ServerAliveInterval 5\n"
            "    ServerAliveCountMax 2\n"
            "    HostKeyAlgorithms ssh-ed25519\n"
            "    Ciphers aes256-gcm@openssh.com,aes128-ctr\n"
            "    MACs hmac-sha2-256\n"
            "    KexAlgorithms curve25519-sha256@libssh.org\n"
            '    KnownHostsCommand /bin/known "%H" %%\n'
            "    CheckHostIP yes\n"
            "    FingerprintHash md5\n"
            "    RequiredRSASize 3072\n"
            "    PubkeyAcceptedAlgorithms ssh-ed25519,rsa-sha2-512\n"
            "    RekeyLimit 1G 1h\n"
            "    SessionType none\n"
        )
        found = effective(config, Node("n1"), {**os.environ, "BASE": "/base"})
        assert found == SshSettings(
            name="n1",
            hostname="n1.lab",
            port=2222,
            user="%%u",
            host_key_alias="gpu",
            user_known_hosts=(
                Path("/a/b"),
                Path(f"{HOME}/n1.lab/known"),
                Path(f"{HOME}/%%u"),
            ),
            global_known_hosts=(),
            revoked_host_keys=(Path(f"{HOME}/my revoked keys"),),
            known_hosts_command='/bin/known "%H" %%',
            check_host_ip=True,
            fingerprint_hash="md5",
            least_rsa_bits=3072,
            strict="accept-new",
            hash_known_hosts=True,
            trust_loopback=False,
            host_key_algorithms=("ssh-ed25519",),
            ciphers=("aes256-gcm@openssh.com", "aes128-ctr"),
            macs=("hmac-sha2-256",),
            kex_algorithms=("curve25519-sha256@libssh.org",),
            public_key_algorithms=("ssh-ed25519", "rsa-sha2-512"),
            rekey_bytes=1 << 30,
            rekey_s=3600,
            methods=("password", "publickey"),
            identity_files=(Path(f"{HOME}/my key"), Path("/base/n1-2222")),
            certificate_files=(Path(f"{HOME}/cert.pub"),),
            identities_only=True,
            identity_agent=f"{HOME}/agent",
            password_prompts=1,
            batch=True,
            proxy_jump=None,
            proxy_command="nc -X n1.lab 2222 %%u '%' 2>&1",
            proxy_fdpass=False,
            address_family="inet6",
            bind_address="::1",
            bind_interface=None,
            connect_timeout_s=7.0,
            alive_interval_s=5,
            alive_count_max=2,
            session_type="none",
        )
        assert found.host_key_name == "gpu"

    def test_defaults(self, config: Path) -> None:
        config.write_text("")
        found = effective(config, Node("Node7"), {"PATH": os.environ["PATH"]})
        assert (found.hostname, found.port, found.user) == ("node7", 22, ME)
        assert found.user_known_hosts[0] == Path(f"{HOME}/.ssh/known_hosts")
        assert found.revoked_host_keys == ()
        assert found.strict == "ask"
        assert found.connect_timeout_s == 10
        assert found.alive_interval_s == 30
        assert found.methods == ("publickey", "keyboard-interactive", "password")
        assert Path(f"{HOME}/.ssh/id_ed25519") in found.identity_files
        assert found.identity_agent is None
        assert found.proxy_jump is None
        assert found.proxy_command is None
        assert found.host_key_name == "node7"

    @pytest.mark.parametrize(
        ("written", "meant"),
        [("yes", "yes"), ("no", "no"), ("off", "no"), ("ask", "ask"), ("accept-new", "accept-new")],
    )
    def test_strictness(self, config: Path, written: str, meant: str) -> None:
        config.write_text(f"StrictHostKeyChecking {written}\n")
        assert effective(config, Node("n")).strict == meant

    @pytest.mark.parametrize(
        ("written", "agent"),
        [
            ("none", None),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("$OTHER", "/run/other"),
            ("/run/%r", "/run/x"),
            ("", "/run/agent"),
        ],
    )
    def test_agent(self, config: Path, written: str, agent: str | None) -> None:
        config.write_text(f"User x\nIdentityAgent {written}\n" if written else "")
        environment = {
            "PATH": os.environ["PATH"],
            "SSH_AUTH_SOCK": "/run/agent",
            "OTHER": "/run/other",
        }
        assert effective(config, Node("n"), environment).identity_agent == agent

    def test_a_node_s_own_words_win(self, config: Path) -> None:
        config.write_text("User cfg\nPort 99\nHostName other\nProxyCommand connect %h:%p %r\n")
        node = Node("n1", address="10.0.0.2", user="u1", port=2200)
        found = effective(config, node)
        assert (found.hostname, found.port, found.user) == ("10.0.0.2", 2200, "u1")
        assert found.proxy_command == "connect 10.0.0.2:2200 u1"
        assert found.host_key_name == "[10.0.0.2]:2200"

    def test_no_file_of_revoked_keys_may_be_said_in_words(self, config: Path) -> None:
        config.write_text("Host n\n    RevokedHostKeys none\nHost *\n    RevokedHostKeys /a\n")
        assert effective(config, Node("n")).revoked_host_keys == ()
        assert effective(config, Node("m")).revoked_host_keys == (Path("/a"),)

    def test_known_hosts_path_with_a_blank(self, config: Path, tmp_path: Path) -> None:
        path = tmp_path / "my known hosts"
        path.write_text("")
        config.write_text(f'UserKnownHostsFile "{path}" /b\n')
        assert effective(config, Node("n")).user_known_hosts == (path, Path("/b"))


class TestErrors:
    @pytest.mark.parametrize("name", ["-oProxyCommand=touch x", "-F/x", "", "a b", "a\nb"])
    def test_what_is_no_name(self, config: Path, name: str) -> None:
        config.write_text("")
        with pytest.raises(BadValueError, match="is not a host name"):
            effective(config, Node(name))

    def test_broken_config(self, config: Path) -> None:
        config.write_text("\n\nStrictHostKeyChecking perhaps\n")
        with pytest.raises(BadValueError, match=rf"{config} line 3: unsupported option"):
            effective(config, Node("n"))

    def test_missing_config(self, config: Path) -> None:
        with pytest.raises(BadValueError, match="Can't open user config file"):
            effective(config, Node("n"))

    def test_no_client(self, config: Path) -> None:
        with pytest.raises(AdapterError, match="there is no ssh client here") as caught:
            SshConfig(config, {"PATH": "/nonexistent"}).settings(Node("n"))
        assert "apt-get install openssh-client" in caught.value.remedy

    def test_a_variable_that_is_not_set(self, config: Path) -> None:
        config.write_text("IdentityFile ${NO_SUCH_VARIABLE}/id\n")
        with pytest.raises(BadValueError, match="NO_SUCH_VARIABLE"):
            effective(config, Node("n"))


class TestJumps:
    def test_are_read(self) -> None:
        jumps = jump_hosts("u@gate:2222,[fe80::1]:23,ssh://x@last:24,plain,fe80::2")
        assert [(jump.user, jump.name, jump.port) for jump in jumps] == [
            ("u", "gate", 2222),
            (None, "fe80::1", 23),
            ("x", "last", 24),
            (None, "plain", None),
            (None, "fe80::2", None),
        ]

    @pytest.mark.parametrize("jump", ["a:b", "a:0", "a:70000", "-oX,b", "a,,b"])
    def test_are_refused(self, jump: str) -> None:
        with pytest.raises(BadValueError):
            jump_hosts(jump)


class TestTokens:
    KNOWN = tokens("n", "h", 22, "u", None)

    @pytest.mark.parametrize(
        ("text", "meant"),
        [("%h%%h", "h%h"), ("%n-%p-%r-%k", "n-22-u-n"), ("%u", ME), ("plain", "plain")],
    )
    def test_are_put_in(self, text: str, meant: str) -> None:
        assert expand(text, self.KNOWN) == meant

    @pytest.mark.parametrize("text", ["%Q", "%"])
    def test_unknown(self, text: str) -> None:
        with pytest.raises(BadValueError):
            expand(text, self.KNOWN)


class CountingConfig(SshConfig):
    """Counts how often ssh is asked."""

    asked = 0

    def _ask(self, node: Node) -> dict[str, list[str]]:
        self.asked += 1
        return super()._ask(node)


# Lines that a config may consist of, harmless and harmful ones.
CONFIG_LINES = st.sampled_from(
    [
        "Host gpu*",
        "Host !gpu1 *",
        "Host gpu1 gpu2",
        "Host *.lab",
        "Host GPU3",
        "Host *",
        "Match all",
        "Match host gpu2",
        "Match final all",
        "Match user u",
        "Match originalhost gpu1,gpu3 user u",
        'Match exec "test %h = gpu2"',
        "HostName %h.lab",
        "HostName 10.0.0.9",
        "HostName x%hx%h",
        "User u",
        "User v",
        "Port 2200",
        "IdentityFile /k/%h",
        "UserKnownHostsFile /h/%h",
        "UserKnownHostsFile /h/all",
        "ProxyJump gate",
        "ProxyCommand nc %h %p",
        "CanonicalizeHostname yes",
        "HostKeyAlias all",
    ]
)
NAMES = ["gpu1", "gpu2", "gpu3", "GPU3", "cpu1", "a.lab", "gpu10", "pu"]


OWN_BLOCKS = st.sampled_from(
    [
        *(f"Host {name}\n    HostName {name}.lab\n" for name in NAMES[:4]),
        *(f"Host {name}\n    HostName 10.0.0.{i}\n    User u\n" for i, name in enumerate(NAMES)),
        *(f"Host {name}\n    HostName %h.lab\n    HostName x\n" for name in NAMES[:2]),
        "Host gpu1 gpu2\n    HostName 10.0.0.9\n",
        "Host gpu3\n    Include MORE\n    HostName 10.0.0.3\n",
        "Host *\n    Include MORE\n",
        "Host gpu2\n    Include MORE\n",
        "Host gpu*\n    HostName gate\n",
        "Host *\n    User v\n",
        "Match user u\n    Port 5\n    HostName 10.0.0.4\n",
    ]
)


class TestAskingOnceForMany:
    """Asking ssh about each host would cost more than everything else."""

    @settings(max_examples=12)
    @given(st.lists(CONFIG_LINES, max_size=8), st.permutations(NAMES))
    def test_gives_the_same_as_asking_for_each(
        self, config: Path, lines: list[str], names: list[str]
    ) -> None:
        config.write_text("\n".join(lines) + "\n")
        together = SshConfig(config)
        for name in names:
            asked = SshConfig(config).settings(Node(name))
            assert together.settings(Node(name)) == asked

    def test_asks_twice_where_hosts_are_alike(self, config: Path) -> None:
        config.write_text("Host n*\n    User u\n    HostName %h.lab\nHost *\n    Port 7\n")
        ssh = CountingConfig(config)
        found = [ssh.settings(Node(f"n{i}")) for i in range(250)]
        assert ssh.asked == 2
        assert [one.hostname for one in found] == [f"n{i}.lab" for i in range(250)]
        assert {(one.user, one.port) for one in found} == {("u", 7)}

    @settings(max_examples=15)
    @given(st.lists(OWN_BLOCKS, min_size=3, max_size=9), st.permutations(NAMES))
    def test_gives_the_same_for_hosts_with_blocks_of_their_own(
        self, config: Path, tmp_path: Path, blocks: list[str], names: list[str]
    ) -> None:
        (tmp_path / "more").write_text("Host gpu2\n    HostName 10.0.0.7\nPort 9\n")
        config.write_text("".join(blocks).replace("MORE", str(tmp_path / "more")))
        together = SshConfig(config)
        for name in names:
            asked = SshConfig(config).settings(Node(name))
            assert together.settings(Node(name)) == asked

    def test_asks_again_where_a_match_stands_between_own_blocks(self, config: Path) -> None:
        """What a block says of the user decides about a Match behind it, not before it."""
        block = "Host gpu{0}\n    HostName 10.0.0.{0}\n    User u\n"
        match = "Match user u\n    Port 5\n"
        config.write_text(block.format(1) + block.format(2) + match + block.format(3))
        together = SshConfig(config)
        ports = [together.settings(Node(f"gpu{number}")).port for number in (1, 2, 3)]
        assert ports == [5, 5, 22]

    def test_asks_twice_where_own_blocks_differ_in_hostname_alone(self, config: Path) -> None:
        blocks = [f"Host n{i} m{i}\n    User u\n    HostName 10.0.0.{i}\n" for i in range(250)]
        config.write_text("".join(blocks) + "Host *\n    Port 7\n")
        ssh = CountingConfig(config)
        found = [ssh.settings(Node(f"n{i}")) for i in range(250)]
        assert ssh.asked == 2
        assert [one.hostname for one in found] == [f"10.0.0.{i}" for i in range(250)]
        assert {(one.user, one.port) for one in found} == {("u", 7)}

    @pytest.mark.parametrize("more", ["HostName 10.0.0.9", "HostName %h.lab"])
    def test_asks_for_each_where_its_own_hostname_came_true_by_chance(
        self, config: Path, more: str
    ) -> None:
        own = ["n1.lab", "n2.lab", "n3"] if "%h" in more else ["10.0.0.9", "10.0.0.9", "n3"]
        blocks = [f"Host n{i}\n    HostName {name}\n" for i, name in enumerate(own, 1)]
        config.write_text(f"Host *\n    {more}\n" + "".join(blocks))
        ssh = SshConfig(config)
        found = [ssh.settings(Node(f"n{i}")).hostname for i in range(1, 4)]
        assert found == [f"n{i}.lab" if "%h" in more else "10.0.0.9" for i in range(1, 4)]

    def test_asks_for_each_where_a_command_decides(self, config: Path) -> None:
        config.write_text('Match exec "test %h = n3"\n    User u\n')
        ssh = CountingConfig(config)
        users = [ssh.settings(Node(f"n{i}")).user for i in range(5)]
        assert users == [ME, ME, ME, "u", ME]
        assert ssh.asked == 5

    def test_tells_apart_what_the_user_of_a_node_decides(self, config: Path) -> None:
        config.write_text("Match user u\n    Port 7\n")
        ssh = CountingConfig(config)
        ports = [ssh.settings(Node(f"n{i}", user="u" if i % 2 else None)).port for i in range(8)]
        assert ports == [22, 7] * 4

    def test_follows_includes(self, config: Path, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "1.conf").write_text("Host b\n")
        (tmp_path / "d" / "2.conf").write_text("  # why\nhost = c\n")
        config.write_text(f"Include {tmp_path}/d/*.conf\nHost a\n")
        blocks = read_host_blocks(config)
        assert blocks
        assert [block.patterns for block in blocks.blocks] == [("b",), ("c",), ("a",)]

    @pytest.mark.parametrize(
        "line",
        [
            *("Match exec true", "Match host a", "CanonicalizeHostname always", "Include %h"),
            *('Host "a', 'Host "a"', "Host a#b c", "Host a # b", "Host a\\ b", "Host 'a b'"),
            *(
                '"Host" a',
                "Host\x0ba",
                "Host a\u00a0b",
                "Host == a",
                "\x0cHost a",
                "Host=",
                "Hos-t a",
            ),
        ],
    )
    def test_claims_nothing_where_more_could_matter(self, config: Path, line: str) -> None:
        config.write_text(f"{line}\n")
        assert read_host_blocks(config) is None

    @pytest.mark.parametrize(
        "words",
        [
            *("lab#1 gpu3", "lab #1 gpu3", "#gpu3 gpu1", '"gpu3"', "'gpu1' gpu3", '"gpu1 gpu3"'),
            *("lab\\ gpu3", "gpu1\rgpu3", "gpu1\x0bgpu3", "gpu1\u00a0gpu3", "gpu1\u2028Host gpu3"),
            *("gpu1\u0085gpu3", "=gpu3", "gpu1=gpu3", "gpu?#x *3", 'lab"#1" gpu3'),
        ],
    )
    def test_gives_the_same_whatever_stands_in_a_host_line(self, config: Path, words: str) -> None:
        config.write_text(
            f"Host {words}\n    HostName 10.9.9.9\n    StrictHostKeyChecking yes\n"
            "Host *\n    StrictHostKeyChecking no\n"
        )
        together = SshConfig(config)
        for name in ("gpu1", "gpu2", "gpu3", "gpu4", "gpu5"):
            try:
                asked = SshConfig(config).settings(Node(name))
            except BadValueError:
                with pytest.raises(BadValueError):
                    together.settings(Node(name))
            else:
                assert together.settings(Node(name)) == asked

    def test_asks_for_each_where_ssh_reads_a_file_that_is_not_known(
        self, config: Path, tmp_path: Path
    ) -> None:
        """An ssh of another build has its system-wide config elsewhere."""
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_text(f"Host n3\n    Port 7\nHost *\nInclude {config}\n")
        ssh = tmp_path / "ssh"
        real = shutil.which("ssh")
        ssh.write_text(
            f'#!/bin/sh\nexec {real} -F {elsewhere} "$@"\n'.replace(
                '"$@"', "$(echo \"$@\" | sed 's/-F [^ ]*//')"
            )
        )
        ssh.chmod(0o755)
        config.write_text("User u\n")
        found = SshConfig(config, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
        ports = [found.settings(Node(f"n{number}")).port for number in range(5)]
        assert ports == [22, 22, 22, 7, 22]


PATTERNS = st.lists(st.text("ab.*?!", min_size=1, max_size=4), min_size=1, max_size=4).filter(
    lambda patterns: all(pattern.strip("!") for pattern in patterns)
)


def test_a_pattern_of_many_wildcards_takes_no_time() -> None:
    assert not matches("*a" * 2000 + "*b", "a" * 4000)
    assert matches("*a*" * 2000, "a" * 4000)


@settings(max_examples=40)
@given(PATTERNS, st.text("ab.", min_size=1, max_size=4))
def test_patterns_mean_what_ssh_means(tmp_path: Path, patterns: list[str], name: str) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host {' '.join(patterns)}\n    Port 7\n")
    done = subprocess.run(
        ["ssh", "-G", "-F", config, "--", name],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode == 0:
        assert matches_list(patterns, name) == ("\nport 7\n" in done.stdout)

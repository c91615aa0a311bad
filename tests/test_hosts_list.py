"""Host lists and plain host files: every form that is meant, and nothing else."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import PROJECT
from hostlists import brief
from slurm_adapter import Node, read_hosts
from slurm_adapter.errors import AdapterError, BadValueError, report

PAGE = (PROJECT / "docs" / "hosts.md").read_text()
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Give a function that writes a host file and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "hosts.txt"
        path.write_bytes(text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu01,gpu02", ["gpu01", "gpu02"]),
        ("b,a", ["b", "a"]),
        ("gpu01:8", ["gpu01 slots=8"]),
        ("gpu[02-04]:8", ["gpu02 slots=8", "gpu03 slots=8", "gpu04 slots=8"]),
        ("n[1,3]-ib,x", ["n1-ib", "n3-ib", "x"]),
        ("[a]", None),
        ("alice@gpu05:4", ["gpu05 user=alice slots=4"]),
        ("alice@gpu[1-2]", ["gpu1 user=alice", "gpu2 user=alice"]),
        ("alice@lab.example@gpu05", ["gpu05 user=alice@lab.example"]),
        ("gpu-1.lab.example.org,GPU_2.", ["gpu-1.lab.example.org", "GPU_2."]),
        ("10.0.0.1:8", ["10.0.0.1 slots=8"]),
        ("10.0.0.[1-2]:8", ["10.0.0.1 slots=8", "10.0.0.2 slots=8"]),
        ("2001:db8::5", ["2001:db8::5"]),
        ("[fe80::1]:8", ["fe80::1 slots=8"]),
        ("[2001:db8::5]", ["2001:db8::5"]),
        ("alice@[2001:db8::5]:4", ["2001:db8::5 user=alice slots=4"]),
        ("2001:db8::5:4", ["2001:db8::5:4"]),
        ("::1,n[1-2],[::2]:3", ["::1", "n1", "n2", "::2 slots=3"]),
        ("gpu01,gpu[02-03]:8,bo@n5", ["gpu01", "gpu02 slots=8", "gpu03 slots=8", "n5 user=bo"]),
        ("n1 slots=8 port=2222", ["n1 port=2222 slots=8"]),
        ("n[1-2] python=/opt/py/bin/python3", [f"n{i} python=/opt/py/bin/python3" for i in "12"]),
        ("n1,n2:4 user=x", ["n1 user=x", "n2 user=x slots=4"]),
    ],
)
def test_a_list_is_read(text: str, hosts: list[str] | None) -> None:
    if hosts is None:
        with pytest.raises(AdapterError):
            read_hosts(text)
    else:
        assert list(map(brief, read_hosts(text).nodes)) == hosts


class TestAHostFile:
    @pytest.mark.parametrize(
        ("text", "hosts"),
        [
            pytest.param(
                "u1@10.0.0.1 slots=2", ["10.0.0.1 user=u1 slots=2"], id="SSH-08 c user and address"
            ),
            pytest.param(
                "\n\nn1 slots=8  \t\n   \nn2\t slots=4\t\n\n",
                ["n1 slots=8", "n2 slots=4"],
                id="SSH-08 d blanks",
            ),
            pytest.param("n1 slots=8\r\n\r\nn2\r\n", ["n1 slots=8", "n2"], id="SSH-08 d CRLF"),
            pytest.param("n1\rn2", ["n1", "n2"], id="SSH-08 d CR alone"),
            pytest.param("\ufeffn1\nn2", ["n1", "n2"], id="SSH-08 d byte order mark"),
            pytest.param("# all\nn1#one\n  # none\nn2 slots=2 # two", ["n1", "n2 slots=2"], id="#"),
            pytest.param("n1:8\nn2:4", ["n1 slots=8", "n2 slots=4"], id="MPICH"),
            pytest.param("n[1-2] slots=8\nm1", ["n1 slots=8", "n2 slots=8", "m1"], id="brackets"),
            pytest.param(
                "gpu1 slots=8 port=2222 user=x address=10.0.0.2 python=py3 interface=eth0 # x",
                ["gpu1 user=x address=10.0.0.2 port=2222 slots=8 python=py3 interface=eth0"],
                id="all keys",
            ),
            pytest.param(
                "a address=10.0.0.1 port=22\nb address=10.0.0.1 port=23",
                ["a address=10.0.0.1 port=22", "b address=10.0.0.1 port=23"],
                id="two servers at one address",
            ),
        ],
    )
    def test_is_read(self, write: Write, text: str, hosts: list[str]) -> None:
        path = write(text)
        assert list(map(brief, read_hosts(path).nodes)) == hosts
        assert read_hosts(str(path)) == read_hosts(path)

    def test_ssh_08_a_that_is_missing_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(BadValueError, match="nope cannot be read: No such file") as caught:
            read_hosts(tmp_path / "nope")
        assert caught.value.exit_status == 2
        with pytest.raises(BadValueError, match="Is a directory"):
            read_hosts(tmp_path)

    @pytest.mark.parametrize("text", ["", "\n \n", "# n1\n"], ids=ascii)
    def test_ssh_08_a_that_names_nothing_is_an_error(self, write: Write, text: str) -> None:
        with pytest.raises(BadValueError, match="names no host"):
            read_hosts(write(text))

    def test_ssh_08_b_shows_file_number_and_text_of_a_wrong_line(self, write: Write) -> None:
        path = write("n1 slots=8\nn2 lots=8\n")
        with pytest.raises(BadValueError) as caught:
            read_hosts(path)
        assert str(caught.value) == (
            f"{path}, line 2: 'n2 lots=8': there is no key 'lots'\n"
            "Known: slots=8, port=2222, user=x, address=10.0.0.2, python=PROGRAM, interface=eth0."
        )

    @pytest.mark.parametrize("second", ["n1", "N1 slots=4", "n1.", "n[0-2]", "x@n1:3"])
    def test_ssh_08_e_names_both_places_of_a_host_given_twice(
        self, write: Write, second: str
    ) -> None:
        path = write(f"n1 slots=8\n\n{second}\n")
        first_word = second.split(maxsplit=1)[0]
        with pytest.raises(BadValueError, match="is given twice") as caught:
            read_hosts(path)
        assert f"{path}, line 1 ('n1') and {path}, line 3 ('{first_word}')" in caught.value.found

    @pytest.mark.parametrize(
        "text",
        [
            "a address=10.0.0.1\nb address=10.0.0.1",
            "a address=10.0.0.1 port=22\nb address=10.0.0.1",
            "a address=10.0.0.1\n10.0.0.1",
            "a address=2001:DB8::5\n2001:db8:0::5",
            "a address=::ffff:10.0.0.1\n10.0.0.1",
        ],
    )
    def test_ssh_08_e_finds_one_machine_under_two_names(self, write: Write, text: str) -> None:
        with pytest.raises(BadValueError, match=r"have one address.*line 1.*line 2"):
            read_hosts(write(text))

    def test_that_is_not_utf_8_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "latin").write_bytes(b"n\xe9\n")
        (tmp_path / "utf16").write_bytes("n1\n".encode("utf-16"))
        for name in ("latin", "utf16"):
            with pytest.raises(BadValueError, match="cannot be read"):
                read_hosts(tmp_path / name)

    def test_may_be_given_as_its_text(self) -> None:
        assert list(map(brief, read_hosts("n1\n# n2\nn3\n").nodes)) == ["n1", "n3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no host is named"),
        (" \t", "no host is named"),
        (",", "a comma without a host"),
        ("n1,", "a comma without a host"),
        ("n1,,n2", "a comma without a host"),
        ("n1, n2", "'n2' is not KEY=VALUE"),
        ("n1:", "'' cannot be slots"),
        ("n1:0", "'0' cannot be slots"),
        ("n1:-1", "'-1' cannot be slots"),
        ("n1:+1", "'+1' cannot be slots"),
        ("n1:1.5", "'1.5' cannot be slots"),
        ("n1:٣", "cannot be slots"),
        ("n1:4097", "from 1 to 4096"),
        ("n1:" + "9" * 5_000, "cannot be slots"),
        ("n1 slots=0", "'0' cannot be slots"),
        ("n1 slots=", "'' cannot be slots"),
        ("n1:8 slots=8", "slots is given twice"),
        ("n1 slots=8 slots=8", "slots is given twice"),
        ("a@n1 user=a", "user is given twice"),
        ("n1 port=0", "'0' cannot be port"),
        ("n1 port=65536", "from 1 to 65535"),
        ("n1 port=ssh", "'ssh' cannot be port"),
        ("n1 max_slots=8", "no key 'max_slots'"),
        ("n1 Slots=8", "no key 'Slots'"),
        ("n1 =8", "no key ''"),
        ("n1 8", "'8' is not KEY=VALUE"),
        ("n1 n2", "'n2' is not KEY=VALUE"),
        ("slots=8", "'slots=8' cannot be a host's name"),
        ("n[1-2] address=10.0.0.1", "one address= for 2 hosts"),
        ("n1 address=gpu01", "is not an IP address"),
        ("n1 address=0.0.0.0", "is not an IP address that other nodes could reach"),
        ("n1 address=fe80::1%eth0", "is not an IP address that other nodes could reach"),
        ("n1 address=010.0.0.1", "is not an IP address"),
        ("n1 interface=^docker0", "cannot be a network interface"),
        ("n1 interface=eth0,eth1", "cannot be a network interface"),
        ("n1 interface=sixteencharacter", "at most 15 characters"),
        ("n1 python=bin/python", "Give its whole path"),
        ("n1 python=~/bin/python", "Give its whole path"),
        ("n1 python=-c", "cannot be a node's interpreter"),
        ("n1 python=", "cannot be a node's interpreter"),
        ("n1 user=", "cannot be the user"),
        ("@n1", "there is no group '@n1'"),
        ("@", "cannot name a group"),
        ("@a b", "'b' is not KEY=VALUE"),
        ("[1-2", "ends inside a bracket"),
        ("n[1-2]]", "cannot be read"),
        ("n[2-1]", "runs backwards"),
        ("n[1-200000]", "more than 100,000 hosts"),
        ("n[1-60000],m[1-60000]", "more than 100,000 hosts"),
        ("12", "taken for part of an IP address"),
        ("10.0.1", "taken for part of an IP address"),
        ("0x7f000001", "taken for part of an IP address"),
        ("10.0.0.256", "taken for part of an IP address"),
        ("10.0.0.[255-256]", "'10.0.0.256' would be taken for part of an IP address"),
        ("a:b:c", "is not an IPv6 address"),
        ("[10.0.0.1]:4", "not a list of numbers"),
        ("[::1]4", "is not an IPv6 address"),
        ("[::1]:x", "'x' cannot be slots"),
        ("n1.." + "x", "cannot be a host's name"),
        ("n" * 254, "cannot be a host's name"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_list_is_refused(text: str, said: str) -> None:
    with pytest.raises(AdapterError) as caught:
        read_hosts([text])
    assert said in str(caught.value)
    assert caught.value.remedy
    assert caught.value.exit_status == 2
    assert all(len(line) < 300 for line in report(caught.value).splitlines())


HOSTILE = [
    *("-oProxyCommand=touch /tmp/x", "-l", "--", "-", "n1;id", "n1|id", "n1&id", "$(id)", "`id`"),
    *("n1\nn2", "n1\x00", "n1\x1b[2J", "n1\x7f", "n1\x0bslots=8", "n1\u00a0slots=8", "n1\u2028n2"),
    *("../n1", "n1/..", "n1'", 'n1"', "n1\\", "n1>x", "n1 <x", "n{1,2}", "n*", "n?", "~", "n1%h"),
    *(
        "ssh://n1",
        "gpü",
        "\uff47pu1",
        "n1\u202e",
        "fe80::1%eth0;id",
        "fe80::1%$(id)",
        "{}",
        "!n1",
        "^n1",
    ),
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("role", ["{}", "n0,{}", "u@{}", "n0:1,{}:4"])
def test_no_option_or_shell_text_passes_for_a_host(text: str, role: str) -> None:
    with pytest.raises(AdapterError) as caught:
        read_hosts([role.format(text)])
    assert len(report(caught.value).splitlines()) == 2
    assert report(caught.value).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "user", ["-l", "-", "a b", "a;b", "$(id)", "a'b", "a\\b", "a\tb", "ä", "@"]
)
def test_no_option_or_shell_text_passes_for_a_user(user: str) -> None:
    for text in (f"{user}@n0", f"n0 user={user}"):
        with pytest.raises(AdapterError):
            read_hosts([text])


@given(st.text(max_size=30))
@example("n1 slots=8\nn2")
def test_whatever_is_read_is_plain(text: str) -> None:
    nodes: tuple[Node, ...] = ()
    with suppress(AdapterError):
        nodes = read_hosts([text]).nodes
    for node in nodes:
        for word in (node.name, node.user or "u", node.interface or "i"):
            assert word.isascii()
            assert word.isprintable()
            assert not word.startswith("-")
            assert not set(word) & set(" /\\'\"`$;&|<>(){}*?~#!^=,")


LABEL = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
HOST = st.one_of(
    st.tuples(LABEL, st.lists(LABEL, max_size=2)).map(lambda pair: ".".join([pair[0], *pair[1]])),
    st.ip_addresses(v=4).filter(lambda address: not address.is_unspecified).map(str),
    st.ip_addresses(v=6)
    .filter(lambda address: not address.is_unspecified and address.ipv4_mapped is None)
    .map(str),
)
USER = st.none() | st.from_regex(r"[a-z_][a-z0-9_.-]{0,8}", fullmatch=True)
SLOTS = st.none() | st.integers(1, 4096)
HOSTS = st.lists(st.tuples(HOST, USER, SLOTS), min_size=1, max_size=9, unique_by=lambda one: one[0])


def written(host: str, user: str | None, slots: int | None) -> str:
    bare = host if slots is None or ":" not in host else f"[{host}]"
    return (f"{user}@" if user else "") + bare + (f":{slots}" if slots else "")


@given(HOSTS)
def test_what_is_written_as_a_list_is_read_back(hosts: list[tuple[str, str | None, int]]) -> None:
    read = read_hosts(",".join(written(*host) for host in hosts)).nodes
    assert [(node.name, node.user, node.slots) for node in read] == hosts
    assert all(node.address in {None, node.name} for node in read)


@given(HOSTS)
def test_what_is_written_as_a_file_is_read_back(hosts: list[tuple[str, str | None, int]]) -> None:
    lines = [
        f"{host}{f' user={user}' if user else ''}{f' slots={slots}' if slots else ''} # {user}"
        for host, user, slots in hosts
    ]
    read = read_hosts("\r\n".join(["", *lines])).nodes
    assert [(node.name, node.user, node.slots) for node in read] == hosts


class TestThePage:
    """What docs/hosts.md shows is so."""

    def blocks(self, heading: str) -> list[str]:
        section = PAGE[PAGE.index(f"\n## {heading}") :].split("\n## ", 2)[1]
        return [line[4:] for line in section.splitlines() if line.startswith("    ")]

    def test_its_list(self) -> None:
        (text,) = self.blocks("A list\n")
        assert list(map(brief, read_hosts(text).nodes)) == [
            "gpu01",
            *(f"gpu{number} slots=8" for number in ("02", "03", "04")),
            "gpu05 user=alice slots=4",
        ]

    def test_its_table_of_forms(self) -> None:
        rows = [line.strip("| ").split("|") for line in PAGE.splitlines() if line.startswith("| `")]
        forms = [[cell.strip(" `") for cell in row] for row in rows if len(row) == 3]
        assert len(forms) >= 4
        for text, host, slots in forms:
            nodes = read_hosts(text).nodes
            assert ", ".join(node.name for node in nodes) == host
            assert {node.slots for node in nodes} == {int(slots.split()[0])}
        for text in ("gpu01", "2001:db8::5"):
            assert f"| `{text}` | {text} | |" in PAGE
            assert read_hosts(text).nodes[0].slots is None

    def test_its_host_file(self, write: Write) -> None:
        nodes = read_hosts(write("\n".join(self.blocks("A host file\n")))).nodes
        assert list(map(brief, nodes)) == [
            "gpu01 slots=8",
            *(f"gpu{number} slots=8" for number in ("02", "03", "04")),
            "gpu05 user=alice address=10.0.0.5 port=2222 slots=4",
            "gpu06 slots=2 python=/opt/py311/bin/python interface=eth1",
        ]

"""Host files in TOML: what is said of each host, defaults, and groups by name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import PROJECT
from slurm_adapter import Node, read_hosts
from slurm_adapter.cli.hosts import choose_nodes
from slurm_adapter.cli.options import Given
from slurm_adapter.errors import AdapterError, BadValueError, report
from slurm_adapter.job.options import JobOptions

PAGE = (PROJECT / "docs" / "hosts.md").read_text()
Write = Callable[[str], Path]
LAB = """\
[hosts.gpu07]
[hosts."gpu[01-04]"]
slots = 8
[groups]
big = ["gpu01", "gpu[02-03]"]
fast = ["gpu[03-04]"]
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Give a function that writes a host file and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "lab.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_says_what_each_host_is_like(write: Write) -> None:
    path = write(
        """\
        [defaults]
        user = "ada"
        python = "python3.11"
        env = { NCCL_DEBUG = "WARN", SEED = 7 }

        [hosts.gpu01]
        slots = 8
        port = 2222
        address = "10.0.0.1"
        python = "/opt/my py/bin/python"
        interface = "eth1"
        env = { NCCL_DEBUG = "INFO" }

        [hosts."bo@gpu[02-03]:4"]
        [hosts."2001:db8::5"]
        """
    )
    first, second, third, last = read_hosts(path).nodes
    assert first == Node(
        "gpu01",
        "10.0.0.1",
        address_reason=f"given in {path}",
        user="ada",
        port=2222,
        slots=8,
        python="/opt/my py/bin/python",
        interface="eth1",
        env={"NCCL_DEBUG": "INFO", "SEED": "7"},
    )
    env = {"NCCL_DEBUG": "WARN", "SEED": "7"}
    for node, name in ((second, "gpu02"), (third, "gpu03")):
        assert node == Node(name, user="bo", slots=4, python="python3.11", env=env)
    assert (last.name, last.address, last.user) == ("2001:db8::5", "2001:db8::5", "ada")
    assert len({first, second, third, last}) == 4


def test_ssh_08_d_with_a_byte_order_mark_and_crlf_is_read(write: Write) -> None:
    path = write("\ufeff[hosts.n1]\r\nslots = 2\r\n")
    assert [node.slots for node in read_hosts(path).nodes] == [2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "names no host", id="SSH-08 a empty"),
        pytest.param(
            "[hosts.n2]\nlots = 8",
            "there is no key 'hosts.n2.lots'\nDid you mean slots?",
            id="SSH-08 b",
        ),
        pytest.param("[hosts.n1]\n[hosts.n1]", "is not TOML", id="SSH-08 e by TOML"),
        pytest.param(
            '[hosts.n1]\n[hosts."n[1-2]"]',
            "lab.toml ('n1') and ",
            id="SSH-08 e by a node list",
        ),
        ("[hosts.n1]\n[hosts.N1]", "'N1' is given twice"),
        ('[hosts.n1]\naddress = "10.0.0.1"\n[hosts."10.0.0.1"]', "have one address"),
        ('hosts = ["n1"]', "hosts = ['n1'] is not a table\nWrite it as in: [hosts.gpu01]"),
        ("[hosts]\nn1 = 8", "hosts.n1 = 8 is not a table"),
        ("[host.n1]", "there is no key 'host'\nDid you mean hosts?"),
        ('[defaults]\naddress = "10.0.0.1"', "there is no key 'defaults.address'"),
        ("[hosts.n1]\nslots = 0", "hosts.n1.slots: '0' cannot be slots"),
        ('[hosts.n1]\nslots = "8"', 'hosts.n1.slots = "8" is not a whole number'),
        ("[hosts.n1]\nslots = true", "hosts.n1.slots = true is not a whole number"),
        ("[hosts.n1]\nport = 65536", "hosts.n1.port: '65536' cannot be port"),
        ('[hosts.n1]\nuser = "-l"', "hosts.n1.user: '-l' cannot be the user"),
        ('[hosts."-oProxyCommand=x"]', "'-oProxyCommand=x' cannot be a host's name"),
        ('[hosts."n1;id"]', "'n1;id' cannot be a host's name"),
        ('[hosts.""]', "no host is named"),
        ('[hosts."n1:4"]\nslots = 4', "slots is given twice"),
        ('[hosts."n[1-2]"]\naddress = "10.0.0.1"', "one address for several hosts"),
        ('[hosts."n1,n2"]\naddress = "10.0.0.1"', "one address for several hosts"),
        ('[hosts."@big"]', "is a group, not a host"),
        ('[hosts.n1]\ninterface = "a b"', "cannot be a network interface"),
        ('[hosts.n1]\npython = "a/b"', "Give its whole path"),
        ('[hosts.n1.env]\nBAD-NAME = "1"', "hosts.n1.env: 'BAD-NAME' cannot be the name"),
        ("[hosts.n1.env]\nA = true", "hosts.n1.env.A = true is not a text in quotes"),
        ('[hosts.n1.env]\nA = "x\\u0000"', "no variable can hold the value of A"),
        ('[defaults.env]\n1A = "1"\n[hosts.n1]', "defaults.env: '1A' cannot be the name"),
        ('[hosts.n1]\n[groups]\nbig = ["n2"]', "groups.big: the file has no host 'n2'"),
        ('[hosts.n1]\n[groups]\nbig = "n1"', 'groups.big = "n1" is not a list'),
        ('[hosts.n1]\n[groups]\nbig = ["@x"]', "groups.big names another group"),
        ('[hosts.n1]\n[groups]\nbig = ["n1:4"]', "says more than which hosts are meant"),
        ('[hosts.n1]\n[groups]\n"a,b" = ["n1"]', "'a,b' cannot name a group"),
    ],
    ids=ascii,
)
def test_is_refused_with_file_and_key(write: Write, text: str, said: str) -> None:
    path = write(text)
    with pytest.raises(AdapterError) as caught:
        read_hosts(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert len(report(caught.value).splitlines()) == 2


def test_ssh_08_a_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadValueError) as caught:
        read_hosts(tmp_path / "no.toml")
    assert str(caught.value) == (
        f"the host file {tmp_path}/no.toml cannot be read: No such file or directory\n"
        "Check the name after --hosts."
    )


SILENT = JobOptions()


class TestGroups:
    def chosen(self, path: Path, *hosts: str, exclude: str | None = None) -> list[str]:
        words = JobOptions(
            hosts=hosts, hosts_file=str(path), exclude=(exclude,) if exclude else None
        )
        cluster = choose_nodes(Given(words, SILENT), SILENT, None)
        return [f"{node.name}:{node.slots}" for node in cluster.nodes]

    @pytest.mark.parametrize(
        ("hosts", "exclude", "chosen"),
        [
            ([], None, "gpu07 gpu01 gpu02 gpu03 gpu04"),
            (["@big"], None, "gpu01 gpu02 gpu03"),
            (["@fast", "gpu07"], None, "gpu03 gpu04 gpu07"),
            (["@big,@fast"], None, "gpu01 gpu02 gpu03 gpu04"),
            (["gpu03,@big"], None, "gpu03 gpu01 gpu02"),
            (["@big"], "@fast", "gpu01 gpu02"),
            ([], "@big,gpu07", "gpu04"),
        ],
    )
    def test_stand_for_their_hosts(
        self, write: Write, hosts: list[str], exclude: str | None, chosen: str
    ) -> None:
        names = [one.partition(":")[0] for one in self.chosen(write(LAB), *hosts, exclude=exclude)]
        assert names == chosen.split()

    def test_take_slots_and_leave_a_host_named_by_itself_its_own(self, write: Write) -> None:
        path = write(LAB)
        assert self.chosen(path, "@fast:2") == ["gpu03:2", "gpu04:2"]
        assert self.chosen(path, "gpu03:1,@fast:2") == ["gpu03:1", "gpu04:2"]
        assert self.chosen(path, "@fast,gpu04:1") == ["gpu03:8", "gpu04:1"]

    @pytest.mark.parametrize(
        ("hosts", "said"),
        [
            ("@bigg", "there is no group '@bigg' in the host file"),
            ("gpu09", "'gpu09' is not among the hosts of the host file"),
            ("@big,gpu01,gpu01", "'gpu01' is given twice: -H ('gpu01') and -H ('gpu01')"),
        ],
    )
    def test_are_refused_where_unknown(self, write: Write, hosts: str, said: str) -> None:
        with pytest.raises(BadValueError) as caught:
            self.chosen(write(LAB), hosts)
        assert said in str(caught.value)
        assert "None" not in str(caught.value)

    def test_may_come_from_a_host_file_that_the_job_file_names(self, write: Write) -> None:
        files = JobOptions(hosts_file=str(write(LAB)))
        cluster = choose_nodes(Given(JobOptions(hosts=("@fast",)), SILENT), files, None)
        assert [node.name for node in cluster.nodes] == ["gpu03", "gpu04"]


def test_the_file_of_the_page_is_read(write: Write) -> None:
    section = PAGE[PAGE.index("## A host file in TOML") :].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ") or not line]
    path = write("\n".join(lines))
    first, *rest = read_hosts(path).nodes
    assert (first.name, first.address, first.interface) == ("gpu01", "10.0.0.1", "eth1")
    assert (first.env, first.user) == ({"NCCL_IB_HCA": "mlx5_0"}, "ada")
    assert [(node.name, node.slots, node.env) for node in rest] == [
        (f"gpu0{number}", 4, {}) for number in (2, 3, 4)
    ]
    for hosts, count in (("@big", 1), ("@small", 3)):
        words = JobOptions(hosts=(hosts,), hosts_file=str(path))
        cluster = choose_nodes(Given(words, SILENT), SILENT, None)
        assert len(cluster.nodes) == count

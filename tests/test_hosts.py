"""A job's hosts file: the machine's own lines, and each worker's names with one address.

What nss_wrapper and nsswitch.conf need of it, and the addresses under which nodes cannot meet.
"""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import User
from slurm_adapter.contracts.place import Workers
from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.addresses import read_hosts_file
from slurm_adapter.node.view.hosts_file import check_addresses, files_first, for_wrapper, hosts_text
from steps import run_step
from testbed import SlurmCluster

JOB = "ma-job-a6b44790"
TWO = Workers(JOB, 2)
SITE = "127.0.0.1\tlocalhost\n# the lab's\n10.0.0.9 printer\n\n"
WORDS = st.text("abc.-:#\t 019é", max_size=20)


class TestTheFileOfAJob:
    def test_has_each_workers_names_and_its_mapped_address(self) -> None:
        text = hosts_text(SITE, TWO, ("10.20.0.1", "10.20.0.2"), ("", "gpu02"))
        assert text == (
            "127.0.0.1\tlocalhost\n# the lab's\n10.0.0.9 printer\n"
            "\n"
            f"# {JOB}: every worker, and its mapped address\n"
            f"10.20.0.1 {JOB}-worker-0.{JOB} {JOB}-worker-0\n"
            f"::ffff:10.20.0.1 {JOB}-worker-0.mapped\n"
            f"10.20.0.2 {JOB}-worker-1.{JOB} {JOB}-worker-1 gpu02\n"
            f"::ffff:10.20.0.2 {JOB}-worker-1.mapped\n"
            "::ffff:127.0.0.1 localhost.mapped\n"
        )

    def test_has_no_mapped_address_for_an_ipv6_node(self) -> None:
        text = hosts_text("", TWO, ("fd00::1", "10.20.0.2"), ())
        assert [line.split()[0] for line in text.splitlines() if JOB in line] == [
            *("#", "fd00::1", "10.20.0.2", "::ffff:10.20.0.2")
        ]

    def test_has_one_address_for_each_name_on_10_000_nodes(self) -> None:
        workers = Workers(JOB, 10_000)
        addresses = [f"10.{1 + i // 65536}.{i // 256 % 256}.{i % 256}" for i in range(10_000)]
        names = [f"gpu{index:05}" for index in range(10_000)]
        text = hosts_text(SITE, workers, addresses, names)
        words = [line.partition("#")[0].split() for line in text.splitlines()]
        lines = [(address, name) for address, *found in filter(None, words) for name in found]
        by_name = {name: address for address, name in lines}
        assert len(by_name) == len(lines) == 2 + 1 + 10_000 * 4
        for index in (0, 9, 4_711, 9_999):
            short = workers.instance(index)
            for name in (short, workers.dotted(index), names[index]):
                assert by_name[name] == addresses[index]
            assert by_name[f"{short}.mapped"] == f"::ffff:{addresses[index]}"

    @given(st.lists(WORDS).map("\n".join))
    def test_begins_with_the_machines_own_lines(self, site: str) -> None:
        text = hosts_text(site, TWO, ("10.20.0.1", "10.20.0.2"), ())
        assert text.startswith(f"{site}\n" if site and not site.endswith("\n") else site)
        assert read_hosts_file(text) | read_hosts_file(site) == read_hosts_file(text)

    @pytest.mark.parametrize(
        "site",
        [
            b"127.0.0.1 localhost\n10.77.0.10  gpu-n00 # no newline at the end",
            b"# B\xfcro\n127.0.0.1\tlocalhost\n\n10.77.0.10\tgpu-n00\n",
        ],
        ids=["blanks", "Latin-1"],
    )
    def test_keeps_those_byte_for_byte(self, user: User, site: bytes) -> None:
        path = user.cluster.state / "etc/hosts"
        before = path.read_bytes()
        path.write_bytes(site)
        try:
            run_step(user, "--", "cp", "/etc/hosts", "full", nodes=1)
            run_step(user, "--view", "hosts", "--", "cp", "/etc/hosts", "hosts", nodes=1)
        finally:
            path.write_bytes(before)
        kept = site.removesuffix(b"\n") + b"\n"
        assert user.outside("full").read_bytes().endswith(b" localhost.mapped\n" + kept)
        assert user.outside("hosts").read_bytes().startswith(kept + b"# ma-job-")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("# 10.0.0.1 gone\n\n   \n10.0.0.2\n", {}),
        ("10.0.0.1 a b # c\n\t10.0.0.2\td", {"a": "10.0.0.1", "b": "10.0.0.1", "d": "10.0.0.2"}),
        ("10.0.0.1 a\n10.0.0.2 a\n", {"a": "10.0.0.1"}),
        ("127.0.1.1 a\n10.0.0.2 a\n", {"a": "10.0.0.2"}),
        ("127.0.1.1 a\n", {"a": "127.0.1.1"}),
        ("fd00::1 a\n10.0.0.2 a\n", {"a": "10.0.0.2"}),
        ("fd00::1 a\n127.0.1.1 a\n", {"a": "127.0.1.1"}),
        ("::1 a\nfd00::1 a\n", {"a": "::1"}),
    ],
)
def test_a_name_has_its_first_ipv4_address_loopback_last(text: str, found: dict[str, str]) -> None:
    assert read_hosts_file(text) == found


class TestAddresses:
    def test_of_their_own_let_nodes_meet(self) -> None:
        check_addresses(("a", "b", "c"), ("10.0.0.1", "fd00::1", "10.0.0.2"))
        check_addresses(("alone",), ("127.0.1.1",))

    @pytest.mark.parametrize("address", ["127.0.1.1", "127.0.0.1", "::1"])
    def test_of_loopback_are_refused_for_several_nodes(self, address: str) -> None:
        with pytest.raises(ClusterUnfitError, match=f"b resolves to {address} on .*loopback") as it:
            check_addresses(("a", "b"), ("10.0.0.1", address))
        assert "Give b its real address" in it.value.remedy

    def test_that_two_nodes_share_are_refused(self) -> None:
        with pytest.raises(ClusterUnfitError, match=r"a and c resolve to the same address 10\.0"):
            check_addresses(("a", "b", "c"), ("10.0.0.1", "10.0.0.2", "10.0.0.1"))


class TestNamesThatDoNotResolve:
    """On a node of the cluster, whose name server denies everything at once."""

    def resolve(self, slurm: SlurmCluster, names: list[str], hosts: str = "{}") -> tuple[str, str]:
        code = "import sys; from slurm_adapter.node.view.hosts_file import resolve_all"
        code += f"; print(*resolve_all(sys.argv[1:], {hosts}))"
        done = slurm.run([sys.executable, "-c", code, *names], node="gpu-n01")
        return done.stdout, done.stderr

    def test_are_named_with_what_to_try(self, slurm: SlurmCluster) -> None:
        _, said = self.resolve(slurm, ["gpu-n00", "x1", "x2"])
        assert said.endswith(
            "ClusterUnfitError: gpu-n01 cannot resolve x1, x2\n"
            "Make every node's name resolve on every node; try `getent hosts x1` there."
            " --view off goes without.\n"
        )

    def test_are_named_as_three_and_how_many_more(self, slurm: SlurmCluster) -> None:
        _, said = self.resolve(slurm, ["gpu-n00", *(f"x{index}" for index in range(1, 10))])
        assert "gpu-n01 cannot resolve x1, x2, x3 and 6 more\n" in said

    def test_are_not_asked_for_where_the_hosts_file_has_them(self, slurm: SlurmCluster) -> None:
        found = self.resolve(slurm, ["gpu-n02", "x1"], "{'x1': '10.0.0.7'}")
        assert found == ("10.77.0.12 10.0.0.7\n", "")


class TestNodesThatCannotMeet:
    """A rank on the first node of the cluster, whose hosts file is wrong about another."""

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ("10.77.0.11 gpu-n01\n", "gpu-n00 cannot resolve gpu-n02\n"),
            (
                "10.77.0.11 gpu-n01\n127.0.1.1 gpu-n02\n",
                "gpu-n00 cannot reach gpu-n02: its name leads to 127.0.1.1, which never leads to",
            ),
            (
                "127.0.1.1 gpu-n01\n10.77.0.12 gpu-n02\n",
                "gpu-n00 cannot reach gpu-n01: its name leads to 127.0.1.1, which never leads to",
            ),
            ("10.77.0.11 gpu-n01 gpu-n02\n", "gpu-n01 and gpu-n02 resolve to the same address"),
        ],
        ids=["unknown", "loopback", "the first neighbour's loopback", "shared"],
    )
    def test_start_no_rank_and_are_named(self, user: User, wrong: str, said: str) -> None:
        start = ("--", "sh", "-c", 'touch "started $VC_TASK_INDEX"')
        with user.cluster.etc_file("hosts", f"127.0.0.1 localhost\n10.77.0.10 gpu-n00\n{wrong}"):
            ended = run_step(user, *start, check=False)
        assert ended.status != 0
        assert said in ended.err[0]
        assert not user.outside("started 0").exists()

    def test_are_one_node_with_whatever_address(self, user: User) -> None:
        """Debian writes 127.0.1.1 for a machine's own name."""
        with user.cluster.etc_file("hosts", "127.0.0.1 localhost\n127.0.1.1 gpu-n00\n"):
            (seen,) = run_step(user, "--boot", "look_up.py", nodes=1).json
        assert seen["found"][seen["names"][0]]["gethostbyname"] == "127.0.1.1"


class TestTheFileForNssWrapper:
    def test_has_no_comments_and_names_at_mapped_addresses(self) -> None:
        site = (
            "127.0.0.1 localhost # here\nfe80::1%eth0 odd\n255.255.255.255 broadcasthost\n10.9 x\n"
        )
        text = for_wrapper(hosts_text(site, TWO, ("10.20.0.1", "fd00::2"), ("gpu01", "")))
        assert text == (
            "127.0.0.1 localhost\n"
            "255.255.255.255 broadcasthost\n"
            f"10.20.0.1 {JOB}-worker-0.{JOB} {JOB}-worker-0 gpu01\n"
            f"::ffff:10.20.0.1 {JOB}-worker-0.{JOB} {JOB}-worker-0 gpu01\n"
            f"fd00::2 {JOB}-worker-1.{JOB} {JOB}-worker-1\n"
            "::ffff:127.0.0.1 localhost\n"
        )

    def test_names_a_worker_whose_address_the_machine_lists_too(self) -> None:
        text = for_wrapper(hosts_text("10.20.0.1 gpu01\n", TWO, ("10.20.0.1", "10.20.0.2"), ()))
        mapped = [line for line in text.splitlines() if line.startswith("::ffff:10.20.0.1 ")]
        assert mapped == [f"::ffff:10.20.0.1 {JOB}-worker-0.{JOB} {JOB}-worker-0"]


class TestTheOrderOfSources:
    @pytest.mark.parametrize(
        "line",
        [
            "hosts: files dns",
            "hosts:\tfiles",
            " hosts :files mymachines dns",
            "hosts: files [NOTFOUND=return] dns  # as it should be",
            "# hosts: dns files",
            "passwd: hosts dns",
            "",
        ],
    )
    def test_stays_where_the_hosts_file_comes_first_or_nothing_is_said(self, line: str) -> None:
        assert files_first(f"passwd: files\n{line}\n") is None

    @pytest.mark.parametrize(
        ("sources", "told"),
        [
            ("dns files", "files dns"),
            ("dns", "files dns"),
            ("", "files "),
            ("resolve [!UNAVAIL=return] files dns", "files resolve [!UNAVAIL=return] dns"),
            ("mymachines files [NOTFOUND=continue] dns", "files mymachines dns"),
            ("dns [!UNAVAIL=return] files # why not", "files dns [!UNAVAIL=return]"),
            ("dns files [NOTFOUND=return TRYAGAIN=continue] nis", "files dns nis"),
            ("sss files dns files", "files sss dns"),
        ],
    )
    def test_has_the_hosts_file_first(self, sources: str, told: str) -> None:
        text = f"passwd: files sss\nhosts: {sources}\nnetgroup: nis\n"
        assert files_first(text) == f"passwd: files sss\nhosts: {told}\nnetgroup: nis\n"

    @given(st.lists(st.sampled_from(("files", "dns", "sss", "[!UNAVAIL=return]")), max_size=6))
    def test_is_right_when_it_was_put_right(self, sources: list[str]) -> None:
        text = f"hosts: {' '.join(sources)}\n"
        assert files_first(files_first(text) or text) is None

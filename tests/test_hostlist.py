"""Node lists: every shape that Slurm writes, nothing that it does not, and the way back."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_adapter import expand_hostlist, fold_hostlist
from slurm_adapter.errors import NodeListError
from testbed import SlurmCluster

RACKS = [f"rack{rack}n{node:03}" for rack in range(100) for node in range(1000)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("gnode[007-010]", "gnode007 gnode008 gnode009 gnode010", id="SL-01"),
        pytest.param("n[09-11]", "n09 n10 n11", id="SL-01 width of two"),
        pytest.param("n[9-11]", "n9 n10 n11", id="SL-01 no width"),
        pytest.param("n[099-101]", "n099 n100 n101", id="SL-01 width of three"),
        pytest.param("n[001,01,1]", "n001 n01 n1", id="SL-01 three hosts"),
        pytest.param("linux[1,2]", "linux1 linux2", id="SL-02 a"),
        pytest.param("alpha,beta,gamma", "alpha beta gamma", id="SL-02 b"),
        pytest.param("site-ia[810-811]", "site-ia810 site-ia811", id="SL-02 c"),
        pytest.param("r42-071,r43-002", "r42-071 r43-002", id="SL-03 a"),
        pytest.param("host-[001-002]", "host-001 host-002", id="SL-03 b"),
        pytest.param("nodeA,nodeB[001,003],nodeC", "nodeA nodeB001 nodeB003 nodeC", id="SL-03 c"),
        pytest.param("host[001,003-004,006]", "host001 host003 host004 host006", id="SL-03 d"),
        pytest.param(
            "rack[0-1]n[00-03]",
            "rack0n00 rack0n01 rack0n02 rack0n03 rack1n00 rack1n01 rack1n02 rack1n03",
            id="SL-04 a",
        ),
        pytest.param(
            "rack[0-1]n[2-3],solo,ib-[07-08]",
            "rack0n2 rack0n3 rack1n2 rack1n3 solo ib-07 ib-08",
            id="SL-04 b",
        ),
        pytest.param("a-b-[1-2]-c[3-4]", "a-b-1-c3 a-b-1-c4 a-b-2-c3 a-b-2-c4", id="SL-04 c"),
        pytest.param("n[3,1-2,2]", "n3 n1 n2 n2", id="order and repetitions stay"),
        pytest.param("n[0-0],n[5]", "n0 n5", id="ranges of one"),
        pytest.param("n[1-2]-ib", "n1-ib n2-ib", id="text after the group"),
    ],
)
def test_expands(text: str, names: str) -> None:
    assert expand_hostlist(text) == names.split()


def test_sl_04_three_groups_name_the_same_hosts_in_whatever_order() -> None:
    expected = [f"x{x}y{y}z{z}" for x in "12" for y in "34" for z in "56"]
    assert sorted(expand_hostlist("x[1-2]y[3-4]z[5-6]")) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" ", "is empty"),
        ("n[1-2", "ends inside a bracket"),
        ("a,n[", "ends inside a bracket"),
        ("n[2-1]", "runs backwards"),
        ("n[10-9]", "runs backwards"),
        (",n1", "from character 1 on"),
        ("n1,", "from character 3 on"),
        ("n1,,n2", "from character 4 on"),
        ("n1]", "from character 3 on"),
        ("n]1[", "from character 2 on"),
        ("n[[1-2]]", "from character"),
        ("n[1-[2]]", "from character"),
        ("n1 n2", "white space"),
        (" n1", "white space"),
        ("n1\n", "white space"),
        ("n[1, 2]", "white space"),
        ("n[]", "not a list of numbers"),
        ("n[1,]", "not a list of numbers"),
        ("n[1-]", "not a list of numbers"),
        ("n[-2]", "not a list of numbers"),
        ("n[1-2-3]", "not a list of numbers"),
        ("n[a-b]", "not a list of numbers"),
        ("n[0x1]", "not a list of numbers"),
        ("n[+1]", "not a list of numbers"),
        ("n[1_0]", "not a list of numbers"),
        ("n[\u0663]", "not a list of numbers"),
        (f"n[1-{'9' * 5000}]", "not a list of numbers"),
    ],
    ids=lambda value: ascii(value)[1:30],
)
def test_refuses(text: str, said: str) -> None:
    with pytest.raises(NodeListError, match=said):
        expand_hostlist(text)


@pytest.mark.parametrize(
    "text",
    ["n[1-999999999]", "a[0-99999]b[0-99999]c[0-99999]", "n[1-99999],a[1-2]", "n[1-100001]"],
)
def test_too_many_hosts_are_counted_not_built(text: str) -> None:
    expand_hostlist("n1")
    tracemalloc.start()
    try:
        with pytest.raises(NodeListError, match="more than 100,000 hosts"):
            expand_hostlist(text)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


def test_too_many_plain_names_are_refused() -> None:
    with pytest.raises(NodeListError, match="more than 100,000 hosts"):
        expand_hostlist(",".join(["n"] * 100_001))
    with pytest.raises(NodeListError, match="more than 4 hosts"):
        expand_hostlist("n[1-5]", most=4)


def test_a_hundred_thousand_hosts_are_expanded_and_folded() -> None:
    assert expand_hostlist("rack[0-99]n[000-999]") == RACKS
    assert fold_hostlist(RACKS) == "rack[0-99]n[000-999]"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("n1", "n1"),
        ("n1 n2 n3", "n[1-3]"),
        ("n09 n10 n11", "n[09-11]"),
        ("n9 n10 n11", "n[9-11]"),
        ("n001 n01 n1", "n[001,01,1]"),
        ("n99 n100", "n[99-100]"),
        ("n099 n100", "n[099-100]"),
        ("n3 n1 n2 n2", "n[3,1-2,2]"),
        ("alpha beta gamma", "alpha,beta,gamma"),
        ("gpu-n00 gpu-n01 gpu-n02", "gpu-n[00-02]"),
        ("nodeA nodeB001 nodeB003 nodeC", "nodeA,nodeB[001,003],nodeC"),
        ("r1n1 r1n2 r2n1 r2n2", "r[1-2]n[1-2]"),
        ("r1n1 r1n2 r2n1", "r1n[1-2],r2n1"),
    ],
)
def test_folds(names: str, text: str) -> None:
    assert fold_hostlist(names.split()) == text


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "a,b", "n[1-2]", "n[", "n]"])
def test_folds_only_names(name: str) -> None:
    with pytest.raises(NodeListError, match="cannot be a host name"):
        fold_hostlist(["n1", name])


def runs(suffixes: "st.SearchStrategy[str]") -> "st.SearchStrategy[list[str]]":
    """Neighbours such as n08 n09 n10, the shape that folding is about."""
    return st.builds(
        lambda prefix, first, count, width, suffix: [
            f"{prefix}{number:0{width}}{suffix}" for number in range(first, first + count)
        ],
        st.sampled_from(["n", "gpu-", "r1n", "r2n", "a0", "0-", "x9y09z"]),
        st.sampled_from([0, 1, 8, 98, 99_999]),
        st.integers(1, 4),
        st.integers(0, 6),
        suffixes,
    )


ANY_NAME = st.text(st.characters(codec="utf-8"), min_size=1).filter(
    lambda name: name.split() == [name] and not set(name) & set("[],")
)
DIGITS_ANYWHERE = st.text("ab-0019", min_size=1, max_size=22)
ODD_NAMES = st.lists(
    runs(st.sampled_from(["", "", "-ib", "x2", "é"]))
    | st.lists(ANY_NAME | DIGITS_ANYWHERE, min_size=1, max_size=3)
    | st.just(["n" + "9" * 18, "n1" + "0" * 18, "n0" + "9" * 18]),
    min_size=1,
    max_size=5,
).map(lambda groups: [name for group in groups for name in group])


@settings(max_examples=200)
@given(ODD_NAMES)
def test_what_was_folded_expands_to_the_same_names(names: list[str]) -> None:
    assert expand_hostlist(fold_hostlist(names)) == names


LITERALS = st.sampled_from(["n", "gpu-", "rack0", "a1b", "x.y_", "N-07-", "0", "99"])
RANGES = st.sampled_from(
    ["0", "7", "00", "007", "1-3", "0-0", "08-11", "8-11", "098-101", "98-101", "0-12", "0001-2"]
)
GROUPS = st.lists(RANGES, min_size=1, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
ENTRIES = (
    LITERALS
    | st.builds("{}{}".format, LITERALS, GROUPS)
    | st.builds("{}{}{}{}".format, LITERALS, GROUPS, LITERALS | st.just(""), GROUPS)
)
A_HUNDRED_LISTS = st.lists(ENTRIES, min_size=100, max_size=100)
SLURM_NAMES = st.lists(
    runs(st.sampled_from(["", "", "", "-ib", "x2"])), min_size=1, max_size=10
).map(lambda groups: [name for group in groups for name in group])


def slurm_expands(slurm: SlurmCluster, text: str) -> list[str]:
    done = slurm.run(["scontrol", "show", "hostnames", text])
    assert done.stderr == ""
    return done.stdout.splitlines()


class TestSlurm:
    @settings(max_examples=30)
    @given(lists=A_HUNDRED_LISTS)
    def test_reads_the_same_names(self, slurm: SlurmCluster, lists: list[str]) -> None:
        joined = ",".join(lists)
        assert slurm_expands(slurm, joined) == expand_hostlist(joined)

    @settings(max_examples=50)
    @given(names=SLURM_NAMES)
    def test_reads_what_was_folded(self, slurm: SlurmCluster, names: list[str]) -> None:
        assert slurm_expands(slurm, fold_hostlist(names)) == names

    def test_reads_a_hundred_thousand_folded_names(self, slurm: SlurmCluster) -> None:
        assert slurm_expands(slurm, fold_hostlist(RACKS)) == RACKS

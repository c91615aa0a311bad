"""Lines of ranks: whose are shown, behind which name, and how fast they go by."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_adapter.errors import BadValueError
from slurm_adapter.node.ranks.events import Output
from slurm_adapter.show.lines import LinePrinter, LogChoice, own_streams, rank_names, write_all
from terminal import terminal

NODES = ["gpu-n1", "gpu-n10"]
NAMES = rank_names(NODES, [range(2), range(2, 3)])


class Pipes:
    """What comes out of our stdout and stderr, a message for each write."""

    def __init__(self) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        self.ours, self.theirs = zip(*pairs, strict=True)
        self.streams = (self.theirs[0].fileno(), self.theirs[1].fileno())

    def messages(self, number: int) -> list[bytes]:
        """Return the writes to stdout (0) or stderr (1)."""
        self.theirs[number].shutdown(socket.SHUT_WR)
        return list(iter(lambda: self.ours[number].recv(1 << 20), b""))

    def close(self) -> None:
        for one in (*self.ours, *self.theirs):
            one.close()


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    pipes = Pipes()
    yield pipes
    pipes.close()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("all", {0, 1, 2, 3, 4, 5, 6, 7}),
        ("first", {0}),
        ("none", set()),
        ("rank=3", {3}),
        ("rank=1,3-5", {1, 3, 4, 5}),
        ("rank=7,0,0-0", {0, 7}),
    ],
)
def test_ranks_are_chosen(text: str, shown: set[int]) -> None:
    choice = LogChoice.parse(text, 8)
    assert {rank for rank in range(8) if choice.shows(rank)} == shown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("last", "--logs last is not understood"),
        ("", "--logs  is not understood"),
        ("3", "--logs 3 is not understood"),
        ("ranks=3", "--logs ranks=3 is not understood"),
        ("a\nb", "--logs a\\nb is not understood"),
        ("rank", "--logs rank: '' is no rank and no range of ranks"),
        ("rank=", "--logs rank=: '' is no rank and no range of ranks"),
        ("rank=1,,2", "--logs rank=1,,2: '' is no rank and no range of ranks"),
        ("rank=-1", "--logs rank=-1: '-1' is no rank and no range of ranks"),
        ("rank=5-3", "--logs rank=5-3: '5-3' is no rank and no range of ranks"),
        ("rank=²", "--logs rank=²: '²' is no rank and no range of ranks"),
        ("rank=1-2-3", "--logs rank=1-2-3: '1-2-3' is no rank and no range of ranks"),
        ("rank=8", "--logs rank=8: there is no rank 8; ranks are 0 to 7"),
        (
            "rank=0-999999999",
            "--logs rank=0-999999999: there is no rank 999999999; ranks are 0 to 7",
        ),
    ],
)
def test_what_cannot_be_chosen_is_told_with_a_remedy(text: str, found: str) -> None:
    with pytest.raises(BadValueError) as told:
        LogChoice.parse(text, 8)
    assert told.value.found == found
    assert told.value.remedy == "Choose all, first, none or ranks, as in rank=3 or rank=0,4-7."


def test_of_one_rank_no_other_can_be_chosen() -> None:
    with pytest.raises(BadValueError, match="there is no rank 1; rank 0 is the only one"):
        LogChoice.parse("rank=1", 1)


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        (["a.x.org", "b.x.org"], ["a/0", "b/1"]),
        (["a.x.org", "a.y.org"], ["a.x.org/0", "a.y.org/1"]),
        (["a", "b.x.org"], ["a/0", "b.x.org/1"]),
        (["10.0.0.1", "11.0.0.1"], ["10.0.0.1/0", "11.0.0.1/1"]),
        (["fe80::1", "fe80::2"], ["fe80::1/0", "fe80::2/1"]),
    ],
)
def test_ranks_are_named_by_node_without_a_domain_that_all_share(
    nodes: list[str], names: list[str]
) -> None:
    assert rank_names(nodes, [[0], [1]]) == names


def test_lines_stand_below_each_other_whatever_the_names(pipes: Pipes) -> None:
    printer = LinePrinter(NAMES, streams=pipes.streams)
    for rank in range(3):
        printer.show(Output(rank, b"x\n", is_error=False))
    assert pipes.messages(0) == [b"[gpu-n1/0]  x\n", b"[gpu-n1/1]  x\n", b"[gpu-n10/2] x\n"]


def test_each_event_is_one_write_to_its_own_stream(pipes: Pipes) -> None:
    printer = LinePrinter(["0", "1"], streams=pipes.streams)
    printer.show(Output(1, b"a\n\n\xff\n", is_error=False))
    printer.show(Output(0, b"b\nc\n", is_error=True))
    printer.show(Output(0, b"\n", is_error=False))
    assert pipes.messages(0) == [b"[1] a\n[1] \n[1] \xff\n", b"[0] \n"]
    assert pipes.messages(1) == [b"[0] b\n[0] c\n"]


def test_nothing_comes_of_ranks_that_are_not_shown_neither_output_nor_errors(pipes: Pipes) -> None:
    printer = LinePrinter(NAMES, LogChoice.parse("first", 3), pipes.streams)
    for rank in (2, 0, 1):
        printer.show(Output(rank, b"x\n", is_error=False))
        printer.show(Output(rank, b"y\n", is_error=True))
    assert (pipes.messages(0), pipes.messages(1)) == ([b"[gpu-n1/0]  x\n"], [b"[gpu-n1/0]  y\n"])


def test_ranks_differ_in_colour_at_a_terminal() -> None:
    with terminal(80, 24) as screen:
        printer = LinePrinter(["0", "1"], streams=(screen.stream, screen.stream))
        printer.show(Output(0, b"a\nb\n", is_error=False))
        printer.show(Output(1, b"c\n", is_error=True))
        assert screen.drain() == (
            b"\x1b[36m[0] \x1b[0ma\r\n\x1b[36m[0] \x1b[0mb\r\n\x1b[33m[1] \x1b[0mc\r\n"
        )


def test_a_stream_that_does_not_block_gets_every_byte() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = os.urandom(1 << 21)
    writer = threading.Thread(target=lambda: (write_all(writing, data), os.close(writing)))
    writer.start()
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        assert pipe.read() == data
    writer.join()


def test_a_closed_stdout_is_an_error_and_never_another_file(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "from slurm_adapter.node.ranks.events import Output\n"
        "from slurm_adapter.show.lines import LinePrinter\n"
        "other = os.open('other', os.O_WRONLY | os.O_CREAT)\n"
        "assert other == 1\n"
        "try:\n"
        "    LinePrinter(['0']).show(Output(0, b'x\\n', is_error=False))\n"
        "except OSError as error:\n"
        "    raise SystemExit(error.errno)\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code], cwd=tmp_path, check=False
    )
    assert done.returncode == 9  # EBADF
    assert (tmp_path / "other").read_bytes() == b""


def test_our_own_streams_are_one_and_two() -> None:
    assert own_streams() == (1, 2)

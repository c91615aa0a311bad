"""What ranks print comes out whole: every byte, in lines, each behind its rank."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commandline import ADAPTER, adapter, environment, running
from slurm_adapter.node.ranks.events import LineSplitter

# Each part is written when the launcher has read the one before it.
WRITE = """\
import fcntl, os, sys, termios, time
for part in {parts!r}:
    os.write(1, part)
    while fcntl.ioctl(1, termios.FIONREAD, bytes(4)) != bytes(4):
        time.sleep(0.001)
"""


def output(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [ADAPTER, "local", *words], cwd=folder, env=environment(), capture_output=True, check=False
    )


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        pytest.param([b"a\nb\n"], [b"a", b"b"], id="lines"),
        pytest.param([b"a", b"b", b"\n"], [b"ab"], id="a line in pieces"),
        pytest.param([b"\xe6\x97", b"\xa5\n"], [b"\xe6\x97\xa5"], id="a character in pieces"),
        pytest.param([b"10%\r", b"20%\r", b"done\n"], [b"10%", b"20%", b"done"], id="a bar"),
        pytest.param([b"a\r\nb\r", b"\nc\n"], [b"a", b"b", b"c"], id="dos lines"),
        pytest.param([b"\n", b"\n"], [b"", b""], id="empty lines"),
        pytest.param([b"a\nb"], [b"a", b"b"], id="no line break at the end"),
        pytest.param([b"a\r"], [b"a"], id="a carriage return at the end"),
        pytest.param([b"\xff\0\x1b[1m\n"], [b"\xff\0\x1b[1m"], id="bytes that are no text"),
        pytest.param([b"x" * 300_000, b"y\n"], [b"x" * 300_000 + b"y"], id="a very long line"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_arrives_whole(tmp_path: Path, parts: list[bytes], lines: list[bytes]) -> None:
    (tmp_path / "write.py").write_text(WRITE.format(parts=parts))
    done = output(tmp_path, "write.py")
    assert done.stdout == b"".join(b"[0] " + line + b"\n" for line in lines)
    assert (done.returncode, done.stderr) == (0, b"")


@given(parts=st.lists(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\xe6"])).map(b"".join)))
def test_is_split_into_the_same_lines_however_it_comes(parts: list[bytes]) -> None:
    whole, pieces = LineSplitter(), LineSplitter()
    expected = whole.feed(b"".join(parts)) + whole.finish()
    assert b"".join(map(pieces.feed, parts)) + pieces.finish() == expected
    assert expected[-1:] in (b"", b"\n")
    assert b"\r" not in expected
    letters = b"".join(parts).replace(b"\r", b"").replace(b"\n", b"")
    assert expected.replace(b"\n", b"") == letters


def test_of_a_line_without_end_comes_in_pieces(tmp_path: Path) -> None:
    """Whoever holds it back until it ends has no bound on what it holds."""
    (tmp_path / "write.py").write_text("print('x' * 5_000_000)\n")
    done = output(tmp_path, "write.py")
    pieces = done.stdout.split(b"\n")[:-1]
    assert len(pieces) > 1
    assert b"".join(piece.removeprefix(b"[0] ") for piece in pieces) == b"x" * 5_000_000


def test_is_told_apart_by_rank_and_stream(tmp_path: Path) -> None:
    done = output(tmp_path, "-N", "2", "--command", "echo out; echo err >&2")
    assert sorted(done.stdout.splitlines()) == [b"[0] out", b"[1] out"]
    assert sorted(done.stderr.splitlines()) == [b"[0] err", b"[1] err"]
    assert done.returncode == 0


def test_lines_up_where_there_are_many_ranks(tmp_path: Path) -> None:
    done = output(tmp_path, "-N", "11", "--command", "echo a")
    assert sorted(done.stdout.splitlines()) == [b"[%2d] a" % rank for rank in range(11)]


def test_comes_as_it_is_printed(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import signal\nprint('first')\nsignal.pause()\n")
    with running("local", "wait.py", cwd=tmp_path) as process:
        assert process.stdout
        assert process.stdout.readline() == b"[0] first\n"


def test_of_many_ranks_is_never_mixed_within_a_line(tmp_path: Path) -> None:
    command = (
        'i=0; while [ $i -lt 200 ]; do echo "$VC_TASK_INDEX $i $VC_TASK_INDEX"; i=$((i+1)); done'
    )
    done = output(tmp_path, "-N", "4", "--command", command)
    lines = done.stdout.decode().splitlines()
    for rank in range(4):
        mine = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert mine == [f"[{rank}] {rank} {count} {rank}" for count in range(200)]
    assert len(lines) == 800


def test_is_all_there_when_a_rank_fails(tmp_path: Path) -> None:
    command = "i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done; exit 3"
    done = output(tmp_path, "--command", command)
    assert done.stdout == b"".join(b"[0] %d\n" % count for count in range(5000))
    assert done.returncode == 3


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_is_the_only_output_of_a_job_that_goes_well(tmp_path: Path, quiet: list[str]) -> None:
    done = adapter("local", *quiet, "--command", "true", cwd=tmp_path)
    assert (done.status, done.out, done.err) == (0, "", "")


def test_is_preceded_by_what_was_started_where_asked_for(tmp_path: Path) -> None:
    words = ["local", "-N", "2", "--verbose", "--port", "16666", "--dry-run", "--format", "plain"]
    assert adapter(*words, "--command", "true", cwd=tmp_path).err == ""
    done = adapter("local", "-N", "2", "--verbose", "--command", "true", cwd=tmp_path)
    assert done.err.startswith("slurm-adapter: 2 ranks started, rendezvous port ")

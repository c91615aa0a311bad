"""Where no panel can stand, lines come byte by byte as they were; a file may take stdout's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_adapter.node.ranks.events import Ended, Event, Lost, Output
from slurm_adapter.show.lines import LinePrinter
from slurm_adapter.show.live import Screen, live_or_plain
from terminal import terminal

PLAIN: list[Event] = [
    Output(0, b"a\n\x1b[2J\xff\n", is_error=False),
    Output(1, b"b\n", is_error=True),
    Ended(0, 0),
    Lost(0, (1,), "silent", 4),
]


def plainly(screen: Screen, streams: tuple[int, int]) -> None:
    screen.state(0, "connecting")
    screen.begin(LinePrinter(["0", "1"], streams=streams), [[0, 1]])
    for event in PLAIN:
        screen.show(event)
    screen.tick()
    screen.say("done")
    with screen.aside():
        pass


@pytest.mark.parametrize("piped", ["both", "stdout", "stderr"])
def test_a_pipe_gets_the_lines_byte_by_byte(piped: str) -> None:
    reading, writing = os.pipe()
    with terminal(80, 24, NO_COLOR="1") as shown:
        streams = (
            shown.stream if piped == "stderr" else writing,
            shown.stream if piped == "stdout" else writing,
        )
        with live_or_plain(["n"], streams=streams) as screen:
            assert screen.due_s == 0.5
            plainly(screen, streams)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            piece = {
                "stdout": b"[0] a\n[0] \x1b[2J\xff\n",
                "stderr": b"[1] b\nslurm-adapter: done\n",
            }
            assert pipe.read() == piece.get(piped, b"".join(piece.values()))


@pytest.mark.parametrize("why", ["dumb", "", "not wanted"])
def test_a_terminal_that_cannot_or_shall_not_have_it_gets_the_lines(why: str) -> None:
    wanted = why != "not wanted"
    with terminal(80, 24, NO_COLOR="1", **({"TERM": why} if wanted else {})) as shown:
        streams = (shown.stream, shown.stream)
        with live_or_plain(["n"], enabled=wanted, streams=streams) as screen:
            plainly(screen, streams)
        assert shown.drain() == b"[0] a\r\n[0] \xff\r\n[1] b\r\nslurm-adapter: done\r\n"


def test_stdout_into_a_file_leaves_the_terminal_to_the_panel(tmp_path: Path) -> None:
    now_s = [0.0]
    with terminal(80, 24, NO_COLOR="1") as shown, (tmp_path / "log").open("wb") as file:
        streams = (file.fileno(), shown.stream)
        with live_or_plain(["n"], streams=streams, clock=lambda: now_s[0]) as screen:
            screen.begin(LinePrinter(["0"], streams=streams), [[0]])
            now_s[0] = 1.0
            screen.tick()
            screen.show(Output(0, b"a \x1b[2J\n", is_error=False))
            screen.show(Output(0, b"b\n", is_error=True))
            now_s[0] = 2.0
            screen.tick()
            rows = shown.rows()
        assert (tmp_path / "log").read_bytes() == b"[0] a \x1b[2J\n"
        assert rows[0] == "[0] b"
        assert rows[1].startswith("── ")
        assert shown.rows() == ["[0] b"]


def test_a_terminal_that_has_gone_ends_the_job_at_the_next_line() -> None:
    now_s = [0.0]
    ours, stream = os.openpty()
    with live_or_plain(["n"], streams=(stream, stream), clock=lambda: now_s[0]) as screen:
        screen.begin(LinePrinter(["0"], streams=(stream, stream)), [[0]])
        os.close(ours)
        now_s[0] = 1.0
        screen.tick()
        screen.say("heard by nobody")
        with pytest.raises(OSError, match="Input/output error"):
            screen.show(Output(0, b"a\n", is_error=False))
    os.close(stream)


def test_where_there_is_no_panel_rich_is_not_loaded() -> None:
    code = "import sys, slurm_adapter.show.live; raise SystemExit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

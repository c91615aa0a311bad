"""The live panel stands below whole lines, keeps out of their way, and goes without a trace."""

import os
import re
from contextlib import suppress

import pytest

from livejob import LOSS, below, job, names
from slurm_adapter.node.ranks.events import Ended, Output
from slurm_adapter.show import live
from slurm_adapter.show.lines import LinePrinter
from slurm_adapter.show.live import live_or_plain
from terminal import Terminal, terminal

STYLE = re.compile(rb"\x1b\[[0-9;:]*m")


def test_lines_scroll_above_it_whole_and_in_order() -> None:
    with job(2) as it:
        it.run(2)
        for number in range(500):
            it.print(number % 2, b"%d\n%d\n" % (number, number), is_error=number % 3 == 0)
            it.wait(0.01)
        it.wait(1.0)
        rows = it.terminal.everything()
        assert rows[:-3] == [f"[{number % 2}] {number}" for number in range(500) for _ in range(2)]
        assert [row[:15] for row in rows[-2:]] == [" gpu-n1 running", " gpu-n2 running"]


def test_a_lone_line_comes_at_once_and_a_flood_ten_times_a_second() -> None:
    with job() as it:
        it.run(1)
        it.terminal.drain()
        it.print(0, b"lone\n")
        assert b"lone" in it.terminal.drain()
        for _ in range(10):
            it.now_s[0] += 0.009
            it.print(0, b"held\n")
        assert it.terminal.drain() == b""
        assert it.screen.due_s == pytest.approx(0.01)
        it.wait(0.011)
        shown = it.terminal.drain()
        assert shown.count(b"held") == 10
        assert shown.count("── ".encode()) == 1


def test_a_great_flood_is_not_held_for_long() -> None:
    with job() as it:
        it.run(1)
        for _ in range(5):
            it.print(0, b"x" * 60_000 + b"\n")
        assert it.terminal.drain().count(b"x" * 60_000) >= 3


def test_what_we_say_stands_behind_the_lines_before_it() -> None:
    with job() as it:
        it.run(1)
        it.print(0, b"a\n")
        it.print(0, b"b\n")
        it.screen.say("over\n  and out \x1b[2J")
        it.print(0, b"c\n")
        it.wait(1.0)
        assert it.terminal.rows()[:5] == [
            "[0] a",
            "[0] b",
            "slurm-adapter: over",
            "  and out \\x1b[2J",
            "[0] c",
        ]
        assert len(it.panel) == 2


def test_ranks_that_are_not_shown_are_seen_in_the_panel_only() -> None:
    with job(2, logs="none") as it:
        it.run(2)
        it.print(1, LOSS)
        it.wait(1.0)
        rows = it.terminal.rows()
        assert rows[0].startswith("── ")
        assert "loss 2.1843" in rows[2]


class Test_at_the_end:  # noqa: N801 - reads as a sentence
    def test_only_the_lines_are_left(self) -> None:
        with job(3) as it:
            it.run(3)
            it.print(0, b"a\n")
            it.print(1, b"b\n")
            it.close()
            assert it.terminal.rows() == ["[0] a", "[1] b"]
            assert it.terminal.in_order
            assert it.terminal.look().cursor.x == 0

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_of_an_exception_too(self, error: type[BaseException]) -> None:
        def fall(shown: Terminal) -> None:
            now_s = [0.0]
            streams = (shown.stream, shown.stream)
            with live_or_plain(["a"], streams=streams, clock=lambda: now_s[0]) as screen:
                screen.begin(LinePrinter(["0"], streams=streams), [[0]])
                now_s[0] = 1.0
                screen.tick()
                assert below(shown.rows())
                screen.show(Output(0, b"a\n", is_error=False))
                raise error

        with terminal(80, 24) as shown:
            with pytest.raises(error):
                fall(shown)
            assert shown.rows() == ["[0] a"]
            assert shown.in_order

    @pytest.mark.parametrize("count", [2, 30], ids=["empty screen", "full screen"])
    def test_even_where_drawing_was_broken_off_at_any_byte(
        self, monkeypatch: pytest.MonkeyPatch, count: int
    ) -> None:
        lines = [f"line {number}" for number in range(count)]
        cut, length = 0, 1
        while cut < length:
            with terminal(40, 12) as shown:
                length = break_off(shown, lines, cut, monkeypatch)
                rows = shown.everything()
                assert rows[:count] == lines, cut
                assert not below(rows), cut
                assert not any("gpu" in row for row in rows), cut
                assert shown.in_order, cut
            cut += 3


def break_off(shown: Terminal, lines: list[str], cut: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have a signal handler raise when `cut` bytes of lines and panel are written.

    Returns:
        How many bytes there would have been.
    """
    now_s, lengths = [0.0], []
    whole = live.write_all

    def torn(stream: int, data: bytes) -> None:
        monkeypatch.setattr(live, "write_all", whole)
        lengths.append(len(data))
        whole(stream, data[:cut])
        raise KeyboardInterrupt

    streams = (shown.stream, shown.stream)
    with (
        suppress(KeyboardInterrupt),
        live_or_plain(names(3), streams=streams, clock=lambda: now_s[0]) as screen,
    ):
        os.write(shown.stream, "".join(f"{line}\n" for line in lines).encode())
        now_s[0] = 1.0
        screen.tick()
        now_s[0] = 5.0
        monkeypatch.setattr(live, "write_all", torn)
        screen.say("written\nas far as it came")
    return lengths[0]


def test_a_short_job_gets_no_panel() -> None:
    with job() as it:
        it.screen.state(0, "running")
        it.wait(0.2)
        it.print(0, b"a\n")
        it.print(0, b"b\n", is_error=True)
        it.screen.show(Ended(0, 0))
        it.wait(0.2)
        assert it.terminal.drain() == b"\x1b[36m[0] \x1b[0ma\r\n\x1b[36m[0] \x1b[0mb\r\n"


def test_without_colour_it_is_drawn_in_plain_text() -> None:
    with job(2, NO_COLOR="1") as it:
        it.run(2)
        it.print(0, b"a\n")
        it.wait(1.0)
        assert len(it.panel) == 3
        assert not STYLE.search(it.terminal.written)


def test_others_can_have_the_terminal_for_a_while() -> None:
    with job(2) as it:
        it.run(2)
        assert it.panel
        with it.screen.aside():
            assert it.terminal.rows() == []
            os.write(it.terminal.stream, b"password: ")
            it.wait(3.0)
            os.write(it.terminal.stream, b"\n")
            assert it.terminal.rows() == ["password:"]
        it.wait(1.0)
        assert it.terminal.rows()[0] == "password:"
        assert len(it.panel) == 3


def test_in_the_background_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with job(2) as it:
        it.run(2)
        it.terminal.drain()
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
        it.wait(3.0)
        assert it.terminal.drain() == b""
        assert it.screen.due_s > 0  # or the event loop would spin
        it.print(0, b"a\n")
        assert it.terminal.drain() == b"\x1b[36m[0] \x1b[0ma\r\n"
        monkeypatch.undo()
        it.wait(1.5)
        assert "── ".encode() in it.terminal.drain()

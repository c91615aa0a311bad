"""Whatever ranks print, panel and terminal stay in order."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from livejob import below, job
from slurm_adapter.show.harmless import harmless, one_line

STYLE = re.compile(rb"\x1b\[[0-9;:]*m")

NASTY = st.sampled_from(
    [
        *(
            b"\x1b[2J",
            b"\x1b[H",
            b"\x1b[5A",
            b"\x1b[?1049h",
            b"\x1b[?25l",
            b"\x1bc",
            b"\x1b7",
            b"\x1b8",
        ),
        *(
            b"\x1b]0;title",
            b"\x1bP+q",
            b"\x1b[",
            b"\x1b",
            b"\x9b",
            b"\xc2\x9b2J",
            b"\xc2",
            b"\xc2\x84",
        ),
        *(
            b"\x1b[31m",
            b"\x1b[0m",
            b"\x1b[38;5;9m",
            b"\x1b]8;;http://x\x1b\\link",
            b"\x1b[3;1r",
            b"\x1b(0",
        ),
        *(
            b"\r",
            b"\x08",
            b"\x07",
            b"\0",
            b"\t",
            b"\x0e",
            b"\x0c",
            b"\x0b",
            b"\x7f",
            b"\x1b[!p",
            b"\x1b[6n",
        ),
        *(
            b"abc",
            b" ",
            "ä".encode(),
            "日本".encode(),
            "日".encode()[:2],
            "👩‍🚀".encode(),
            b"e\xcc\x81",
        ),
        *("\u202e".encode(), "\u2028".encode(), "\ufeff".encode(), "❤️".encode(), b"x" * 100),
    ]
)
LINE = st.lists(NASTY, max_size=8).map(b"".join)


@given(lines=st.lists(LINE, min_size=1, max_size=6))
@example(lines=[b"\xc2\xc2\x9b\x9b2J", b"\x1b\x1b[2J[2J", b"\x1b[31\x00m"])
def test_hostile_output_disturbs_neither_panel_nor_terminal(lines: list[bytes]) -> None:
    with job(2, 2) as it:
        it.run(2)
        for line in lines:
            it.print(0, line + b"\n")
            it.print(2, b"kept\n")
        it.wait(1.0)
        rows = it.terminal.everything()
        panel = below(rows)
        assert len(panel) == 3
        assert panel[0].startswith("── 0:01 · 2 nodes running · 4 ranks running ──")
        assert panel[2].startswith(" gpu-n2 running     0:01 2 ranks 2: kept")
        above = rows[:-3]
        assert above.count("[2] kept") == len(lines)
        mine = sum(len(line.split(b"\r")) for line in lines)  # states of a progress bar
        mine -= sum(line.endswith(b"\r") for line in lines)
        assert sum(row.startswith("[0] ") or row == "[0]" for row in above) == mine
        assert it.terminal.in_order
        it.close()
        assert it.terminal.everything() == above


@given(data=st.lists(st.one_of(NASTY, st.binary(max_size=4)), max_size=12).map(b"".join))
def test_what_is_harmless_has_styles_and_no_other_command(data: bytes) -> None:
    lines = harmless(re.sub(b"[\r\n]", b"", data) + b"\n")
    assert harmless(lines).replace(b"\x1b[0m", b"") == lines.replace(b"\x1b[0m", b"")
    text = STYLE.sub(b"", lines)
    assert not set(text) & ({*range(0x20), 0x7F} - {0x09, 0x0A})
    assert not re.search(rb"\xc2[\x80-\x9f]", text)
    assert one_line(data).isprintable()


def test_what_is_ordinary_stays_as_it_is() -> None:
    lines = "日本 é \t½° plain\n".encode() * 3
    assert harmless(lines) is lines or harmless(lines) == lines
    assert harmless(b"\x1b[1;31mred\x1b[0m\n") == b"\x1b[1;31mred\x1b[0m\x1b[0m\n"

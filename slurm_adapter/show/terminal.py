r"""What a terminal is asked and told by a panel that stands below lines.

The cursor is never hidden and no mode is left set: it rests at the panel's upper left, where the
next line will stand. So the terminal is in order even if this process is killed outright, and
`\r` and "erase below" are all that takes the panel away, whatever a resize made of it.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.show.lines import Streams

ERASE = b"\r\x1b[J"
"""Takes the panel away, from where the cursor rests."""
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
"""A terminal that knows 2026 shows all between the two at once; the others skip it."""
_SAVE, _RESTORE = b"\x1b7", b"\x1b8"
_WRAP_OFF, _WRAP_ON = b"\x1b[?7l", b"\x1b[?7h"
ERASE_TORN = _RESTORE + _WRAP_ON + ERASE
"""Takes it away where its drawing was broken off, so that the cursor may be anywhere in it."""

# For terminals of another encoding.
_ASCII = str.maketrans("─·…", "-|~")


def framed(rows: Sequence[str]) -> bytes:
    """Return what draws a panel from the cursor on, and brings the cursor back to its start."""
    if not rows:
        return b""
    # Room first: while the rows are written nothing scrolls, and the saved place stays right.
    # Without wrapping a row is one row, even where the terminal takes a character for wider.
    below = len(rows) - 1
    room = b"\n" * below + b"\x1b[%dA" % below if below else b""
    return room + _SAVE + _WRAP_OFF + _encoded("\r\n".join(rows)) + _RESTORE + _SAVE + _WRAP_ON


def _encoded(text: str) -> bytes:
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    if not encoding.lower().startswith("utf"):
        text = text.translate(_ASCII)
    return text.encode(encoding, "replace")


def has_room(streams: Streams) -> bool:
    """Say whether a panel can be drawn: on the terminal of stderr.

    stdout must be the same terminal or a file; what goes into a pipe may come out at this very
    terminal (`| tee log`) without our knowing when.
    """
    out, err = streams
    if err < 0 or not os.isatty(err) or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        mode = os.fstat(out)
    except OSError:
        return True  # closed: nothing will be written there
    if os.isatty(out):
        return mode.st_rdev == os.fstat(err).st_rdev
    return stat.S_ISREG(mode.st_mode) or stat.S_ISCHR(mode.st_mode)


def size_of(terminal: int) -> tuple[int, int]:
    """Return (columns, rows); 80 and 24 where the terminal does not know."""
    try:
        columns, rows = os.get_terminal_size(terminal)
    except OSError:
        columns = rows = 0
    return columns or 80, rows or 24


def in_front(terminal: int) -> bool:
    """Say whether this process may draw: a shell may have put it into the background."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not the terminal that controls us
        return True

"""What ranks print, made harmless for a terminal that has more to show than their lines.

Only for their bytes, as many as there are; words of ours are `errors.printable`'s business. Colours
and other styles stay, and what turns the direction of writing, which ends with its line. Whatever
moves the cursor, clears, switches screens, or waits for an end that never comes goes: it was meant
for a terminal of the rank's own.
"""

from __future__ import annotations

import re

# Deleting these tells, at the speed of memory, whether a text holds anything else. C2 begins the
# UTF-8 form of the controls from 80 to 9F, which terminals heed as well.
_ORDINARY = bytes(set(range(0x20, 0x100)) - {0x7F, 0xC2}) + b"\t\n"
_STYLE = rb"\x1b\[[0-9;:]*m"
_MEANT_FOR_TERMINALS = re.compile(
    rb"\x1b\](?:[^\x00-\x1f\x7f]|\xc2[\x80-\x9f])*(?:\x07|\x1b\\)?"  # titles, links
    rb"|\x1b[PX^_][^\x00-\x1f\x7f]*(?:\x07|\x1b\\)?"  # strings for devices
    rb"|(?!%s)\x1b\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]?"  # cursor, screen, modes
    rb"|\x1b(?!\[)[\x20-\x2f]*[\x30-\x7e]?"
    rb"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]" % _STYLE
)
_HIGH_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]")
_STYLES = re.compile(_STYLE)


def harmless(lines: bytes) -> bytes:
    """Return whole lines without what would disturb a screen; each ends in the style it began."""
    if not lines.translate(None, _ORDINARY):
        return lines
    if b"\r" in lines:  # a progress bar's: each state is a line, as in what is taken from ranks
        lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if _STYLES.sub(b"", lines).translate(None, _ORDINARY):
        lines = _MEANT_FOR_TERMINALS.sub(b"", lines)
        # Not by nothing: what stands around it must not become another.
        lines = _HIGH_CONTROLS.sub(b"?", lines)
    return lines.replace(b"\n", b"\x1b[0m\n") if b"\x1b" in lines else lines


def one_line(data: bytes) -> str:
    """Return a line as text for a cell of a table: no style, nothing but what can be printed."""
    text = _STYLES.sub(b"", harmless(data)).decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()

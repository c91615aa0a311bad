"""OpenSSH's wildcards: `*` and `?`, in Host lines of a config and in known_hosts files."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def matches(pattern: str, name: str) -> bool:
    """Say whether a pattern stands for all of a name."""
    return _compiled(pattern).fullmatch(name) is not None


def matches_list(patterns: Iterable[str], name: str) -> bool:
    """Say whether a list of patterns takes in a name: one matches, and none after a `!` does."""
    found = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if matches(pattern[1:], name):
                return False
        elif matches(pattern, name):
            found = True
    return found


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile(
        "".join({"\\*": ".*", "\\?": "."}.get(part, part) for part in parts), re.DOTALL
    )

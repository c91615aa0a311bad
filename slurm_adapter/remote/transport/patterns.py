"""OpenSSH's wildcards: `*` and `?`, in Host lines of a config and in known_hosts files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def matches(pattern: str, name: str) -> bool:
    """Say whether a pattern stands for all of a name; however many `*` it has, that takes no time.

    Only what the last `*` stands for is ever tried anew: an earlier one could do no more.
    """
    place = at = 0
    star, tried = -1, 0
    while at < len(name):
        letter = pattern[place : place + 1]
        if letter == "*":
            star, tried = place, at
            place += 1
        elif letter in ("?", name[at]):
            place += 1
            at += 1
        elif star >= 0:
            tried += 1
            place, at = star + 1, tried
        else:
            return False
    return not pattern[place:].strip("*")


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

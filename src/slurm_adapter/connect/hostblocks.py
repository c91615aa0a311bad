"""Which hosts an ssh config treats alike, so that ssh need not be asked about each.

Asking ssh costs 6 ms of CPU, more than opening a connection does. Only what the answer could
depend on is read here, never a value: hosts for which the same `Host` lines count get the same
answer. Wherever more than that could matter (`Match exec`, say), nothing is claimed.
"""

from __future__ import annotations

import glob
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.connect.patterns import matches_list
from slurm_adapter.connect.tokens import home

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_DEEPEST = 16
# Whether a line applies may hang on these, but they are alike for hosts that are alike so far.
_HARMLESS_CRITERIA = {"all", "user", "localuser", "final", "canonical"}
_SECOND_PASS = {"final", "canonical"}


@dataclass(frozen=True)
class HostBlocks:
    """The `Host` lines of a config, each a list of patterns, wherever they stand in it."""

    lines: tuple[tuple[str, ...], ...]

    def signature(self, name: str) -> tuple[bool, ...]:
        """Return for each line whether it counts for a host: equal for hosts that are alike."""
        lower = name.lower()
        counts = [matches_list(line, spelling) for line in self.lines for spelling in (name, lower)]
        return (name == lower, *counts)


def read_host_blocks(config_file: Path | None) -> HostBlocks | None:
    """Read a config for its `Host` lines.

    Args:
        config_file: as with `ssh -F`; None for the user's own and the system's.

    Returns:
        None where something else in it could make ssh treat two hosts differently.
    """
    own = home() / ".ssh"
    starts = [(own / "config", own), (SYSTEM_CONFIG, SYSTEM_CONFIG.parent)]
    if config_file is not None:
        starts = [] if str(config_file) == "none" else [(config_file, own)]
    lines: list[tuple[str, ...]] = []
    second_pass = False
    try:
        for path, folder in starts:
            for keyword, words in _read(path, folder, 0):
                if keyword == "host":
                    lines.append(tuple(words))
                second_pass = second_pass or bool(_SECOND_PASS & set(words))
    except _UnclearError:
        return None
    # The second pass may look at the resolved name, which is not compared here.
    if second_pass and any(line != ("*",) for line in lines):
        return None
    return HostBlocks(tuple(lines))


class _UnclearError(Exception):
    """Something that could set hosts apart in a way not understood here."""


def _read(path: Path, folder: Path, depth: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the `Host` and `Match` lines of a file and of those that it includes."""
    if depth > _DEEPEST:
        raise _UnclearError
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError:
        return  # ssh ignores it, or says itself what is wrong
    for line in text.splitlines():
        keyword, words = _split(line)
        if keyword == "host":
            yield keyword, words
        elif keyword == "match":
            yield keyword, _checked_criteria(words)
        elif keyword == "include":
            for word in words:
                for found in _included(word, folder):
                    yield from _read(found, folder, depth + 1)
        elif keyword == "canonicalizehostname" and words != ["no"]:
            raise _UnclearError


def _split(line: str) -> tuple[str, list[str]]:
    keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
    if "\t" in keyword:
        keyword, _, more = keyword.partition("\t")
        rest = f"{more} {rest}"
    if keyword.lower() not in {"host", "match", "include", "canonicalizehostname"}:
        return "", []
    try:
        return keyword.lower(), shlex.split(rest, comments=True)
    except ValueError:
        raise _UnclearError from None


def _checked_criteria(words: list[str]) -> list[str]:
    rest = iter(words)
    criteria = []
    for word in rest:
        criterion = word.lstrip("!").lower()
        if criterion not in _HARMLESS_CRITERIA:
            raise _UnclearError
        criteria.append(criterion)
        if criterion in {"user", "localuser"}:
            next(rest, None)
    return criteria


def _included(word: str, folder: Path) -> list[Path]:
    if "%" in word or "$" in word:
        raise _UnclearError
    path = str(home()) + word[1:] if word == "~" or word.startswith("~/") else word
    if path.startswith("~"):
        raise _UnclearError
    return [Path(found) for found in sorted(glob.glob(str(folder / path)))]  # noqa: PTH207

"""Which hosts an ssh config treats alike, so that ssh need not be asked about each.

Asking ssh costs 6 ms of CPU, more than opening a connection does. Only what the answer could
depend on is read here: hosts for which the same `Host` lines count get the same answer, and so do
hosts that have blocks of their own with the same lines in them, but for a plain HostName. Wherever
more than that could matter (`Match exec`, say), or a line is of a form that versions of ssh read
differently (quotes, `#` behind a word), nothing is claimed.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.remote.transport.patterns import matches_list
from slurm_adapter.remote.transport.tokens import home

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_DEEPEST = 16
# Whether a line applies may hang on these, but they are alike for hosts that are alike so far.
_HARMLESS_CRITERIA = {"all", "user", "localuser", "final", "canonical"}
_SECOND_PASS = {"final", "canonical"}
_INCLUDED = "end of include"
_STRUCTURE = {"host", "match", "include", "canonicalizehostname"}
_PLAIN = re.compile(r"[a-z0-9][a-z0-9.:-]*")
_LINE = re.compile(
    r"[ \t]*(?:#.*|(?P<keyword>[A-Za-z0-9]+)(?:[ \t]*=[ \t]*|[ \t]+)(?P<rest>[^\s=].*))?", re.DOTALL
)
_ORDINARY = re.compile(r"[\t !$-&(-\[\]-~]*")
"""What every ssh splits at blanks alone: no quote, no backslash, no `#`."""


@dataclass(frozen=True)
class Block:
    """One `Host` line, and what stands below it."""

    patterns: tuple[str, ...]
    lines: tuple[str, ...] | None = ()
    """As they stand there, but `hostname` alone for one that is a plain name or address.

    None where it, or what is below it, hangs on more: there is an Include about.
    """
    hostname: str | None = None
    """That name or address."""
    matches: int = 0
    """How many `Match` blocks stand before it: what it says may decide about those behind it."""

    @property
    def is_literal(self) -> bool:
        """Whether it names its hosts."""
        return not any(letter in "".join(self.patterns) for letter in "*?!")


class HostBlocks:
    """The `Host` blocks of a config in their order, wherever they stand in it."""

    def __init__(self, blocks: Sequence[Block], files: Collection[str]) -> None:
        self.blocks = tuple(blocks)
        self.files = frozenset(files)
        """What was read, without links: the answer may not hang on any other file."""
        # A config may have a block for each of hundreds of hosts: those are not tried in turn.
        self._literal: dict[str, list[int]] = {}
        self._others: list[int] = []
        for place, block in enumerate(blocks):
            if block.is_literal:
                for name in dict.fromkeys(block.patterns):
                    self._literal.setdefault(name, []).append(place)
            else:
                self._others.append(place)

    def signature(self, name: str) -> tuple[object, ...]:
        """Return what counts for a host: equal for hosts that are alike."""
        lower = name.lower()
        if name == lower:
            return (True, *self._counting(name))
        return (False, *self._counting(name), None, *self._counting(lower))

    def own_hostname(self, name: str) -> str | None:
        """Return the plain HostName in the first block that names a host."""
        found = (self.blocks[place].hostname for place in self._literal.get(name, ()))
        return next((one for one in found if one is not None), None)

    def _counting(self, name: str) -> Iterator[object]:
        """Yield for each block that counts its place, or what it says where it is for names."""
        literal = self._literal.get(name, ())
        others = (one for one in self._others if matches_list(self.blocks[one].patterns, name))
        for place in sorted((*literal, *others)):
            block = self.blocks[place]
            alike = block.is_literal and block.lines is not None
            yield (block.matches, block.lines) if alike else place


def read_host_blocks(config_file: Path | None) -> HostBlocks | None:
    """Read a config for its `Host` blocks.

    Args:
        config_file: as with `ssh -F`; None for the user's own and the system's.

    Returns:
        None where something else in it could make ssh treat two hosts differently.
    """
    reading = _Reading()
    files: set[str] = set()
    try:
        for path, folder in _starts(config_file):
            reading.take("match", ["all"])
            for line, words in _read(path, folder, files):
                reading.take(line.keyword, words)
    except _UnclearError:
        return None
    blocks = [draft.block() for draft in reading.drafts]
    # The second pass may look at the resolved name, which is not compared here.
    if reading.second_pass and any(block.patterns != ("*",) for block in blocks):
        return None
    return HostBlocks(blocks, files)


def where_set(config_file: Path | None, option: str) -> str:
    """Return `FILE:LINE` for the first line that sets an option, for whichever host; else nothing.

    Args:
        config_file: as `read_host_blocks` has it.
        option: its name.
    """
    try:
        for start in _starts(config_file):
            for line, _ in _read(*start, set()):
                if line.keyword == option.lower():
                    return f"{line.path}:{line.number}"
    except _UnclearError:
        pass
    return ""


def _starts(config_file: Path | None) -> list[tuple[Path, Path]]:
    """Return the files that are read first, each with the folder that its Includes start from."""
    own = home() / ".ssh"
    if config_file is None:
        return [(own / "config", own), (SYSTEM_CONFIG, SYSTEM_CONFIG.parent)]
    return [] if str(config_file) == "none" else [(config_file, own)]


class _Reading:
    """A config as it is being read."""

    def __init__(self) -> None:
        self.drafts: list[_Draft] = []
        self.second_pass = False
        self._open = _Draft(())
        self._including: list[_Draft] = []
        self._matches = 0

    def take(self, keyword: str, words: list[str]) -> None:
        if keyword == "host":
            conditional = self._is_conditional()
            self._open = _Draft(tuple(words), conditional=conditional, matches=self._matches)
            self.drafts.append(self._open)
        elif keyword == "match":
            self._open = _Draft((), is_match=words != ["all"])
            self._matches += 1
            self.second_pass = self.second_pass or bool(_SECOND_PASS & set(words))
        elif keyword == "include":
            self._open.conditional = True
            self._including.append(self._open)
        elif keyword == _INCLUDED:
            self._open = self._including.pop()
        else:
            self._open.take(keyword, words)

    def _is_conditional(self) -> bool:
        """Say whether what is read now only counts where some block around it does."""
        return any(draft.patterns or draft.is_match for draft in self._including)


class _Draft:
    """A block that is being read."""

    def __init__(
        self,
        patterns: tuple[str, ...],
        *,
        is_match: bool = False,
        conditional: bool = False,
        matches: int = 0,
    ) -> None:
        self.patterns, self.is_match, self.conditional = patterns, is_match, conditional
        self._matches = matches
        self._lines: list[str] = []
        self._hostname: str | None = None

    def take(self, keyword: str, words: list[str]) -> None:
        text = " ".join(words)
        if keyword == "hostname" and self._hostname is None and _PLAIN.fullmatch(text):
            self._hostname, text = text, ""
        self._lines.append(f"{keyword} {text}")

    def block(self) -> Block:
        lines = None if self.conditional else tuple(self._lines)
        return Block(self.patterns, lines, self._hostname, self._matches)


class _UnclearError(Exception):
    """Something that could set hosts apart in a way not understood here."""


@dataclass(frozen=True)
class Line:
    """A line of a config as far as it is understood here."""

    path: Path
    number: int
    """Counted from 1."""
    keyword: str
    rest: str


def _read(
    path: Path, folder: Path, files: set[str], depth: int = 0
) -> Iterator[tuple[Line, list[str]]]:
    """Yield the lines of a file and of those that it includes, with words where they matter.

    `files` gets the names of all that is read.
    """
    if depth > _DEEPEST:
        raise _UnclearError
    files.add(os.path.realpath(path))
    for line in _lines(path):
        words = _words(line) if line.keyword in _STRUCTURE else [line.rest]
        if line.keyword == "match":
            words = _checked_criteria(words)
        elif line.keyword == "canonicalizehostname" and words != ["no"]:
            raise _UnclearError
        yield line, words
        if line.keyword == "include":
            for found in (one for word in words for one in _included(word, folder)):
                yield from _read(found, folder, files, depth + 1)
            yield Line(path, line.number, _INCLUDED, ""), []


def _lines(path: Path) -> Iterator[Line]:
    try:
        if path.exists() and not path.is_file():
            raise _UnclearError  # what a pipe holds can be read once, and that is for ssh
        # Byte by byte, as ssh has it: no letter beyond ASCII ends a line or a word.
        text = path.read_bytes().decode("latin-1")
    except OSError:
        return  # ssh ignores it, or says itself what is wrong
    for number, line in enumerate(text.split("\n"), 1):
        found = _LINE.fullmatch(line.rstrip(" \t\r\f"))
        if found is None:
            raise _UnclearError
        if found["keyword"]:
            yield Line(path, number, found["keyword"].lower(), found["rest"])


def _words(line: Line) -> list[str]:
    if not _ORDINARY.fullmatch(line.rest):
        raise _UnclearError
    return line.rest.split()


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
    return [Path(found) for found in sorted(glob.glob(str(folder / path)))]

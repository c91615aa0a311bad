"""Which files make up the code of a job, as they lie in its code directory now.

Knows nothing of hosts: `sync` brings what is found here to them.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slurm_adapter.errors import BadValueError, printable
from slurm_adapter.node.agent.code_copy import MARKER
from slurm_adapter.remote.code import ignore
from slurm_adapter.remote.code.links import Links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slurm_adapter.remote.code.ignore import Ignore

_NAMED = 3  # of many paths, as many are named in a message
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_PERMISSIONS = 0o777  # a copy is given no set-user-id bit


@dataclass(frozen=True)
class Limits:
    """More than this is hardly code, but data that lie beside it."""

    size: int = 1 << 30
    """Bytes in all."""
    files: int = 100_000


LIMITS = Limits()


@dataclass(frozen=True)
class CodeEntry:
    """One file, directory or link of the code."""

    path: str
    """From the code directory; undecodable bytes as surrogates."""
    kind: Literal["file", "folder", "link"]
    mode: int = _PERMISSIONS
    """Permissions; a directory can always be written by its owner."""
    size: int = 0
    """Bytes of a file."""
    modified_ns: int = 0
    """When a file was changed last, nanoseconds since the epoch."""
    target: str = ""
    """What a link points to."""


@dataclass(frozen=True)
class Code:
    """The code of a job: what every host gets."""

    folder: str
    """The code directory, absolute."""
    entries: tuple[CodeEntry, ...]
    """Sorted by path, so that a directory comes before what is in it."""
    warnings: tuple[str, ...] = ()

    @cached_property
    def files(self) -> tuple[CodeEntry, ...]:
        """The files among the entries."""
        return tuple(entry for entry in self.entries if entry.kind == "file")

    @cached_property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    @property
    def told(self) -> str:
        """How much it is, for people."""
        count = len(self.files)
        return f"{count:,} file{'' if count == 1 else 's'}, {amount(self.size)}"

    def holds(self, path: str) -> bool:
        """Say whether a file of the code directory is in a copy, by its own name or through links.

        `path` is relative. What an absolute link that leads out names is taken to be there.
        """
        kinds = {entry.path: entry.kind for entry in self.entries}
        if kinds.get(path) == "file":
            return True
        steps = path.split("/")
        if not any(kinds.get("/".join(steps[:end])) == "link" for end in range(1, len(steps) + 1)):
            return False
        root = os.path.realpath(self.folder)
        real = os.path.relpath(os.path.realpath(f"{self.folder}/{path}"), root)
        return real.startswith("../") or kinds.get(real) == "file"

    def source(self, entry: CodeEntry) -> str:
        """Return where the contents of a file are read, links on the way followed."""
        return f"{self.folder}/{entry.path}"


def find_code(folder: str, leave_out: Iterable[str] = (), limits: Limits = LIMITS) -> Code:
    """Return what belongs to the code in a directory.

    Left out: what `.gitignore` files leave out (those of the repository above included) and
    `.slurm-adapter-ignore` files, which win over them; `.git` and `__pycache__`; copies that
    `--sync` made; sockets, pipes and devices, with a warning. Links are kept where they mean the
    same in a copy, else followed; see `links`. git itself is not asked.

    Args:
        folder: the code directory, absolute.
        leave_out: directories that are no code wherever they lie: the job's own folder.
        limits: how much is still code.

    Raises:
        BadValueError: something cannot be read, or there is more than `limits` allow.
    """
    walk = _Walk(folder, leave_out, limits)
    try:
        walk.all()
    except OSError as error:
        raise BadValueError(
            f"the code directory {folder} cannot be read: {error.filename}: {error.strerror}",
            "If it was being changed just now, try again.",
        ) from error
    if walk.unreadable:
        raise _unreadable(folder, walk.unreadable)
    found = sorted(walk.entries, key=lambda entry: entry.path)
    return Code(folder, tuple(found), tuple(walk.warnings))


@dataclass(frozen=True)
class _Place:
    """A directory that is to be looked through."""

    path: str
    """From the code directory, `/` at its end; empty for the code directory itself."""
    ignore: Ignore
    through: tuple[str, ...] = ()
    """The real directories in which links lie that were followed on the way here."""


class _Walk:
    def __init__(self, folder: str, leave_out: Iterable[str], limits: Limits) -> None:
        self.entries: list[CodeEntry] = []
        self.warnings: list[str] = []
        self.unreadable: list[str] = []
        self._folder = folder
        self._links = Links(folder)
        self._left_out = {_identity(os.stat(one)) for one in leave_out if os.path.isdir(one)}
        self._tally = _Tally(folder, limits)

    def all(self) -> None:
        """Look through the code directory and everything below."""
        if os.path.lexists(f"{self._folder}/{MARKER}"):
            raise BadValueError(
                f"{self._folder} is itself a copy that --sync made",
                "Give the code directory it was made from: --code DIR.",
            )
        # Not recursive: names of one letter nest deeper than Python's stack.
        places = [_Place("", ignore.from_above(Path(self._folder)))]
        while places:
            places += self._one(places.pop())

    def _one(self, place: _Place) -> list[_Place]:
        rules = place.ignore.within(f"{self._folder}/{place.path}", place.path)
        here = replace(place, ignore=rules)
        with os.scandir(f"{self._folder}/{place.path}") as entries:
            found = [self._look(f"{place.path}{entry.name}", entry, here) for entry in entries]
        return [inner for inner in found if inner is not None]

    def _look(self, path: str, entry: os.DirEntry[str], place: _Place) -> _Place | None:
        if entry.is_symlink():
            return self._link(path, entry, place)
        if entry.is_dir(follow_symlinks=False):
            return self._directory(path, entry.stat(follow_symlinks=False), place)
        if not place.ignore.covers(path):
            self._file(path, entry.stat(follow_symlinks=False))
        return None

    def _link(self, path: str, entry: os.DirEntry[str], place: _Place) -> _Place | None:
        if place.ignore.covers(path):
            return None
        verdict = self._links.judge(path, place.through)
        self.warnings += verdict.warnings
        if verdict.target is not None:
            self.entries.append(CodeEntry(path, "link", target=verdict.target))
            return None
        if entry.is_dir():
            through = (*place.through, self._links.home(path))
            return self._directory(path, entry.stat(), replace(place, through=through))
        self._file(path, entry.stat())
        return None

    def _directory(self, path: str, facts: os.stat_result, place: _Place) -> _Place | None:
        if place.ignore.covers(f"{path}/") or _identity(facts) in self._left_out:
            return None
        real = f"{self._folder}/{path}"
        if not os.access(real, os.R_OK | os.X_OK):
            self.unreadable.append(path)
            return None
        if os.path.lexists(f"{real}/{MARKER}"):
            return None
        mode = facts.st_mode & _PERMISSIONS | stat.S_IRWXU
        self.entries.append(CodeEntry(path, "folder", mode))
        return replace(place, path=f"{path}/")

    def _file(self, path: str, facts: os.stat_result) -> None:
        if not stat.S_ISREG(facts.st_mode):
            self.warnings.append(f"{printable(path)} is neither file nor directory: not copied")
        elif not os.access(f"{self._folder}/{path}", os.R_OK):
            self.unreadable.append(path)
        else:
            mode = facts.st_mode & _PERMISSIONS
            self.entries.append(CodeEntry(path, "file", mode, facts.st_size, facts.st_mtime_ns))
            self._tally.add(path, facts.st_size)


class _Tally:
    """How much there is so far, and where most of it lies."""

    def __init__(self, folder: str, limits: Limits) -> None:
        self._folder = folder
        self._limits = limits
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, path: str, size: int) -> None:
        """Count a file.

        Raises:
            BadValueError: that was one too many.
        """
        # Two levels: `data/imagenet` says more than `data`.
        place = "/".join(path.split("/")[:-1][:2])
        for counter, more in ((self._files, 1), (self._bytes, size)):
            counter[place] += more
            counter[""] += more if place else 0
        if self._bytes[""] > self._limits.size:
            raise self._too_much(self._bytes, amount)
        if self._files[""] > self._limits.files:
            raise self._too_much(self._files, "{:,} files".format)

    def _too_much(self, counter: Counter[str], show: Callable[[int], str]) -> BadValueError:
        named = [(place, count) for place, count in counter.most_common(_NAMED + 1) if place]
        most = ", ".join(f"{printable(place)}/ ({show(count)})" for place, count in named)
        example = named[0][0] if named else "data"
        return BadValueError(
            f"the code directory {self._folder} holds more than is code: {show(counter[''])} and"
            f" more{f', most of it in {most}' if most else ''}",
            f"Leave out what is no code: a line such as /{printable(example)}/ in"
            f" {self._folder}/{ignore.OWN}",
        )


def amount(size: int) -> str:
    """Return a number of bytes for people: `1.5 MiB`."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / (1 << 10 * power):.{1 if power else 0}f} {_UNITS[power]}"


def _identity(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino


def _unreadable(folder: str, paths: list[str]) -> BadValueError:
    named = ", ".join(printable(path) for path in sorted(paths)[:_NAMED])
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return BadValueError(
        f"the code directory {folder} holds what cannot be read: {named}{more}",
        f"Make it readable, or leave it out: a line for it in {folder}/{ignore.OWN}",
    )

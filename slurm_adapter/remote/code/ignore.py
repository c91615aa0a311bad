"""Which files are no code: what `.gitignore` files say, and an ignore file of ours above them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

OWN = ".slurm-adapter-ignore"
_GIT = ".gitignore"
# To git `a/**` is what is inside a; to pathspec a directory `a/` is that as well.
_INSIDE = re.compile(r"/\*\*(/?)\s*$")
_EVERYTHING = "."
_EVERY_FOLDER = ("/", "(?P<ps_d>/)")
_NEVER = frozenset({".git", "__pycache__"})


@dataclass(frozen=True)
class Ignore:
    """The ignore files that hold for one directory, the nearest first.

    As with git, the nearest file that has something to say about a path decides, in it the last
    pattern; and nothing comes back from a directory that is left out itself. Files of ours are
    asked first: what they say, leave out or (with `!`) keep, holds whatever git's say.
    """

    own: tuple[_Patterns, ...] = ()
    git: tuple[_Patterns, ...] = ()

    def within(self, folder: str, path: str) -> Ignore:
        """Return what holds in a directory: its own ignore files come first.

        Args:
            folder: the directory.
            path: the same as it stands in the code, `/` at its end; empty for the code itself.

        Raises:
            OSError: an ignore file that cannot be read.
        """
        own, git = (_read(folder, name, path) for name in (OWN, _GIT))
        # A repository within another one is not described by the outer one's files.
        outer = () if path and Path(folder, ".git").exists() else self.git
        return Ignore((*own, *self.own), (*git, *outer))

    def covers(self, path: str) -> bool:
        """Say whether a path of the code is left out; a directory's ends in `/`."""
        if path.rstrip("/").rpartition("/")[2] in _NEVER:
            return True
        for patterns in (*self.own, *self.git):
            verdict = patterns.verdict(path)
            if verdict is not None:
                return verdict
        return False


@dataclass(frozen=True)
class _Patterns:
    last_first: tuple[tuple[re.Pattern[str], bool], ...]
    """Each with whether it leaves out."""
    base: str
    """Where the file stands, from the code directory, `/` at its end; empty for the code's own."""
    above: str
    """Where the code directory stands from a file above it, `/` at its end."""

    def verdict(self, path: str) -> bool | None:
        """Return whether a path is left out; None: these patterns say nothing about it."""
        return self.about(self.above + path[len(self.base) :])

    def about(self, seen: str) -> bool | None:
        """Return the verdict on a path from where the file stands."""
        # No pattern holds a line break, and a regular expression's `.` and `$` overlook one.
        seen = seen.replace("\n", "\0")
        return next((out for regex, out in self.last_first if _is_meant(regex, seen)), None)


def from_above(folder: Path) -> Ignore:
    """Return git's ignore files above a code directory that lies in a repository."""
    chain = [folder, *folder.parents]
    root = next((one for one in chain if (one / ".git").exists()), folder)
    found: list[_Patterns] = []
    for one in chain[1 : chain.index(root) + 1]:
        found += _read(str(one), _GIT, "", f"{folder.relative_to(one)}/")
    # Who names a directory as code that the repository leaves out means what is in it.
    if any(one.about(one.above[: end + 1]) for one in found for end in _slashes(one.above)):
        return Ignore()
    return Ignore(git=tuple(found))


def _slashes(path: str) -> list[int]:
    return [place for place, character in enumerate(path) if character == "/"]


def _read(folder: str, name: str, base: str, above: str = "") -> list[_Patterns]:
    try:
        text = Path(folder, name).read_text(encoding="utf-8-sig", errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return []
    lines = [_INSIDE.sub(r"/**/*\1", line) for line in text.split("\n")]
    patterns = reversed(list(GitIgnoreSpec.from_lines(lines).patterns))
    known = [(one.regex, bool(one.include)) for one in patterns if one.regex is not None]
    return [_Patterns(tuple(known), base, above)]


def _is_meant(regex: re.Pattern[str], path: str) -> bool:
    """Say whether a pattern is about a path itself, and not about a directory above.

    What lies in a directory that is left out is never asked about; and one that a pattern keeps
    says nothing about what is in it. pathspec's expressions end where the path that is meant
    does, but for three short ones.
    """
    if regex.pattern in _EVERY_FOLDER:
        return path.endswith("/")
    return regex.pattern == _EVERYTHING or regex.fullmatch(path) is not None

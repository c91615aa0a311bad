"""Links in a code directory: which of them mean the same in a copy, and which are followed.

* One that leads to something in the code directory stays a link; where it names that by an
  absolute path, it becomes a relative one, so that it leads into the copy.
* A relative one that leads out (`utils -> ../common`) is followed: the copy holds what it leads
  to, for nothing else would make the code run.
* An absolute one that leads out (`data -> /datasets/x`) stays as it is: it names a place on the
  machine, which hosts have under the same name. To copy data sets is nobody's wish.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from slurm_adapter.errors import printable


@dataclass(frozen=True)
class Verdict:
    """What becomes of a link in the copy."""

    target: str | None
    """What it points to there; None: it is followed."""
    warnings: tuple[str, ...] = ()


class Links:
    """Judges the links of one code directory."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._root = os.path.realpath(folder)

    def judge(self, path: str, through: tuple[str, ...]) -> Verdict:
        """Return what becomes of a link.

        Args:
            path: where it lies, from the code directory.
            through: the real directories in which links lie that were followed on the way.
        """
        text = os.readlink(f"{self._folder}/{path}")  # a Path would rewrite `./x`
        parent = os.path.dirname(path)
        real = os.path.realpath(f"{self._folder}/{path}")
        if not text.startswith("/") and self._same_in_copy(parent, text):
            return Verdict(text)
        if _within(real, self._root):
            # From where the link's directory is in the copy, which need not be where it is here.
            inside = os.path.relpath(real, self._root)
            return Verdict(os.path.relpath(f"/{inside}", f"/{parent}"))
        if text.startswith("/"):
            return Verdict(text)
        if not os.path.exists(real):
            return Verdict(text, (f"{printable(path)} leads nowhere: {printable(text)}",))
        if any(_within(one, real) for one in (*through, self.home(path))):
            said = f"{printable(path)} leads to a directory that holds it, and is not followed"
            return Verdict(text, (said,))
        return Verdict(None)

    def home(self, path: str) -> str:
        """Return the real directory in which a link lies."""
        return os.path.realpath(f"{self._folder}/{os.path.dirname(path)}")

    def _same_in_copy(self, parent: str, text: str) -> bool:
        """Say whether a relative link leads to the same thing in a copy as it does here."""
        logical = os.path.normpath(os.path.join(parent, text))
        if logical == ".." or logical.startswith("../"):
            return False
        here = os.path.realpath(f"{self._folder}/{logical}")
        return here == os.path.realpath(f"{self._folder}/{parent}/{text}")


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")

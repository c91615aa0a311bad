"""A new copy of the code begins with what an earlier one beside it holds: the rest is sent."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress

from slurm_adapter.node.system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def earlier(folder: bytes) -> Iterator[bytes]:
    """Yield where earlier copies may lie, the newest first: `PLACE/STAMP/NAME` all of them."""
    parent, name = os.path.split(folder)
    place, own = os.path.split(parent)
    for stamp in sorted(os.listdir(place), reverse=True):
        if stamp != own:
            yield b"/".join((place, stamp, name))


def fill_from(
    source: bytes, folder: bytes, paths: Iterable[bytes], alive: Callable[[], None]
) -> None:
    """Copy files and directories, as far as that can be: what is not right then is sent anyway.

    Args:
        source: the earlier copy.
        folder: the new one, which is empty.
        paths: what a sync put into the earlier one, and so no job's own files.
        alive: called with each step.
    """
    for path in sorted(paths):  # a directory before what is in it
        alive()
        old, new = source + b"/" + path, folder + b"/" + path
        facts = files.facts_of(old)
        with suppress(OSError):
            if facts is None:
                continue
            if stat.S_ISDIR(facts.st_mode):
                os.mkdir(new, 0o700)
            elif stat.S_ISREG(facts.st_mode):
                shutil.copy2(old, new)

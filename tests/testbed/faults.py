"""What a test takes away from one node only: a folder's content, an interpreter.

Each is a mount in that node's mount namespace, undone when the block ends:
the other nodes and the machine never see it.
"""

import contextlib
import fnmatch
import itertools
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.cluster import SlurmCluster

_UNDER = "run/ssh/under"
_numbers = itertools.count()


@contextlib.contextmanager
def covered(cluster: "SlurmCluster", node: str, folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Show an empty folder, of the same owner and mode, in the place of `folder` on `node`.

    The value is where the test process finds it: what is written there is
    seen on that node alone.
    """
    place = cluster.root(node) / os.fspath(folder).lstrip("/")
    was = place.stat()
    owner = f"mode={was.st_mode & 0o7777:o},uid={was.st_uid},gid={was.st_gid}"
    with _mounted(cluster, node, "-t", "tmpfs", "-o", owner, "tmpfs", os.fspath(folder)):
        yield place


@contextlib.contextmanager
def hidden(cluster: "SlurmCluster", node: str, *patterns: str) -> Iterator[None]:
    """Make files of a folder vanish on `node`: `hidden(cluster, node, "/usr/bin/python3*")`.

    Wildcards stand in the last part of a path only. Nothing can be mounted
    over a name to make it absent: the folder is covered, and what remains in
    it are links to where the folder itself is mounted meanwhile.
    """
    with contextlib.ExitStack() as stack:
        for folder in sorted({str(PurePosixPath(pattern).parent) for pattern in patterns}):
            names = [p.name for p in map(PurePosixPath, patterns) if str(p.parent) == folder]
            under = f"{_UNDER}/{next(_numbers)}"
            (cluster.state / under).mkdir(parents=True)
            stack.enter_context(_mounted(cluster, node, "--bind", folder, f"/{under}"))
            place = stack.enter_context(covered(cluster, node, folder))
            for entry in (cluster.root(node) / under).iterdir():
                if not any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in names):
                    (place / entry.name).symlink_to(f"/{under}/{entry.name}")
        yield


@contextlib.contextmanager
def _mounted(cluster: "SlurmCluster", node: str, *words: str) -> Iterator[None]:
    """`mount WORDS... PLACE` on a node as root, for a while."""
    _as_root(cluster, node, "mount", "-n", *words)
    try:
        yield
    finally:
        # Lazily: a process of the test may still stand in it.
        _as_root(cluster, node, "umount", "-n", "--lazy", words[-1])


def _as_root(cluster: "SlurmCluster", node: str, *words: str) -> None:
    done = cluster.run(words, node=node, user="root", cwd="/")
    if done.returncode != 0:
        raise OSError(f"{node}: {' '.join(words)}: {done.stderr.strip()}")

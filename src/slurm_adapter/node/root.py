"""What a rank sees of the file system: the machine's own, and ModelArts' directories in it.

Everything here happens in a mount namespace of its own; the machine's files stay untouched.

A directory that lacks a name can be given it without rights on it: a file system in memory takes
its place, in which the old entries reappear. For `/` those are mounts, for `/etc` and `/home`
links to the old directory, which lies below `HIDDEN`: cheap for ten thousand homes, alive for
files that the machine replaces and for homes that are mounted on demand. The homes that the job
itself names are mounted, so that their paths stay their real ones.
"""

from __future__ import annotations

import os

from slurm_adapter.node import kernel
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN = "/.slurm-adapter"
"""Where the machine's own /etc and /home lie inside the view."""
# Two directories that every machine has, each covered for a moment while the root is built.
_SCRATCH, _ASIDE = "/tmp", "/proc"  # noqa: S108
_CACHES = ("/run/nscd/socket", "/var/run/nscd/socket")


@record
class Files:
    """What is put into a view, in the order in which it is mounted."""

    folders: tuple[str, ...]
    """Directories that must be there, absolute; those that the machine has stay as they are."""
    texts: Mapping[str, str]
    """Files below /etc by path."""
    binds: tuple[tuple[str, str], ...]
    """(real path, path in the view); both must be there."""
    homes: frozenset[str] = frozenset()
    """Entries of /home that keep their real paths."""


def ask_no_cache() -> None:
    """Hide the socket of a name service cache: nscd answers from the machine's own hosts file."""
    for socket in _CACHES:
        if os.path.exists(socket):  # noqa: PTH110 - pathlib costs start-up time here and below
            kernel.bind(os.devnull, socket)


def cover_files(texts: Mapping[str, str]) -> None:
    """Put other contents into files that are there, without any new directory."""
    kernel.mount_tmpfs(_SCRATCH)
    for number, (path, text) in enumerate(texts.items()):
        _write(f"{_SCRATCH}/{number}", text)
        kernel.bind(f"{_SCRATCH}/{number}", path)
    kernel.unmount(_SCRATCH)


def build_root(files: Files) -> None:
    """Put a root directory in place that has all of `files`, and enter it."""
    kernel.bind(_SCRATCH, _ASIDE)
    kernel.mount_tmpfs(_SCRATCH)
    os.mkdir(f"{_SCRATCH}{_SCRATCH}")  # noqa: PTH102
    kernel.move(_ASIDE, f"{_SCRATCH}{_SCRATCH}")
    covered = {"etc", *(_top(folder) for folder in files.folders if not _is_there(folder))}
    os.mkdir(f"{_SCRATCH}{HIDDEN}")  # noqa: PTH102
    for entry in list(os.scandir("/")):
        if entry.name in covered:
            continue
        # Links that climb out of a hidden directory (../usr/share) find their way.
        os.symlink(f"/{entry.name}", f"{_SCRATCH}{HIDDEN}/{entry.name}")  # noqa: PTH211
        if entry.path != _SCRATCH:
            _show(entry, f"{_SCRATCH}{entry.path}")
    for name in sorted(covered):
        given = {
            path.split("/")[2]
            for path in (*files.folders, *files.texts)
            if _top(path) == name and path.count("/") > 1
        }
        _cover(f"/{name}", given, files.homes if name == "home" else frozenset())
    for folder in files.folders:
        os.makedirs(f"{_SCRATCH}{folder}", mode=0o755, exist_ok=True)  # noqa: PTH103
    for path, text in files.texts.items():
        _write(f"{_SCRATCH}{path}", text)
    os.chdir(_SCRATCH)
    kernel.move(_SCRATCH, "/")
    os.chroot(".")
    os.chdir("/")
    for source, target in files.binds:
        kernel.bind(source, target)
    kernel.seal("/")


def _top(path: str) -> str:
    return path.split("/")[1]


def _is_there(folder: str) -> bool:
    return os.path.isdir(folder)  # noqa: PTH112


def _show(entry: os.DirEntry[str], place: str) -> None:
    """Make an entry of the machine's root appear at `place`."""
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), place)  # noqa: PTH115, PTH211
        return
    if entry.is_dir(follow_symlinks=False):
        os.mkdir(place)  # noqa: PTH102
    else:
        _write(place, "")
    kernel.bind(entry.path, place)


def _cover(folder: str, given: Iterable[str], kept: Iterable[str]) -> None:
    """Make a directory anew: with links to what it had, without the names that are `given`."""
    os.mkdir(f"{_SCRATCH}{folder}")  # noqa: PTH102
    if not _is_there(folder):
        return
    os.mkdir(f"{_SCRATCH}{HIDDEN}{folder}")  # noqa: PTH102
    kernel.bind(folder, f"{_SCRATCH}{HIDDEN}{folder}")
    left = {name for name in kept if _is_there(f"{folder}/{name}")}
    for entry in _entries(folder):
        place = f"{_SCRATCH}{entry.path}"
        if entry.name in given:
            continue
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)  # noqa: PTH115, PTH211
            left.discard(entry.name)
        elif entry.name not in left:
            os.symlink(f"{HIDDEN}{entry.path}", place)  # noqa: PTH211
    for name in left.difference(given):
        os.mkdir(f"{_SCRATCH}{folder}/{name}")  # noqa: PTH102
        kernel.bind(f"{folder}/{name}", f"{_SCRATCH}{folder}/{name}")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except PermissionError:  # some sites let nobody list /home
        return []


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        file.write(text)

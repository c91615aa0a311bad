"""What a rank sees of the file system: the machine's own, and ModelArts' directories in it.

Everything here happens in a mount namespace of its own; the machine's files stay untouched.

A directory that lacks a name can be given it without rights on it: a file system in memory takes
its place, in which the old entries reappear. For `/` those are mounts; for `/etc` and `/home` they
are links to the old directory, which lies in `HIDDEN` below it: cheap for ten thousand homes, alive
for files that the machine replaces and for homes that are mounted on demand. The homes that the job
itself names are mounted, so that their paths stay their real ones.
"""

from __future__ import annotations

import os

from slurm_adapter.node.system import calls
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN = ".slurm-adapter"
"""Where the old directory lies in one that has been covered."""
# Two directories that every machine has, real ones, each covered for a moment.
_SCRATCH, _ASIDE = "/dev", "/proc"
# Where nscd, which answers from the machine's own hosts file, has its socket.
_CACHES = ("/run/nscd", "/var/run/nscd")


@record
class ViewFiles:
    """What is put into a view."""

    texts: Mapping[str, str]
    """Files below /etc by path."""
    folders: tuple[str, ...] = ()
    """Directories that must be there, at most two levels deep; those that are stay as they are."""
    binds: tuple[tuple[str, str], ...] = ()
    """(real path, path in the view), in the order in which they are mounted; both must be there,
    the second only where its directory is not one of `fresh`."""
    fresh: tuple[str, ...] = ()
    """Directories that hold nothing but what `binds` shows there."""
    homes: frozenset[str] = frozenset()
    """Entries of /home that keep their real paths."""


def put_in_place(files: ViewFiles) -> None:
    """Make a view of the file system in this mount namespace, and enter it."""
    for cache in _CACHES:
        if _is_there(cache):
            calls.mount_tmpfs(cache)
    # Before anything covers them: a real path may be one of the view's, too.
    sources = [os.open(real, os.O_PATH | os.O_CLOEXEC) for real, _ in files.binds]
    lacking = [folder for folder in files.folders if not _is_there(folder)]
    covered = {_top(path) for path in (*files.texts, *lacking)}
    new = {top for top in covered if not _is_there(top)}
    given = {"/".join(path.split("/")[:3]) for path in (*files.texts, *lacking)}
    for top in sorted(covered - new):
        _cover(top, given, files.homes if top == "/home" else ())
    if new:
        _build_root(new)
    for folder in lacking:
        os.makedirs(folder, mode=0o755, exist_ok=True)
    for path, text in files.texts.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, text)
    _bind_all(files, sources)
    for top in sorted({*covered, *({"/"} if new else ())}):
        if top not in new:
            calls.seal(top)


def as_seen(text: str) -> str:
    """Return the words of an error with paths as they would have been in the end."""
    return text.replace(f"{_SCRATCH}/", "/")


def _bind_all(files: ViewFiles, sources: list[int]) -> None:
    made: set[str] = set()
    for source, (_, target) in zip(sources, files.binds, strict=True):
        folder = os.path.dirname(target)
        if folder in files.fresh:
            if folder not in made:
                calls.mount_tmpfs(folder)
                made.add(folder)
            _make_place(target, is_folder=os.path.isdir(f"/proc/self/fd/{source}"))
        calls.bind(f"/proc/self/fd/{source}", target)
        os.close(source)
    for folder in made:
        calls.seal(folder)


def _build_root(new: set[str]) -> None:
    """Put a root directory in place that has the machine's entries and new ones, and enter it."""
    entries = list(os.scandir("/"))
    calls.bind(_SCRATCH, _ASIDE)
    calls.mount_tmpfs(_SCRATCH)
    os.mkdir(f"{_SCRATCH}{_SCRATCH}")
    calls.move(_ASIDE, f"{_SCRATCH}{_SCRATCH}")
    for entry in entries:
        place = f"{_SCRATCH}{entry.path}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif entry.path != _SCRATCH:
            _make_place(place, is_folder=entry.is_dir())
            calls.bind(entry.path, place)
    for folder in new:
        os.mkdir(f"{_SCRATCH}{folder}")
    os.chdir(_SCRATCH)
    # Not pivot_root, which a machine whose root is its initial RAM disk does not allow.
    calls.move(_SCRATCH, "/")
    os.chroot(".")
    os.chdir("/")


def _cover(folder: str, given: set[str], kept: Iterable[str]) -> None:
    """Make a directory anew: what it had, without the paths that are `given`."""
    entries = _entries(folder)
    old = f"{folder}/{_free_name(folder)}"
    calls.bind(folder, _ASIDE)
    calls.mount_tmpfs(folder)
    os.makedirs(f"{old}{folder}")
    calls.move(_ASIDE, f"{old}{folder}")
    for name in os.listdir("/"):  # so that links of old entries to ../../usr hold
        if f"/{name}" != folder:
            os.symlink(f"/{name}", f"{old}/{name}")
    homes = {name for name in kept if _is_there(f"{old}{folder}/{name}")}
    for entry in entries:
        if entry.path in given:
            continue
        if entry.is_symlink():
            homes.discard(entry.name)
            os.symlink(os.readlink(f"{old}{entry.path}"), entry.path)
        elif entry.name not in homes:
            os.symlink(f"{old}{entry.path}", entry.path)
    for name in homes:
        if f"{folder}/{name}" not in given:
            os.mkdir(f"{folder}/{name}")
            calls.bind(f"{old}{folder}/{name}", f"{folder}/{name}")


def _free_name(folder: str) -> str:
    """Return a name for the old directory: a view may stand in a view."""
    name, number = HIDDEN, 1
    while os.path.lexists(f"{folder}/{name}"):
        number += 1
        name = f"{HIDDEN}-{number}"
    return name


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except PermissionError:  # some sites let nobody list /home
        return []


def _make_place(path: str, *, is_folder: bool) -> None:
    if is_folder:
        os.mkdir(path)
    else:
        _write(path, "")


def _top(path: str) -> str:
    return "/" + path.split("/")[1]


def _is_there(folder: str) -> bool:
    return os.path.isdir(folder)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)

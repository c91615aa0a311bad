"""A copy of a job's code on this host: a directory of ours, with a list of what we put there.

Only what is in the list is ever changed or taken away: what jobs leave in the copy stays, and a
directory without a list is never touched. An interrupted sync leaves a list that covers what it
did, so that the next one makes it right.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.node.agent import basis, copy_lock
from slurm_adapter.node.agent.copy_lock import STATE
from slurm_adapter.node.protocol.copy_messages import Differences, unpack_entries
from slurm_adapter.node.system import files
from slurm_adapter.node.system.files import as_bytes, as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from slurm_adapter.node.protocol.copy_messages import PackedEntry

MARKER = ".slurm-adapter-copy"
"""In the copy: says what it is, and lists what is in it."""

_ABOUT = b"A copy made by slurm-adapter ssh --sync, which changes it with the next job.\n"
_LOCK_S = 30
_OLD_S = 24 * 3600


class Wanted:
    """One file, directory or link of the code, as the head sends it."""

    def __init__(self, entry: PackedEntry) -> None:
        self.kind, self.mode, self.size, self.modified_ns, self.path, self.target = entry


class CodeCopy:
    """The copy in one directory. Methods raise `OSError` or `ClusterUnfitError`."""

    def __init__(self, folder: bytes, token: str, alive: Callable[[], None]) -> None:
        """Take a name for the copy; `alive` is called with each step of what may take long."""
        self._folder = folder
        self._state = os.path.dirname(self._folder) + b"/" + as_bytes(STATE)
        self._marker = self._at(as_bytes(MARKER))
        self._sign = self._in_state(f"seen-{token}")
        self._part = self._in_state(f"part-{token}")
        self._token = token
        self._lock = self._use = -1
        self._alive = alive
        self._wanted: list[Wanted] = []
        self._known: set[bytes] = set()
        self._wrong_modes: list[Wanted] = []

    @property
    def version(self) -> str:
        """What stands for the copy as it is now: it differs after every change."""
        return copy_lock.version(self._use)

    def begin(self) -> None:
        """Make what the copy lies in, and leave a sign for hosts that share it."""
        os.makedirs(self._state, exist_ok=True)
        files.check_ours(self._state)
        for name in os.listdir(self._state):
            facts = files.facts_of(self._state + b"/" + name)
            if facts is None or name == b"lock" or name.startswith(copy_lock.PREFIX):
                continue
            if time.time() - facts.st_mtime > _OLD_S:  # of an earlier sync that was killed
                files.unlink(self._state + b"/" + name)
        os.close(os.open(self._sign, os.O_WRONLY | os.O_CREAT, 0o600))
        self._use = copy_lock.open_use(self._folder)

    def look(self, tokens: Iterable[str]) -> list[int]:
        """Return which hosts' signs stand here: all of them have this very directory."""
        signs = [self._in_state(f"seen-{token}") for token in tokens]
        return [count for count, sign in enumerate(signs) if os.path.exists(sign)]

    def claim(self) -> None:
        """Take the directory for this sync alone; it is ours, or empty, or not there yet."""
        self._take_lock()
        try:
            os.mkdir(self._folder)
        except FileExistsError:
            files.check_ours(self._folder)
        try:
            about, *paths = files.read(self._marker).split(b"\0")
        except FileNotFoundError:
            if os.listdir(self._folder):
                raise ClusterUnfitError(
                    f"{as_text(self._folder)} holds files that no --sync put there"
                ) from None
            self._write_list()
            return
        if about != _ABOUT:
            raise ClusterUnfitError(f"{as_text(self._marker)} was not written by --sync")
        self._known = set(paths)

    def begin_with_basis(self) -> None:
        """Begin a new copy, in `PLACE/STAMP/NAME`, with the newest earlier one there."""
        if self._known:
            return
        for source in basis.earlier(self._folder):
            with suppress(OSError):
                about, *paths = files.read(source + b"/" + as_bytes(MARKER)).split(b"\0")
                if about != _ABOUT or not paths:
                    continue
                self._known = set(paths)
                self._write_list()  # before anything is made, as in `arrange`
                basis.fill_from(source, self._folder, paths, self._alive)
                return

    def compare(self, listing: bytes) -> Differences:
        """Return what is not as it is to be.

        Files are missing; or an older version is there, for the size differs; or one that may be
        the same, for only the time differs: then with its digest.

        Args:
            listing: all that is to be here, packed, a directory before what is in it.
        """
        self._wanted = list(map(Wanted, unpack_entries(listing)))
        missing: list[int] = []
        older: list[int] = []
        doubtful: list[tuple[int, str]] = []
        others = 0
        gone: set[bytes] = set()
        self._wrong_modes = []
        for count, wanted in enumerate(self._wanted):
            self._alive()
            path = self._at(wanted.path)
            # Behind a link that stands in a directory's place lies something else.
            hidden = os.path.dirname(wanted.path) in gone
            facts = None if hidden else files.facts_of(path)
            if wanted.kind == "folder":
                if facts is None or not stat.S_ISDIR(facts.st_mode):
                    gone.add(wanted.path)
                    others += 1
            elif wanted.kind == "link":
                others += hidden or not self._is_link(wanted)
            elif facts is None or not stat.S_ISREG(facts.st_mode):
                missing.append(count)
            elif facts.st_size != wanted.size:
                older.append(count)
            elif facts.st_mtime_ns != wanted.modified_ns:
                doubtful.append((count, files.digest_of(path)))
            elif stat.S_IMODE(facts.st_mode) != wanted.mode:
                self._wrong_modes.append(wanted)
        return Differences(tuple(missing), tuple(older), tuple(doubtful), others)

    def arrange(self, *, changed: bool) -> int:
        """Take away what is no longer wanted, make directories and links; return how many went.

        Args:
            changed: whether anything of the code was found to be missing or another. Where nothing
                is to be done a job may be running from the copy.
        """
        obsolete = self._known - {wanted.path for wanted in self._wanted}
        if changed or obsolete or self._wrong_modes:
            copy_lock.take_alone(self._use, as_text(self._folder), self._token)
        # Before anything is made: the next sync must know it for ours if this one is interrupted.
        self._known.update(wanted.path for wanted in self._wanted)
        self._write_list()
        removed = sum(map(self._remove, sorted(obsolete, reverse=True)))
        for wanted in self._wanted:
            self._alive()
            path = self._at(wanted.path)
            if wanted.kind == "folder":
                self._make_folder(path)
                continue
            self._clear(wanted, path)
            if wanted.kind == "link" and not self._is_link(wanted):
                files.unlink(self._part)
                os.symlink(wanted.target, self._part)
                os.replace(self._part, path)
        return removed

    def fill(self, numbers: Sequence[int], pieces: Iterator[bytes]) -> None:
        """Write files, each at one stroke; an empty piece is a file's end."""
        for count in numbers:
            self._alive()
            wanted = self._wanted[count]
            path = self._at(wanted.path)
            try:
                files.unlink(self._part)
                with open(self._part, "xb") as file:
                    while piece := next(pieces):
                        file.write(piece)
                files.settle(self._part, wanted.mode, wanted.modified_ns)
                os.replace(self._part, path)
            except OSError as error:
                raise ClusterUnfitError(f"{as_text(path)}: {error.strerror}") from error

    def finish(self, same: Iterable[int]) -> list[str]:
        """Give the right times and permissions; return links that lead nowhere on this host.

        Args:
            same: the numbers of files that turned out to be right but for the time.
        """
        for count in same:
            wanted = self._wanted[count]
            files.settle(self._at(wanted.path), wanted.mode, wanted.modified_ns)
        for wanted in self._wanted:
            if wanted.kind == "folder":
                files.settle(self._at(wanted.path), wanted.mode)
        for wanted in self._wrong_modes:
            files.settle(self._at(wanted.path), wanted.mode)
        self._known = {wanted.path for wanted in self._wanted}
        self._write_list()
        copy_lock.give_back(self._use)
        absolute = [wanted for wanted in self._wanted if wanted.target.startswith(b"/")]
        return [as_text(one.path) for one in absolute if not os.path.exists(one.target)]

    def close(self) -> None:
        """Leave nothing behind but the copy, which others may take now."""
        for path in (self._sign, self._part):
            with suppress(OSError):
                files.unlink(path)
        for descriptor in (self._use, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._use = -1

    def _take_lock(self) -> None:
        self._lock = os.open(self._in_state("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _LOCK_S
        while not copy_lock.try_lock(self._lock, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise ClusterUnfitError(f"another --sync into {as_text(self._folder)} goes on")
            time.sleep(0.1)
            self._alive()

    def _remove(self, path: bytes) -> bool:
        self._alive()
        parts = path.split(b"/")
        parents = [b"/".join(parts[:count]) for count in range(1, len(parts))]
        # Where a job put a link in a directory's place, what lies behind it is not ours.
        if not all(files.is_folder(self._at(parent)) for parent in parents):
            return False
        try:
            files.remove(self._at(path))
        except OSError as error:
            # Gone already, or a directory in which a job left something.
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                return False
            raise
        return True

    def _make_folder(self, path: bytes) -> None:
        if not files.is_folder(path):
            files.unlink(path)
            os.mkdir(path)

    def _clear(self, wanted: Wanted, path: bytes) -> None:
        """Take an empty directory out of the way of a file or link."""
        if not files.is_folder(path):
            return
        try:
            files.remove(path)
        except OSError as error:
            raise ClusterUnfitError(
                f"{as_text(path)} holds files that a job made, and is a {wanted.kind} in the code"
            ) from error

    def _is_link(self, wanted: Wanted) -> bool:
        try:
            return os.readlink(self._at(wanted.path)) == wanted.target
        except OSError:
            return False

    def _write_list(self) -> None:
        files.unlink(self._part)
        with open(self._part, "xb") as file:
            file.write(b"\0".join([_ABOUT, *sorted(self._known)]))
        os.replace(self._part, self._marker)

    def _at(self, path: bytes) -> bytes:
        return self._folder + b"/" + path

    def _in_state(self, name: str) -> bytes:
        return self._state + b"/" + as_bytes(name)

"""The view: a rank's own hosts file, host name and directories, without root and container.

A child process of this one enters namespaces of its own and builds everything in them; only when
all of it is there does this process join them. So whatever a kernel or a site forbids, and at
whatever step, nothing of this process has changed then.
"""

from __future__ import annotations

import os

from slurm_adapter.node.system import calls
from slurm_adapter.node.system.namespaces import RefusedError, enter_own
from slurm_adapter.node.view import mounts
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_DONE = b"done"
_MOST_BYTES = 4096
# (what /proc calls it, the flag); the user namespace first: rights in the others come with it.
_KINDS = (
    ("user", calls.CLONE_NEWUSER),
    ("mnt", calls.CLONE_NEWNS),
    ("uts", calls.CLONE_NEWUTS),
)


@record
class View:
    """What one node's rank is to find around it."""

    files: mounts.ViewFiles
    host_name: str = ""
    """Empty: the machine's own."""


class ViewNamespaces:
    """Namespaces that are ready to be entered; they end with the last process in them."""

    def __init__(self, namespaces: tuple[tuple[int, int], ...]) -> None:
        self._namespaces = namespaces

    def enter(self) -> None:
        """Take this process over; its working directory is `/` afterwards."""
        for descriptor, kind in self._namespaces:
            calls.join(descriptor, kind)

    def close(self) -> None:
        """Let go: without a process in them the namespaces are gone."""
        for descriptor, _ in self._namespaces:
            os.close(descriptor)
        self._namespaces = ()


def prepare(view: View) -> ViewNamespaces:
    """Build a view in namespaces of its own, as this user with this user's groups.

    Root needs no user namespace for it, unless it is the root of a container that may do little.

    Raises:
        RefusedError: where that is not allowed here.
    """
    if os.geteuid() == 0:
        try:
            return _prepare(view, _KINDS[1:])
        except RefusedError as refused:
            if refused.call != "unshare":
                raise
    return _prepare(view, _KINDS)


def _prepare(view: View, kinds: tuple[tuple[str, int], ...]) -> ViewNamespaces:
    try:
        return _built(view, kinds)
    except OSError as error:  # no process, no descriptor left
        raise RefusedError(error.errno or 1, "a process of its own") from error


def _built(view: View, kinds: tuple[tuple[str, int], ...]) -> ViewNamespaces:
    answers, tell = os.pipe()
    wait, go_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go_on)
        _build_and_wait(view, sum(flag for _, flag in kinds), tell, wait)
    os.close(tell)
    os.close(wait)
    try:
        answer = os.read(answers, _MOST_BYTES)
        if answer != _DONE:
            number, _, call = answer.decode(errors="replace").partition(" ")
            raise RefusedError(int(number or 1), call or "a process of its own")
        namespaces = ViewNamespaces(tuple((_open(child, name), flag) for name, flag in kinds))
    finally:
        os.close(answers)
        os.close(go_on)
        _reap(child)
    _try_to_enter(namespaces)
    return namespaces


def _try_to_enter(namespaces: ViewNamespaces) -> None:
    """Enter with a child first: there is no way back from half a view.

    Raises:
        RefusedError: where namespaces may be made here, but not joined.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            namespaces.enter()
            status = 0
        except OSError as error:
            status = min(error.errno or 1, 255)
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(_reap(child))
    if status != 0:
        namespaces.close()
        raise RefusedError(max(status, 1), "setns")


def _reap(child: int) -> int:
    try:
        return os.waitpid(child, 0)[1]
    except ChildProcessError:  # somebody above ignores SIGCHLD: the kernel has done it
        return 0


def _open(pid: int, name: str) -> int:
    return os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _build_and_wait(view: View, flags: int, tell: int, wait: int) -> NoReturn:
    """In the child: build, report, and keep the namespaces until they have been opened."""
    try:
        _build(view, flags)
        answer = _DONE
    except OSError as error:
        where = mounts.as_seen(str(error.filename or error.strerror))
        answer = f"{error.errno or 1} {where}".encode(errors="replace")
    except BaseException as error:  # noqa: BLE001 - two processes must never go on from here
        answer = f"1 {error!r}".encode()
    try:
        os.write(tell, answer[:_MOST_BYTES])
        os.read(wait, 1)  # until the other end is closed
    finally:
        os._exit(0)


def _build(view: View, flags: int) -> None:
    os.umask(0o022)  # of this process of a moment, not of the rank
    enter_own(flags)
    calls.follow_machine()
    if view.host_name:
        calls.set_host_name(view.host_name)
    mounts.put_in_place(view.files)

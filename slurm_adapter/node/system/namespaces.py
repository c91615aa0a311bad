"""Namespaces of this process's own, as its own user: root needs no user namespace for them."""

from __future__ import annotations

import os

from slurm_adapter.node.system import calls


class RefusedError(Exception):
    """The kernel or the site does not allow it; nothing was changed.

    Args:
        number: error number, 0 where no system call was refused.
        call: the system call, and what it was for.
    """

    def __init__(self, number: int, call: str) -> None:
        super().__init__(f"{call}: {os.strerror(number)}" if number else call)
        self.number = number
        self.call = call


def enter_own(flags: int) -> None:
    """Give this process namespaces of its own; with a user namespace it keeps its user and group.

    Raises:
        OSError: where that is not allowed; what was done until then stays.
    """
    if not flags & calls.CLONE_NEWUSER:
        calls.unshare(flags)
        return
    _raise_limits()
    uid, gid = os.geteuid(), os.getegid()
    calls.unshare(flags)
    # Without this an ordinary user may not map a group (user_namespaces(7)); the groups
    # themselves stay as they are.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _raise_limits() -> None:
    """Take the soft limits of this process up to the hard ones.

    Linux 5.14 and later hold a user namespace to the soft limits of the process that made it
    (of processes and threads, say), even where a rank raises its own later.
    """
    import resource  # only this process of a moment needs it

    for name in ("NPROC", "MEMLOCK", "SIGPENDING", "MSGQUEUE"):
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            hard = resource.getrlimit(number)[1]
            resource.setrlimit(number, (hard, hard))


def _write(path: str, text: str) -> None:
    with open(path, "wb") as file:  # pathlib costs start-up time
        file.write(text.encode())

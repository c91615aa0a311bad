"""The system calls that ranks and views take. Python's own library has some of them from 3.12 on.

Each raises an `OSError` that names the call and what it was for (`filename`).
"""

from __future__ import annotations

import ctypes
import os

# linux/sched.h
CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000

# linux/mount.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC = 0x20, 0x1000, 0x2000, 0x4000
MS_SLAVE = 0x8_0000

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


_LIBC = ctypes.CDLL(None, use_errno=True)  # None: what this program is linked with
_LIBC.mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)
_LIBC.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_LIBC.sethostname.argtypes = (ctypes.c_char_p, ctypes.c_size_t)


def unshare(flags: int) -> None:
    """Give this process namespaces of its own."""
    _check(_LIBC.unshare(flags), "unshare")


def join(namespace: int, kind: int) -> None:
    """Enter the namespace behind a descriptor of `/proc/PID/ns/...`."""
    _check(_LIBC.setns(namespace, kind), "setns")


def die_with_parent(signal: int) -> None:
    """Have this process sent a signal when its parent ends."""
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl")


def become_subreaper() -> None:
    """Make orphans among this process's descendants its own children."""
    _check(_LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def set_host_name(name: str) -> None:
    """Change the host name in this process's UTS namespace."""
    text = os.fsencode(name)
    _check(_LIBC.sethostname(text, len(text)), "sethostname")


def mount_tmpfs(target: str) -> None:
    """Mount an empty file system that lives in memory; programs in it gain nothing."""
    _mount("slurm-adapter", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")


def mount_proc(target: str) -> None:
    """Mount what shows the processes of this PID namespace."""
    _mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def bind(source: str, target: str) -> None:
    """Show `source`, with everything mounted below it, at `target` too."""
    _mount(source, target, None, MS_BIND | MS_REC, None)


def move(source: str, target: str) -> None:
    """Move a mount, with everything mounted below it, to another place."""
    _mount(source, target, None, MS_MOVE, None)


def seal(target: str) -> None:
    """Make a file system that `mount_tmpfs` mounted read-only; mounts below it stay writable."""
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV
    _mount(None, target, None, flags, None)


def follow_machine() -> None:
    """Let mounts that the machine makes later appear here too (automounts), and none of ours there.

    A mount namespace of a user namespace begins that way; root's does not.
    """
    _mount(None, "/", None, MS_REC | MS_SLAVE, None)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None
) -> None:
    result = _LIBC.mount(
        None if source is None else os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        flags,
        None if options is None else options.encode(),
    )
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)

"""The system calls that a view is made of. Python's own library has some of them from 3.12 on.

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
_MNT_DETACH = 0x2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)


def unshare(flags: int) -> None:
    """Give this process namespaces of its own."""
    _check(_libc.unshare(flags), "unshare")


def join(namespace: int, kind: int) -> None:
    """Enter the namespace behind a descriptor of `/proc/PID/ns/...`."""
    _check(_libc.setns(namespace, kind), "setns")


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


def unmount(target: str) -> None:
    """Take a mount away; what is still used of it lives on unseen."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), f"umount {target}")


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None
) -> None:
    result = _libc.mount(
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

"""The few system calls that Python's library lacks before 3.12, with named errors.

Nothing here knows about Slurm.
"""

import ctypes
import os

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x4_0000

_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)
_libc.prctl.argtypes = (ctypes.c_int,) + (ctypes.c_ulong,) * 4


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give the caller new namespaces; a new PID namespace holds only later children."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(pidfd: int, flags: int) -> None:
    """Move the calling thread into namespaces of the process behind `pidfd` (Linux 5.8)."""
    _check(_libc.setns(pidfd, flags), f"setns({flags:#x})")


def die_with_parent(signal_number: int) -> None:
    """Ask for a signal when the thread that forked this process ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def mount(
    source: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    *,
    kind: str | None = None,
    flags: int = 0,
    options: str | None = None,
) -> None:
    """Mount something; `target` is followed when it is a symbolic link."""
    result = _libc.mount(
        None if source is None else os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        flags,
        None if options is None else options.encode(),
    )
    _check(result, f"mount {source or kind or 'propagation'} on {os.fspath(target)}")


def bind(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Show `source`, with everything mounted below it, at `target` too."""
    mount(source, target, flags=MS_BIND | MS_REC)

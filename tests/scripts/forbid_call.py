#!/usr/bin/env python3
"""Run a command under a seccomp filter that refuses one system call, as containers have them.

The call's name is the first argument: `unshare` or `setns`.
"""

import ctypes
import errno
import os
import struct
import sys

NUMBERS = {
    "x86_64": {"unshare": 272, "setns": 308},
    "aarch64": {"unshare": 97, "setns": 268},
}
# linux/prctl.h, linux/seccomp.h, linux/bpf_common.h
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF_0000, 0x5_0000 | errno.EPERM

PROGRAM = (
    (LOAD_WORD, 0, 0, 0),  # the number of the system call
    (JUMP_IF_EQUAL, 0, 1, NUMBERS[os.uname().machine][sys.argv[1]]),
    (RETURN, 0, 0, REFUSE),
    (RETURN, 0, 0, ALLOW),
)


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


code = b"".join(struct.pack("HBBI", *instruction) for instruction in PROGRAM)
libc = ctypes.CDLL(None)
made = Filter(len(PROGRAM), code)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
    PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(made), 0, 0
):
    sys.exit("no filter can be set")
os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606

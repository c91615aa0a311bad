"""Start a process inside the cluster, as a direct child of the caller.

There is no `nsenter` in between: signals reach the program itself, its exit
status is the Popen's own, and its arguments pass through no shell.
"""

import os
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from typing import IO, Any

from testbed import kernel
from testbed.child import Child
from testbed.names import Account

_PLACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWNET

Stream = int | IO[Any] | None


def login_environment(account: Account, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a fresh login would find, nothing of the caller's, plus `extra`."""
    return {
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        **(extra or {}),
    }


def spawn(
    holder: int,
    argv: Sequence[str | os.PathLike[str]],
    *,
    account: Account,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    new_session: bool = True,
) -> Child[str]:
    """Start `argv` in the namespaces of the process behind the pidfd `holder`.

    A PID namespace takes effect on children only: this thread borrows the
    cluster's for the length of one fork, and the child joins the others
    itself, where it is alone and may.
    """

    def settle() -> None:
        kernel.setns(holder, _PLACES)
        os.umask(0o022)
        os.setgroups([account.gid, *account.groups])
        os.setgid(account.gid)
        os.setuid(account.uid)
        os.chdir(cwd)

    own = os.pidfd_open(os.getpid())
    try:
        kernel.setns(holder, kernel.CLONE_NEWPID)
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads; `settle` takes no lock of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            return Child(
                argv,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                encoding="utf-8",
                errors="surrogateescape",
                start_new_session=new_session,
                preexec_fn=settle,
            )
    except subprocess.SubprocessError as error:
        # Popen tells only that `settle` failed; of its steps, chdir is the one that can.
        raise OSError(f"cannot enter the cluster at {os.fspath(cwd)} to run {argv[0]}") from error
    finally:
        kernel.setns(own, kernel.CLONE_NEWPID)
        os.close(own)

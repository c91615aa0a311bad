"""Why a node allows no view, and who could change that: words for a refusal."""

from __future__ import annotations

import errno
import sys

from slurm_adapter.paths import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.node.system.namespaces import RefusedError

_FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOSPC)
# (switch, its value, why it forbids namespaces, what an administrator types)
_SWITCHES = (
    *(
        (f"user.max_{kind}_namespaces", "0", "{} is 0", "sysctl -w {}=15000")
        for kind in ("user", "mnt", "uts")
    ),
    ("kernel.unprivileged_userns_clone", "0", "{} is 0", "sysctl -w {}=1"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor restricts user namespaces ({} is 1)",
        f"an AppArmor profile with `userns,` for {sys.executable}, or sysctl -w {{}}=0",
    ),
)


def explain(refused: RefusedError, proc: str = "/proc") -> tuple[str, str]:
    """Return (why, what to do) for a system call that was refused on this machine.

    What the kernel says is the same for many reasons, so the switches that are known to forbid
    it are read (user_namespaces(7), Debian's and Ubuntu's own ones, seccomp(2)).
    """
    if refused.number not in _FORBIDDEN:
        return str(refused), ""
    for name, value, why, remedy in _SWITCHES:
        if read_text(f"{proc}/sys/{name.replace('.', '/')}").strip() == value:
            return why.format(name), f"An administrator can allow it: {remedy.format(name)}."
    if refused.number == errno.ENOSPC:
        return (
            "the limit of namespaces is reached (user.max_user_namespaces)",
            "An administrator can allow it: raise that with sysctl.",
        )
    if "\nSeccomp:\t2" in read_text(f"{proc}/self/status"):
        return (
            f"a seccomp filter forbids it, as containers have ({refused})",
            "Allow unshare, mount and setns where the container is started.",
        )
    return str(refused), ""

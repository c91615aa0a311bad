"""Why a node allows no private surroundings, and who could change that: words for a refusal."""

from __future__ import annotations

import errno
import sys

from slurm_adapter.node.facts import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.node.view import RefusedError

_ADMINISTRATOR = "An administrator can allow it"


def explain(refused: RefusedError, proc: str = "/proc") -> tuple[str, str]:
    """Return (why, what to do) for a system call that was refused on this machine.

    What the kernel says is the same for many reasons, so the switches that are known to forbid
    it are read (user_namespaces(7), Debian's and Ubuntu's own ones, seccomp(2)).
    """

    def switch(name: str) -> str:
        return read_text(f"{proc}/sys/{name.replace('.', '/')}").strip()

    for kind in ("user", "mnt", "uts"):
        name = f"user.max_{kind}_namespaces"
        if switch(name) == "0":
            return f"{name} is 0", f"{_ADMINISTRATOR}: sysctl -w {name}=15000."
    if refused.number == errno.ENOSPC:
        return (
            "the limit of namespaces is reached (user.max_user_namespaces)",
            f"{_ADMINISTRATOR}: raise it with sysctl.",
        )
    name = "kernel.unprivileged_userns_clone"
    if switch(name) == "0":
        return f"{name} is 0", f"{_ADMINISTRATOR}: sysctl -w {name}=1."
    name = "kernel.apparmor_restrict_unprivileged_userns"
    if switch(name) == "1":
        return (
            f"AppArmor restricts user namespaces ({name} is 1)",
            f"{_ADMINISTRATOR}: an AppArmor profile with `userns,` for {sys.executable}, or"
            f" sysctl -w {name}=0.",
        )
    if "\nSeccomp:\t2" in read_text(f"{proc}/self/status"):
        return (
            f"a seccomp filter forbids it, as containers have ({refused})",
            "Allow unshare, mount and setns where the container is started.",
        )
    return str(refused), ""

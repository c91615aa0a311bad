"""Why a node allows no view is told by the switch that forbids it, with what changes that.

The kernel says the same for many reasons; the /proc that is read here is made up.
"""

import errno
import sys
from pathlib import Path

import pytest

from slurm_adapter.node.system.namespaces import RefusedError
from slurm_adapter.node.view.diagnosis import explain

REFUSED = RefusedError(errno.EPERM, "unshare")
ALLOWED = {
    "user/max_user_namespaces": "96365\n",
    "user/max_mnt_namespaces": "96365\n",
    "user/max_uts_namespaces": "96365\n",
    "kernel/unprivileged_userns_clone": "1\n",
    "kernel/apparmor_restrict_unprivileged_userns": "0\n",
}
DEBIAN = {"kernel/unprivileged_userns_clone": "0\n"}
UBUNTU = {"kernel/apparmor_restrict_unprivileged_userns": "1\n"}
STATUS = "Name:\tpython\nSeccomp:\t{}\nSeccomp_filters:\t1\n"


def proc(folder: Path, switches: dict[str, str], seccomp: int = 0) -> str:
    """Make a /proc with switches in it."""
    for name, text in switches.items():
        path = folder / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "self").mkdir()
    (folder / "self/status").write_text(STATUS.format(seccomp))
    return str(folder)


@pytest.mark.parametrize(
    ("switches", "seccomp", "why", "remedy"),
    [
        (
            {**ALLOWED, "user/max_user_namespaces": "0\n"},
            0,
            "user.max_user_namespaces is 0",
            "sysctl -w user.max_user_namespaces=15000.",
        ),
        (
            {**ALLOWED, "user/max_mnt_namespaces": "0\n"},
            0,
            "user.max_mnt_namespaces is 0",
            "sysctl -w user.max_mnt_namespaces=15000.",
        ),
        (
            {**ALLOWED, "user/max_uts_namespaces": "0\n"},
            0,
            "user.max_uts_namespaces is 0",
            "sysctl -w user.max_uts_namespaces=15000.",
        ),
        (
            {**ALLOWED, **DEBIAN},
            0,
            "kernel.unprivileged_userns_clone is 0",
            "sysctl -w kernel.unprivileged_userns_clone=1.",
        ),
        (
            {**ALLOWED, **UBUNTU},
            0,
            "AppArmor restricts user namespaces"
            " (kernel.apparmor_restrict_unprivileged_userns is 1)",
            f"an AppArmor profile with `userns,` for {sys.executable}, or"
            " sysctl -w kernel.apparmor_restrict_unprivileged_userns=0.",
        ),
        # The kernel's own switch comes first, a container's filter last.
        ({"user/max_user_namespaces": "0\n", **DEBIAN}, 2, "user.max_user_namespaces is 0", ""),
        (DEBIAN, 2, "kernel.unprivileged_userns_clone is 0", ""),
    ],
)
def test_a_switch_is_named_with_its_command(
    tmp_path: Path, switches: dict[str, str], seccomp: int, why: str, remedy: str
) -> None:
    said, told = explain(REFUSED, proc(tmp_path, switches, seccomp))
    assert said == why
    assert told.startswith("An administrator can allow it: ")
    assert told.endswith(remedy)


def test_a_containers_filter_is_named_with_the_call(tmp_path: Path) -> None:
    why, remedy = explain(REFUSED, proc(tmp_path, ALLOWED, seccomp=2))
    assert why == (
        "a seccomp filter forbids it, as containers have (unshare: Operation not permitted)"
    )
    assert remedy == "Allow unshare, mount and setns where the container is started."


@pytest.mark.parametrize("switches", [ALLOWED, {}], ids=["allowing switches", "no switches"])
def test_a_call_is_named_where_no_switch_forbids_it(
    tmp_path: Path, switches: dict[str, str]
) -> None:
    refused = RefusedError(errno.EACCES, "mount /tmp")
    assert explain(refused, proc(tmp_path, switches)) == ("mount /tmp: Permission denied", "")


def test_a_limit_that_is_reached_is_told_from_one_that_is_0(tmp_path: Path) -> None:
    refused = RefusedError(errno.ENOSPC, "unshare")
    why, remedy = explain(refused, proc(tmp_path, ALLOWED))
    assert why == "the limit of namespaces is reached (user.max_user_namespaces)"
    assert remedy == "An administrator can allow it: raise that with sysctl."


@pytest.mark.parametrize("switches", [UBUNTU, ALLOWED], ids=["Ubuntu", "a container"])
def test_what_no_switch_could_forbid_is_not_laid_on_one(
    tmp_path: Path, switches: dict[str, str]
) -> None:
    """A directory of the job that is none, say: that concerns whoever typed it."""
    refused = RefusedError(errno.ENOTDIR, "mount /home/ma-user/modelarts/inputs/data_0")
    assert explain(refused, proc(tmp_path, switches, seccomp=2)) == (
        "mount /home/ma-user/modelarts/inputs/data_0: Not a directory",
        "",
    )


def test_a_refusal_of_our_own_is_no_system_call(tmp_path: Path) -> None:
    refused = RefusedError(0, "/home/ma-user is your own home directory here")
    assert explain(refused, proc(tmp_path, ALLOWED)) == (
        "/home/ma-user is your own home directory here",
        "",
    )

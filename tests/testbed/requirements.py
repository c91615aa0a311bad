"""Whether a cluster can run on this machine at all."""

import os
import shutil
import subprocess
from pathlib import Path

from testbed.names import SYSTEM_PATH

_PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
_SSH_PACKAGES = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
_FOLDERS = {"/etc/slurm": "slurm-client", "/etc/munge": "munge"}


def unavailable() -> str | None:
    """Return None when the cluster can run here, else one line that says why not."""
    if os.geteuid() != 0:
        return "the test cluster needs root: it makes network and mount namespaces"
    missing = [name for name in _PACKAGES if not shutil.which(name, path=SYSTEM_PATH)]
    missing += [folder for folder in _FOLDERS if not Path(folder).is_dir()]
    if missing:
        packages = {(_PACKAGES | _FOLDERS)[name] for name in missing}
        return (
            f"the test cluster lacks {', '.join(missing)}:"
            f" apt-get install --no-install-recommends {' '.join(sorted(packages))}"
        )
    trial = (
        "mount -t proc proc /proc && mount -t sysfs sysfs /sys"
        " && ip link add name br0 type bridge && ip link add name v0 type veth peer name v1"
    )
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "sh", "-c", trial],
        capture_output=True,
        text=True,
        env={"PATH": SYSTEM_PATH},
        check=False,
    )
    if tried.returncode != 0:
        reason = " ".join(tried.stderr.split())
        return f"the test cluster needs namespaces, which this machine does not permit: {reason}"
    return None


def no_ssh() -> str | None:
    """Return None when the cluster's nodes can be SSH hosts too, else why not."""
    missing = [name for name in _SSH_PACKAGES if not shutil.which(name, path=SYSTEM_PATH)]
    if not missing:
        return None
    packages = sorted({_SSH_PACKAGES[name] for name in missing})
    return (
        f"the SSH hosts lack {', '.join(missing)}:"
        f" apt-get install --no-install-recommends {' '.join(packages)}"
    )

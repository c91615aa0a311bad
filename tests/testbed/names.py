"""Names, addresses and accounts of the cluster: facts that every part shares."""

from dataclasses import dataclass

HEAD = "head"
"""Host name of the machine that runs slurmctld and on which users log in."""

NODES = ("gpu-n00", "gpu-n01", "gpu-n02")
"""Host names of the compute nodes."""

ADDRESSES = {HEAD: "10.77.0.1"} | {node: f"10.77.0.{10 + i}" for i, node in enumerate(NODES)}
"""IPv4 address of each host on the cluster's only network."""

PREFIX_BITS = 24

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the daemons and `ip` are looked for: the caller's PATH may lack the sbin folders."""

CPUS = 8
MEMORY_MB = 20_000
GPUS = 4
GPU_TYPE = "v100"


@dataclass(frozen=True)
class Account:
    """A user as the cluster's own passwd and group files know it."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    groups: tuple[int, ...] = ()
    """Supplementary group ids."""


ADA = Account("ada", 5001, 5001, "/home/ada", "/bin/bash", groups=(5002,))
"""The ordinary user: most sites have no root users in jobs."""

ROOT = Account("root", 0, 0, "/root", "/bin/bash")
MUNGE = Account("munge", 301, 301, "/nonexistent", "/usr/sbin/nologin")
SSHD = Account("sshd", 302, 65534, "/run/sshd", "/usr/sbin/nologin")
NOBODY = Account("nobody", 65534, 65534, "/nonexistent", "/usr/sbin/nologin")

ACCOUNTS = {account.name: account for account in (ROOT, MUNGE, SSHD, NOBODY, ADA)}
GROUPS = {"root": 0, "tty": 5, "utmp": 43, "munge": 301, "ada": 5001, "lab": 5002, "nogroup": 65534}

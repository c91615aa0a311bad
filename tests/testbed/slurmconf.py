"""The text of every configuration file inside the cluster. Text only: no I/O."""

from testbed.names import (
    ACCOUNTS,
    ADA,
    ADDRESSES,
    CPUS,
    GPU_TYPE,
    GPUS,
    GROUPS,
    HEAD,
    MEMORY_MB,
    NODES,
)

SLURM_DIR = "/run/slurm"
"""Where Slurm keeps its state, spool, logs and GPU devices, as seen inside."""


SLURMCTLD_PORT = 6817


def slurm_conf() -> str:
    """Return slurm.conf: quick scheduling, no accounting, resources larger than the machine."""
    nodes = "\n".join(
        f"NodeName={node} NodeAddr={ADDRESSES[node]} CPUs={CPUS} Sockets=1"
        f" CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={MEMORY_MB}"
        f" Gres=gpu:{GPU_TYPE}:{GPUS} State=UNKNOWN"
        for node in NODES
    )
    return f"""\
ClusterName=testbed
SlurmctldHost={HEAD}({ADDRESSES[HEAD]})
SlurmctldPort={SLURMCTLD_PORT}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job waits for its old credential to expire: 120 s unless said here.
AuthInfo=cred_expire=10

StateSaveLocation={SLURM_DIR}/state
SlurmdSpoolDir={SLURM_DIR}/spool/%n
SlurmctldPidFile={SLURM_DIR}/slurmctld.pid
SlurmdPidFile={SLURM_DIR}/slurmd.%n.pid
SlurmctldLogFile={SLURM_DIR}/log/slurmctld.log
SlurmdLogFile={SLURM_DIR}/log/slurmd.%n.log
JobCompType=jobcomp/filetxt
JobCompLoc={SLURM_DIR}/log/jobcomp
MailProg=/bin/true
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none

# No cgroups, and no pinning: the machine has fewer CPUs than its nodes claim.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides

SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
GresTypes=gpu

# srun starts within a second; with the defaults it can wait for 30.
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=100000,batch_sched_delay=0,bf_interval=1
KillWait=2
InactiveLimit=0
MinJobAge=3600
ReturnToService=2
SlurmdTimeout=60
JobRequeue=1

{nodes}
PartitionName=train Nodes=ALL Default=YES MaxTime=01:00:00 DefaultTime=01:00:00 State=UP
PartitionName=debug Nodes=ALL Default=NO MaxTime=00:10:00 DefaultTime=00:10:00 State=UP
"""


def gres_conf() -> str:
    """Return gres.conf: device files, without which Slurm would set no CUDA_VISIBLE_DEVICES."""
    return f"Name=gpu Type={GPU_TYPE} File={SLURM_DIR}/dev/gpu[0-{GPUS - 1}]\n"


def passwd() -> str:
    """Return /etc/passwd."""
    return "".join(
        f"{a.name}:x:{a.uid}:{a.gid}:{a.name}:{a.home}:{a.shell}\n" for a in ACCOUNTS.values()
    )


def shadow() -> str:
    """Return /etc/shadow: `*` admits SSH keys, where `!` would lock the account."""
    return "".join(f"{name}:*:19000:0:99999:7:::\n" for name in ACCOUNTS)


def group() -> str:
    """Return /etc/group."""
    members = dict.fromkeys(ADA.groups, ADA.name)
    return "".join(f"{name}:x:{gid}:{members.get(gid, '')}\n" for name, gid in GROUPS.items())


def hosts() -> str:
    """Return /etc/hosts, the only source of host names: no name server answers."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    lines += [f"{address} {name}" for name, address in ADDRESSES.items()]
    return "\n".join(lines) + "\n"


SILENT_NAME_SERVER = "nameserver 192.0.2.53\n"
"""A resolv.conf whose server never answers: no host forwards what is sent there."""


def etc_files() -> dict[str, str]:
    """Return the text of each covered file of /etc, by its path below /etc."""
    return {
        "passwd": passwd(),
        "group": group(),
        "shadow": shadow(),
        "hosts": hosts(),
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
        # Nothing listens there, so that a look-up fails at once: with a name server that does
        # not answer, every reverse look-up of PyTorch's store would cost a test 10 s.
        "resolv.conf": "nameserver 127.0.0.1\n",
        "slurm/slurm.conf": slurm_conf(),
        "slurm/gres.conf": gres_conf(),
        # slurmd loads a cgroup plugin even where nothing uses it: v1 touches
        # nothing when loaded, and the machine's own hierarchy is not shown.
        "slurm/cgroup.conf": "CgroupPlugin=cgroup/v1\n",
    }

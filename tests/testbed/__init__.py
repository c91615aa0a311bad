"""A real three-node Slurm cluster on one machine, for tests.

Everything lives in namespaces of its own: the machine keeps its interfaces,
its mounts, its accounts and its Slurm configuration, and loses the whole
cluster the moment the owner of the handle ends, however it ends.
"""

from testbed.cluster import ClusterError, SlurmCluster
from testbed.jobs import JobEnd
from testbed.names import ADDRESSES
from testbed.requirements import no_ssh, unavailable
from testbed.slurmconf import SILENT_NAME_SERVER
from testbed.ssh import SshHosts
from testbed.waiting import until

__all__ = [
    "ADDRESSES",
    "SILENT_NAME_SERVER",
    "ClusterError",
    "JobEnd",
    "SlurmCluster",
    "SshHosts",
    "no_ssh",
    "unavailable",
    "until",
]

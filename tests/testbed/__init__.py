"""A real three-node Slurm cluster on one machine, for tests.

Everything lives in namespaces of its own: the machine keeps its interfaces,
its mounts, its accounts and its Slurm configuration, and loses the whole
cluster the moment the owner of the handle ends, however it ends.
"""

from testbed.cluster import ClusterError, SlurmCluster
from testbed.jobs import JobEnd
from testbed.requirements import unavailable

__all__ = ["ClusterError", "JobEnd", "SlurmCluster", "unavailable"]

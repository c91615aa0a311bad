"""What a head has to know of a node's network, to choose for all nodes at once."""

from __future__ import annotations

from slurm_adapter.network.choose import given_variables
from slurm_adapter.network.interfaces import has_rdma, interfaces_of, sysfs_root
from slurm_adapter.network.report import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.job.job import Job


def report(
    node: str, job: Job, python: str, environment: Mapping[str, str], listens: int
) -> Report:
    """Return it.

    Args:
        node: this node's name.
        job: what is to run.
        python: its interpreter here.
        environment: what its ranks inherit.
        listens: the port at which others may try to reach this node.

    Raises:
        ClusterUnfitError: where the kernel does not tell its interfaces.
    """
    sysfs = sysfs_root(environment)
    interfaces = interfaces_of(node, sysfs)
    given = given_variables({}, environment)
    if not has_rdma(sysfs):
        return Report(interfaces, (), None, given, {}, listens)
    from slurm_adapter.network.rdma import read_ports  # few nodes need these
    from slurm_adapter.network.topology import gpus_near
    from slurm_adapter.node.facts.nccl import find_nccl

    ports = read_ports(sysfs)
    near = gpus_near(sysfs, list(dict.fromkeys(port.device for port in ports)))
    nccl = find_nccl(job, python, environment) if ports else None
    return Report(interfaces, ports, nccl, given, near, listens)

"""A second network of the cluster's nodes: the first one then leads to the head only.

As on sites with a management network that does not connect compute nodes with each other.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed import netns
from testbed.names import HEAD

if TYPE_CHECKING:
    from testbed.cluster import SlurmCluster

INTERFACE = "eth1"
_BRIDGE = "br1"
_NETWORK = "10.88.0."


def second_address(cluster: "SlurmCluster", node: str) -> str:
    """Return a node's address on the second network."""
    return _NETWORK + cluster.addresses[node].rpartition(".")[2]


@contextlib.contextmanager
def only_second_connects(cluster: "SlurmCluster") -> Iterator[None]:
    """Give each node an eth1, and keep them from reaching each other by eth0, for a while."""
    ports = {node: f"second{number}" for number, node in enumerate(cluster.nodes)}
    lines = [f"link add name {_BRIDGE} type bridge", f"link set {_BRIDGE} up"]
    for node, port in ports.items():
        # `ip` only enters the head's network: it counts processes as this one does.
        lines += [
            f"link add name {port} type veth peer name {INTERFACE} netns {cluster.holder(node)}",
            f"link set {port} master {_BRIDGE} up",
            f"link set {node} type bridge_slave isolated on",
        ]
    netns.ip_batch(cluster.holder(HEAD), "\n".join(lines) + "\n")
    try:
        for node in cluster.nodes:
            address = second_address(cluster, node)
            own = f"addr add {address}/24 dev {INTERFACE}\nlink set {INTERFACE} up\n"
            netns.ip_batch(cluster.holder(node), own)
        yield
    finally:
        lines = [f"link set {node} type bridge_slave isolated off" for node in ports]
        lines += [f"link del {port}" for port in ports.values()]
        netns.ip_batch(cluster.holder(HEAD), "\n".join([*lines, f"link del {_BRIDGE}"]) + "\n")

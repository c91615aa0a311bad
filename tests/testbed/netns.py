"""The cluster's network: one bridge on the head, one veth pair per node.

The namespaces have no names in the machine: each lives exactly as long as the
processes in it, so a killed run can leave none behind.
"""

import subprocess

from testbed.names import ADDRESSES, HEAD, PREFIX_BITS, SYSTEM_PATH

_BRIDGE = "br0"


def head_commands(inside_pids: dict[str, int]) -> str:
    """Return the `ip -batch` text that makes the bridge and plugs every node into it.

    `inside_pids` are the nodes' holders as the cluster's PID namespace counts
    them: `ip` runs in there and hands the far end of each pair to one of them.
    """
    lines = [
        "link set lo up",
        f"link add name {_BRIDGE} type bridge",
        f"addr add {ADDRESSES[HEAD]}/{PREFIX_BITS} dev {_BRIDGE}",
        f"link set {_BRIDGE} up",
    ]
    for node, pid in inside_pids.items():
        lines += [
            f"link add name {node} type veth peer name eth0 netns {pid}",
            f"link set {node} master {_BRIDGE} up",
        ]
    return "\n".join(lines) + "\n"


def node_commands(node: str) -> str:
    """Return the `ip -batch` text that configures a node's end of its pair."""
    return (
        "link set lo up\n"
        f"addr add {ADDRESSES[node]}/{PREFIX_BITS} dev eth0\n"
        "link set eth0 up\n"
        f"route add default via {ADDRESSES[HEAD]}\n"
    )


def cut_commands() -> str:
    """Return the `ip -batch` text that takes a node off the network."""
    return "link set eth0 down\n"


def heal_commands() -> str:
    """Return the `ip -batch` text that undoes a cut: going down dropped the default route."""
    return f"link set eth0 up\nroute replace default via {ADDRESSES[HEAD]}\n"


def ip_batch(holder_pid: int, commands: str) -> None:
    """Run `ip` commands in the network namespace of `holder_pid`; raise with ip's own words."""
    done = subprocess.run(
        ["nsenter", f"--net=/proc/{holder_pid}/ns/net", "ip", "-batch", "-"],
        input=commands,
        capture_output=True,
        text=True,
        env={"PATH": SYSTEM_PATH},
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"ip failed ({done.returncode}): {done.stderr.strip()}\n{commands}")

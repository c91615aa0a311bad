"""Times what a node does about its network, in a namespace of its own; prints seconds as JSON.

The machine has 16 RoCE devices and 200 interfaces with an address each; the peers are 9,999.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from machines import Hca, addresses, build  # noqa: E402
from slurm_adapter.network.choose import choose, rdma_chooser  # noqa: E402
from slurm_adapter.network.gids import NcclVersion  # noqa: E402
from slurm_adapter.network.interfaces import read_interfaces  # noqa: E402
from slurm_adapter.network.rdma import read_ports  # noqa: E402
from slurm_adapter.network.routes import route_toward  # noqa: E402

_RUNS = 9
_PAIRS, _HCAS, _PEERS = 100, 16, 9_999
_IP = ("ip", "-details", "-json", "address")


def main() -> None:
    """Make the machine, measure, print."""
    lines = ["link set lo up"]
    for n in range(_PAIRS):
        lines += [f"link add a{n} type veth peer name b{n}"]
        for side, name in enumerate((f"a{n}", f"b{n}")):
            lines += [f"addr add 10.{n}.{side}.1/24 dev {name}", f"link set {name} up"]
    # As on a cluster of many racks: what is not in one's own subnet goes through a router.
    lines += ["addr add 172.20.0.1/24 dev a0", "route add 172.16.0.0/12 via 172.20.0.254"]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    hcas = [
        Hca(f"mlx5_{n}", "Ethernet", interface=f"a{n}", gids=addresses(f"fe80::{n}", f"10.{n}.0.1"))
        for n in range(_HCAS)
    ]
    peers = {f"n{n}": f"172.20.{n >> 8}.{n & 255}" for n in range(2, _PEERS + 2)}
    with TemporaryDirectory() as folder:
        root = build(Path(folder) / "sys", hcas, slots=256)
        for name in (f"{side}{n}" for side in "ab" for n in range(_PAIRS)):
            (root / f"class/net/{name}/device").mkdir(parents=True)
            (root / f"class/net/{name}/speed").write_text("100000\n")
            (root / f"class/net/{name}/device/numa_node").write_text("0\n")
        sysfs = str(root)
        seen: dict[str, list[float]] = {"facts": [], "ip": [], "decision": []}
        for _ in range(_RUNS):
            seen["facts"].append(_time_s(lambda: (read_interfaces(sysfs), read_ports(sysfs))))
            seen["ip"].append(_time_s(lambda: subprocess.run(_IP, capture_output=True, check=True)))
            seen["decision"].append(_time_s(lambda: _decide(peers, sysfs)))
    sys.stdout.write(json.dumps(seen) + "\n")


def _decide(peers: dict[str, str], sysfs: str) -> None:
    """Do what a node of a step does, from its peers' addresses to the settings."""
    interfaces, ports = read_interfaces(None), read_ports(sysfs)
    route, _ = route_toward("n1", peers, "n2", interfaces)
    nccl = NcclVersion((2, 20, 5), "assumed")
    choose("n1", route, interfaces, {}, rdma_chooser("n1", ports, {}, {}, lambda: nccl))


def _time_s(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()

"""The hosts file of a job on 10,000 nodes: read the machine's own, judge, write ours."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from figure import Figure

from slurm_adapter.contracts.place import name_workers
from slurm_adapter.network.addresses import read_hosts_file
from slurm_adapter.node.view import hosts_file

NODES = 10_000
_RUNS = 15
_GOAL_MS = 50.0


def hosts_figures() -> list[Figure]:
    """Measure it beside writing the same bytes, which a disk costs anyone."""
    names = [f"n{number:05}" for number in range(NODES)]
    addresses = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(NODES)]
    pairs = zip(addresses, names, strict=True)
    site = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in pairs)
    workers = name_workers("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", NODES)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "hosts"

        def ours() -> None:
            found = hosts_file.resolve_all(names, read_hosts_file(site))
            hosts_file.check_addresses(names, found)
            path.write_text(hosts_file.hosts_text(site, workers, found, ()))

        ours()
        text = path.read_text()
        pairs_ms = [
            (_milliseconds(ours), _milliseconds(lambda: path.write_text(text)))
            for _ in range(_RUNS)
        ]
    took, written = (median(column) for column in zip(*pairs_ms, strict=True))
    return [
        Figure(
            f"hosts file of {NODES:,} nodes",
            f"{took:.1f} ms",
            f"writing its {len(text) / 1e6:.1f} MB alone {written:.1f} ms",
            f"<= {_GOAL_MS:.0f} ms",
            f"{took:.1f} ms ({took / written:.1f} x)",
            took <= _GOAL_MS,
        )
    ]


def _milliseconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000

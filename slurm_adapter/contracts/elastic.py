"""Torchrun's own rendezvous, where ranks are to go on with fewer nodes: `--elastic MIN:MAX`.

The nodes meet at a store that the first one opens. Each is told whether it is that one, rather
than left to compare names (MA-05), and none is told a rank: torchrun deals them out anew at each
rendezvous, in an order that nothing promises (MA-07).
"""

from __future__ import annotations

from slurm_adapter.errors import BadValueError, printable
from slurm_adapter.setting import Setting, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_adapter.cluster import Cluster
    from slurm_adapter.contracts.place import RankPlace

# From torch 2.4 on the ranks of all rounds share one store, in which those that are started again
# find the addresses of the ones before them, and wait for these for ever (seen with 2.13).
OWN_STORE = Setting(
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1", "each round has a store of its own, empty at first"
)
_LONGEST_NUMBER = 6


def read_elastic(text: str) -> tuple[int, int]:
    """Return (fewest, most) nodes from `MIN:MAX`, or raise `BadValueError`."""
    first, colon, last = text.partition(":")
    if not (colon and _is_number(first) and _is_number(last)):
        raise BadValueError(
            f"--elastic {printable(text)!r} is no range of nodes",
            "Give the fewest and the most, as in --elastic 1:3.",
        )
    return int(first), int(last)


def check_elastic(elastic: tuple[int, int], cluster: Cluster) -> None:
    """Refuse a range that does not end with the job's nodes: all of them start at first."""
    nodes = len(cluster.nodes)
    fewest, most = elastic
    if most != nodes:
        raise BadValueError(
            f"--elastic {fewest}:{most} is for {most} node{'s' if most > 1 else ''},"
            f" {cluster.source} has {nodes}",
            f"Give --elastic {min(fewest, nodes)}:{nodes}, or another number of nodes.",
        )


def store_words(place: RankPlace) -> Iterator[Word]:
    """Yield where the nodes meet, as torch 2.1 has it, behind `--rdzv-backend=c10d`."""
    first = place.node_index == 0
    host = f"[{place.master}]" if ":" in place.master else place.master
    yield Word(
        f"--rdzv-endpoint={host}:{place.port}",
        f"the store on the first node; port: {place.port_reason}",
        place.known,
    )
    yield Word(
        f"--rdzv-conf=is_host={'true' if first else 'false'}",
        "this node opens the store" if first else "the first node opens the store",
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER

"""What names cost a job: the time to its first all-reduce where the name server does not answer."""

import re
import sys
from pathlib import Path
from statistics import median

from figure import Figure

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from testbed import ADDRESSES, SILENT_NAME_SERVER, SlurmCluster, unavailable  # noqa: E402

SCRIPT = PROJECT / "tests/scripts/first_reduce.py"
PORT = 12_345
# Three processes that import torch on two cores: single runs differ by a quarter.
_RUNS, _RUNS_BY_HAND = 15, 3
_GOAL = 1.2


def reduce_figures() -> list[Figure]:
    """Measure a job of ours and one written by hand, three nodes, Gloo; none without a cluster."""
    reason = unavailable()
    if reason:
        sys.stderr.write(f"no figures of jobs: {reason}\n")
        return []
    with SlurmCluster.start(PROJECT) as cluster:
        cluster.write("first_reduce.py", SCRIPT.read_text())
        ours = ["slurm-adapter", "exec", "--boot", "first_reduce.py"]
        arguments = f"--init_method tcp://{cluster.nodes[0]}:{PORT} --world_size 3 --rank"
        by_hand = ["sh", "-c", f"exec python first_reduce.py {arguments} $SLURM_PROCID"]
        known, here, elsewhere = [], [], []
        with cluster.etc_file("resolv.conf", SILENT_NAME_SERVER):
            for run in range(_RUNS):
                with cluster.etc_file("hosts", _complete_hosts()):
                    known.append(_seconds(cluster, by_hand))
                here.append(_seconds(cluster, ours))
                if run < _RUNS_BY_HAND:
                    elsewhere.append(_seconds(cluster, by_hand))
    ratio = median(here) / median(known)
    return [
        Figure(
            "to the first all-reduce, name server silent",
            f"{median(here):.1f} s",
            f"by hand {median(elsewhere):.1f} s, with every name known {median(known):.1f} s",
            f"<= {_GOAL} x all names known",
            f"{ratio:.2f} x ({median(elsewhere) / median(here):.1f} x faster than by hand)",
            ratio <= _GOAL,
        )
    ]


def _complete_hosts() -> str:
    """Return a hosts file in which every look-up of such a job finds its answer."""
    lines = ["127.0.0.1 localhost", "::ffff:127.0.0.1 mapped.localhost"]
    for name, address in ADDRESSES.items():
        lines += [f"{address} {name}", f"::ffff:{address} mapped.{name}"]
    return "\n".join(lines) + "\n"


def _seconds(cluster: SlurmCluster, command: list[str]) -> float:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    srun = ["srun", "-N3", "--ntasks-per-node=1", *command]
    done = cluster.run(srun, env={"PATH": path}, timeout=300.0)
    found = re.findall(r"sum 6.0 after ([0-9.]+) s", done.stdout)
    if len(found) != 3:  # noqa: PLR2004 - nodes
        raise RuntimeError(f"the job failed: {done.stdout}{done.stderr}")
    return max(map(float, found))

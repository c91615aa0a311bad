"""A node's network: how long it takes to read it, and to decide with ten thousand peers."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from figure import Figure

_FACTS_GOAL_MS, _DECISION_GOAL_MS = 20.0, 30.0
_SPACE = ("unshare", "--user", "--map-root-user", "--net")


def network_figures() -> list[Figure]:
    """Measure in a namespace with as many interfaces as a machine can be expected to have."""
    program = str(Path(__file__).with_name("network_times.py"))
    done = subprocess.run(
        [*_SPACE, sys.executable, program], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        sys.stderr.write("no figures of the network: no namespace of one's own here\n")
        return []
    seen = {name: median(times) * 1000 for name, times in json.loads(done.stdout).items()}
    return [
        Figure(
            "a node's network read: 200 interfaces, 16 HCAs",
            f"{seen['facts']:.1f} ms",
            f"`ip -d -j address`, no HCAs {seen['ip']:.1f} ms",
            f"<= {_FACTS_GOAL_MS:g} ms",
            f"{seen['facts']:.1f} ms ({seen['facts'] / seen['ip']:.2f} x)",
            seen["facts"] <= _FACTS_GOAL_MS,
        ),
        Figure(
            "its decision, all of that read anew, with 9,999 peers",
            f"{seen['decision']:.1f} ms",
            f"`ip -d -j address` {seen['ip']:.1f} ms",
            f"<= {_DECISION_GOAL_MS:g} ms",
            f"{seen['decision']:.1f} ms ({seen['decision'] / seen['ip']:.2f} x)",
            seen["decision"] <= _DECISION_GOAL_MS,
        ),
    ]

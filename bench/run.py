"""The figures this project holds itself to, each beside its peer in the same run.

`make bench` prints them; `python bench/run.py --write` also puts them into docs/benchmarks.md.
Ratios are what counts: single times differ between machines and hours.
"""

import argparse
import os
import platform
import sys
from datetime import date
from pathlib import Path

from faults import fault_figures
from figure import Figure
from hostsfile import hosts_figures
from loglines import log_figures
from network import network_figures
from nodelists import hostlist_figures
from printing import printing_figures
from reduce import reduce_figures
from ssh import ssh_figures
from start import start_figures

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Made by `python bench/run.py --write` (`make bench` prints the same without writing). Each figure
is the median of alternating runs in one process of measurement, ours and the peer's in turn.
"""


def main() -> int:
    """Measure, print, and return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also write {PAGE.name}")
    options = parser.parse_args()
    parts = [
        *(start_figures, hostlist_figures, hosts_figures, reduce_figures, network_figures),
        *(ssh_figures, log_figures, printing_figures, fault_figures),
    ]
    figures = [figure for part in parts for figure in part()]
    table = "\n".join([Figure.HEADER, *(figure.row() for figure in figures)])
    machine = (
        f"{date.today():%Y-%m-%d}, {os.cpu_count()} cores,"  # noqa: DTZ011 - the day, for people
        f" {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )
    print(f"{machine}\n\n{table}")
    if options.write:
        PAGE.write_text(f"{HEAD}\nMeasured {machine}.\n\n{table}\n")
    missed = [figure.name for figure in figures if not figure.held]
    if missed:
        print(f"\nmissed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

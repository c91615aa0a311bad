"""`python -m testbed --project DIR [--ssh] [--node N] [--user U] -- COMMAND...` for people.

Brings a cluster up, runs the command in it with this terminal, takes it down.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from testbed.cluster import ClusterError, SlurmCluster
from testbed.daemons import StartError
from testbed.names import ACCOUNTS, HEAD, NODES
from testbed.requirements import no_ssh, unavailable


def main(argv: list[str] | None = None) -> int:
    """Return the command's exit status, 128 + N when signal N ended it, as a shell would."""
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    parser.add_argument("--project", type=Path, required=True, help="folder to show inside")
    parser.add_argument("--ssh", action="store_true", help="with an sshd on each node")
    parser.add_argument("--node", choices=[HEAD, *NODES], default=HEAD)
    parser.add_argument("--user", choices=["ada", "root"], default="ada")
    parser.add_argument("command", nargs="*", default=["bash"])
    asked = parser.parse_args(argv)
    reason = unavailable() or (no_ssh() if asked.ssh else None)
    if reason:
        sys.stderr.write(f"{reason}\n")
        return 1
    try:
        with SlurmCluster.start(asked.project) as cluster:
            if asked.ssh:
                cluster.start_ssh()
            child = cluster.popen(
                asked.command,
                node=asked.node,
                user=asked.user,
                cwd=ACCOUNTS[asked.user].home if asked.user == "ada" else "/",
                env={"TERM": os.environ.get("TERM", "dumb")},
                stdin=None,
                stdout=None,
                stderr=None,
                new_session=False,
            )
            # Ctrl-C is the command's business: it reaches both of us.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            status = child.wait()
    except (ClusterError, StartError, subprocess.SubprocessError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())

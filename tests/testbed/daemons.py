"""munged, slurmctld and the slurmds: started inside, and waited for until all is idle."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from testbed import enter, processes, state
from testbed.child import Child
from testbed.names import HEAD, MUNGE, NODES, ROOT, SYSTEM_PATH, Account
from testbed.slurmconf import SLURMCTLD_PORT
from testbed.waiting import LONG_S

_STEP_S = 0.05


class StartError(Exception):
    """The cluster did not come up; the text ends with what its daemons logged."""


def start(
    holders: dict[str, int],
    directory: Path,
    running: dict[str, Child[str]],
    pause: Callable[[float], None],
) -> None:
    """Start every daemon and return when all nodes are idle.

    `holders` are pidfds by host name. What was started comes into `running` at
    once, by the daemon's name, for the caller to end. `pause` sleeps, and raises
    when nobody wants the cluster any more.
    """
    deadline = time.monotonic() + LONG_S

    def launch(host: str, name: str, *argv: str, account: Account = ROOT) -> None:
        with (directory / f"run/slurm/log/{name}.out").open("wb") as log:
            running[name] = enter.spawn(
                holders[host],
                argv,
                account=account,
                cwd="/",
                env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until(ready: Callable[[], bool], what: str) -> None:
        while not ready():
            dead = [
                f"{name} ({p.returncode})" for name, p in running.items() if p.poll() is not None
            ]
            if dead or time.monotonic() > deadline:
                reason = f"ended: {', '.join(dead)}" if dead else f"{LONG_S:.0f} s passed"
                raise StartError(f"waiting for {what}: {reason}\n{log_tails(directory)}")
            pause(_STEP_S)

    seed = "--seed-file=/run/munge/munged.seed"
    launch(HEAD, "munged", "munged", "--foreground", seed, account=MUNGE)
    wait_until((directory / "run/munge/munge.socket.2").exists, "munged's socket")
    launch(HEAD, "slurmctld", "slurmctld", "-D")
    # A slurmd that finds nobody to register with tries again only a second later.
    wait_until(
        lambda: processes.listens(running["slurmctld"].pid, SLURMCTLD_PORT), "slurmctld to listen"
    )
    for node in NODES:
        launch(node, f"slurmd.{node}", "slurmd", "-D", "-N", node)
    wait_until(lambda: _idle(holders[HEAD]) == set(NODES), "all nodes to be idle")


def log_tails(directory: Path, lines: int = 15) -> str:
    """Return the last lines of each daemon's log under a title of its own."""
    parts = []
    for path in state.log_files(directory):
        tail = path.read_text(errors="replace").splitlines()[-lines:]
        if tail:
            parts.append("\n".join([f"--- {path.name}", *tail]))
    return "\n".join(parts)


def _idle(head: int) -> set[str]:
    with enter.spawn(
        head,
        ["sinfo", "--noheader", "--Node", "--partition=train", "--format=%N %T"],
        account=ROOT,
        cwd="/",
        env=enter.login_environment(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as asked:
        pairs = [line.split() for line in asked.communicate()[0].splitlines()]
    return {pair[0] for pair in pairs if pair[1:] == ["idle"]}

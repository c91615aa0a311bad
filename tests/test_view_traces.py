"""However a job ends, nothing of its view is left on the nodes, and all that it wrote is.

Mounts, directories, processes and namespaces of the test cluster are compared, before and after.
"""

import json
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from conftest import ADAPTER, User
from steps import SCRIPTS
from testbed import SlurmCluster
from testbed.waiting import LONG_S

HOSTS = ("head", "gpu-n00", "gpu-n01", "gpu-n02")
LIST = """\
cat /proc/self/mountinfo
find / -maxdepth 1 -printf '%p %U:%G %m\\n'
find /etc -printf '%p %U:%G %m %s\\n'
find /home -printf '%p %U:%G %m\\n'
find /tmp /dev/shm /run -maxdepth 1 -user ada
"""
KINDS = ("user", "mnt", "uts")
# Hosts share the machine's /tmp, where other tests start torchrun and pip; no rank here does.
_OF_OTHERS = ("/tmp/torchelastic_", "/tmp/pip-")


def snapshot(slurm: SlurmCluster) -> set[str]:
    """Return what each host shows to a process outside the view: mounts and names of files."""
    lines = set()
    for host in HOSTS:
        done = slurm.run(["sh", "-ec", LIST], node=host, user="root", cwd="/")
        assert done.returncode == 0, done.stderr
        lines |= {
            f"{host} {line}" for line in done.stdout.splitlines() if not line.startswith(_OF_OTHERS)
        }
    return lines


def processes(slurm: SlurmCluster) -> set[int]:
    return {pid for host in HOSTS for pid in slurm.pids(host)}


def namespaces(slurm: SlurmCluster) -> set[str]:
    """Return the namespaces of all processes on the hosts; one that has ended is in none."""
    found = set()
    for pid in processes(slurm):
        for kind in KINDS:
            with suppress(OSError):
                found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
    return found


def wait_until_gone(pids: set[int]) -> set[int]:
    """Wait for the end of processes; return those that do not end."""
    left = set()
    for pid in pids:
        with suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            if not select.select([process], [], [], LONG_S)[0]:
                left.add(pid)
            os.close(process)
    return left


def kill_a_rank(slurm: SlurmCluster) -> None:
    """Kill the rank on the second node, as a kernel without memory would."""
    for pid in slurm.pids("gpu-n01"):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[1:] and words[1].endswith(b"/hold.py"):
            os.kill(pid, signal.SIGKILL)
            return
    raise LookupError("no rank on gpu-n01")


def cancel(slurm: SlurmCluster) -> None:
    assert slurm.run(["scancel", "--user=ada"]).returncode == 0


def nothing(slurm: SlurmCluster) -> None:
    del slurm


@contextmanager
def running(user: User, how: str) -> Iterator[Callable[[], int]]:
    """Start a rank on each node; give what waits for the end of the step and tells its status."""
    user.write("hold.py", (SCRIPTS / "hold.py").read_text())
    step = ["srun", "-N3", "--ntasks-per-node=1", "--kill-on-bad-exit=1", str(ADAPTER), "exec"]
    with user.cluster.popen(
        [*step, "--output", "kept=out", "--boot", "hold.py", "--", how],
        cwd=str(user.folder),
        env=user.environment,
    ) as srun:

        def status() -> int:
            srun.communicate(timeout=LONG_S)
            return srun.returncode

        try:
            assert srun.stdout
            lines = [srun.stdout.readline() for _ in range(3)]
            assert sorted(lines) == ["ready 0\n", "ready 1\n", "ready 2\n"]
            yield status
        finally:
            srun.kill()


def outputs(user: User) -> set[str]:
    """Return the namespaces that the ranks were in, from what they left in an output."""
    texts = [user.outside(f"out/{index}").read_text() for index in range(3)]
    return {name for text in texts for name in json.loads(text).values()}


def is_the_jobs(user: User, line: str) -> bool:
    """Say whether a line of a snapshot shows a file in the job's folder or its output."""
    path = line.partition(" ")[2]
    return path.startswith(
        tuple(f"{user.folder}/{name}" for name in ("slurm-adapter", "out ", "out/", "hold.py "))
    )


@pytest.mark.parametrize(
    ("how", "end"),
    [("succeed", nothing), ("fail", nothing), ("wait", kill_a_rank), ("wait", cancel)],
    ids=["success", "failure", "a rank's being killed", "being cancelled"],
)
def test_only_the_jobs_files_are_left_after(
    user: User, how: str, end: Callable[[SlurmCluster], None]
) -> None:
    slurm = user.cluster
    before, running_before = snapshot(slurm), processes(slurm)
    with running(user, how) as wait:
        end(slurm)
        assert (wait() == 0) is (how == "succeed")
    assert wait_until_gone(processes(slurm) - running_before) == set()
    after = snapshot(slurm)
    assert before - after == set()
    assert {line for line in after - before if not is_the_jobs(user, line)} == set()
    assert outputs(user).isdisjoint(namespaces(slurm))
    for index in range(3):
        (run,) = user.outside("slurm-adapter/hold/run").iterdir()
        assert (run / f"worker-{index}/cache/{index}").is_file()


def test_only_the_jobs_files_are_seen_outside_while_it_runs(user: User) -> None:
    slurm = user.cluster
    before = snapshot(slurm)
    with running(user, "wait") as wait:
        during = snapshot(slurm)
        inside = outputs(user)
        assert len(inside) == 3 * len(KINDS)
        assert inside <= namespaces(slurm)
        cancel(slurm)
        wait()
    assert before - during == set()
    assert {line for line in during - before if not is_the_jobs(user, line)} == set()

"""What may go wrong with a job over SSH: how it is brought about, and what the head says then."""

import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from sshjobs import SshJob, left, ssh_job
from testbed import SshHosts, until

# A child and an orphan, each in a session of its own, whose output is not ours.
FAMILY = """\
import os, select, signal, subprocess, sys, time
rank = int(os.environ.get("RANK") or os.environ["VC_TASK_INDEX"])
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
signal.signal(signal.SIGUSR2, lambda *_: print("noise", flush=True))
for words in (["sleep", "1000"], ["sh", "-c", "sleep 1000 &"]):
    subprocess.Popen(words, start_new_session=True,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
UP = "print('up', flush=True)\n"
PAUSE = "while True:\n    signal.pause()\n"
WAIT = FAMILY + UP + PAUSE
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT
BEARING = (
    """\
import os, subprocess
def bear(*_):
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    os._exit(0)
"""
    + FAMILY
    + "signal.signal(signal.SIGTERM, bear)\n"
    + UP
    + PAUSE
)
TICK = FAMILY + UP + "while True:\n    print('tick', flush=True)\n    time.sleep(0.01)\n"

NODE = "gpu-n01"
"""Where something goes wrong."""
ALL = "rank 0 on gpu-n00, rank 1 on gpu-n01, rank 2 on gpu-n02"
OTHERS = "; ending rank 0 on gpu-n00, rank 2 on gpu-n02"
FAILED = "slurm-adapter: rank 1 on gpu-n01 failed first: "
LOST = "slurm-adapter: gpu-n01 (rank 1 on gpu-n01) was lost: "
NOT_CONFIRMED = "slurm-adapter: not confirmed: gpu-n01: "

NEVER = ("--grace", "1000", "--link-timeout", "1000")
"""For what ends without either: were one of them waited for, the test would fail."""
SHORT_GRACE = ("--grace", "0.5", "--link-timeout", "1000")
SHORT_LINK = ("--grace", "1000", "--link-timeout", "5")
"""Long enough for a busy machine to be heard of in time."""


@dataclass(frozen=True)
class Fault:
    """One of them."""

    happen: Callable[[SshJob], None]
    status: int
    """The head's exit status."""
    said: tuple[str | re.Pattern[str], ...] = ()
    """What the head says: each line's beginning, or a pattern for the whole of it."""
    script: str = WAIT
    options: tuple[str, ...] = NEVER
    connections: bool = True
    """Whether the sshd processes of connections must be gone, too."""

    def accounts_for(self, said: list[str]) -> bool:
        """Say whether it is this, and the culprit's last words at most, that was said."""
        lines = [line for line in said if "warning:" not in line]
        own, more = lines[: len(self.said)], lines[len(self.said) :]
        return (
            len(own) == len(self.said)
            and all(map(_is_said, own, self.said))
            and (not more or (len(more) == 2 and more[0].endswith(" and said last:")))
        )


def _is_said(line: str, wanted: str | re.Pattern[str]) -> bool:
    if isinstance(wanted, str):
        return line.startswith(wanted)
    return wanted.fullmatch(line) is not None


def _to_head(number: int) -> Callable[[SshJob], None]:
    return lambda job: os.kill(job.head.pid, number)


def _to_rank(number: int) -> Callable[[SshJob], None]:
    return lambda job: os.kill(job.rank_pid(NODE), number)


def _to_agent(index: int) -> Callable[[SshJob], None]:
    return lambda job: os.kill(job.agents(NODE)[index], signal.SIGKILL)


def _interrupt_twice(job: SshJob) -> None:
    os.kill(job.head.pid, signal.SIGINT)
    assert until(job.said)
    os.kill(job.head.pid, signal.SIGINT)


def _end_session(job: SshJob) -> None:
    os.kill(job.session(NODE), signal.SIGKILL)


def _cut(job: SshJob) -> None:
    job.afterwards.enter_context(job.hosts.cut(NODE))


def _stop_head(job: SshJob) -> None:
    """Until it has been given up by all nodes."""
    os.kill(job.head.pid, signal.SIGSTOP)
    job.afterwards.callback(job.head.send_signal, signal.SIGCONT)
    assert left(job.hosts, connections=False) == []
    os.kill(job.head.pid, signal.SIGCONT)


def _close_stdout(job: SshJob) -> None:
    assert job.head.stdout
    job.head.stdout.close()


def _ending(name: str) -> tuple[str]:
    return (f"slurm-adapter: {name}: ending {ALL}; once more kills at once",)


_GIVEN_UP = re.compile(  # which of the nodes is heard of first is open
    r"slurm-adapter: (gpu-n0(\d)) \(rank \2 on \1\) was lost: it heard nothing from here for too"
    r" long, and has ended what ran there(; ending rank .*)?"
)
_KILLED = "its agent was ended by SIGKILL"

OF_THE_HEAD = {
    "SIGINT to the head": Fault(_to_head(signal.SIGINT), 130, _ending("SIGINT")),
    "SIGTERM to the head": Fault(_to_head(signal.SIGTERM), 143, _ending("SIGTERM")),
    "SIGHUP to the head": Fault(_to_head(signal.SIGHUP), 129, _ending("SIGHUP")),
    "SIGTERM at which ranks start something": Fault(
        _to_head(signal.SIGTERM), 143, _ending("SIGTERM"), BEARING
    ),
    "SIGKILL to the head": Fault(_to_head(signal.SIGKILL), 137),
    "nobody reading any more": Fault(
        _close_stdout,
        141,
        (f"slurm-adapter: nobody reads the output any more; ending {ALL}",),
        script=TICK,
    ),
    "a stop of the head": Fault(
        _stop_head,
        4,
        (_GIVEN_UP,),
        options=SHORT_LINK,
    ),
}
OF_DEAF_RANKS = {
    "SIGINT twice": Fault(_interrupt_twice, 130, _ending("SIGINT"), script=DEAF),
    "SIGTERM that ranks ignore": Fault(
        _to_head(signal.SIGTERM), 143, _ending("SIGTERM"), DEAF, SHORT_GRACE
    ),
    "SIGKILL to the head of deaf ranks": Fault(
        _to_head(signal.SIGKILL), 137, (), DEAF, SHORT_GRACE
    ),
    "a deaf rank's failure": Fault(
        _to_rank(signal.SIGUSR1), 3, (f"{FAILED}exit status 3{OTHERS}",), DEAF, SHORT_GRACE
    ),
}
OF_A_RANK = {
    "a rank's failure": Fault(_to_rank(signal.SIGUSR1), 3, (f"{FAILED}exit status 3{OTHERS}",)),
    "a rank's SIGSEGV": Fault(_to_rank(signal.SIGSEGV), 139, (f"{FAILED}signal SIGSEGV{OTHERS}",)),
}
OF_A_NODE = {
    **{
        f"SIGKILL of {name}": Fault(
            _to_agent(index), 4, (f"{LOST}{_KILLED}{OTHERS}", f"{NOT_CONFIRMED}{_KILLED}")
        )
        for index, name in enumerate(("the agent", "the namespace's maker", "the namespace's init"))
    },
    "SIGKILL of an sshd session": Fault(
        _end_session,
        4,
        (
            f"{LOST}the connection ended{OTHERS}",
            f"{NOT_CONFIRMED}the connection ended; its agent ends what runs there within 2000 s",
        ),
    ),
    "a cut": Fault(
        _cut,
        4,
        (
            f"{LOST}it has not been heard of for 5 s{OTHERS}",
            f"{NOT_CONFIRMED}it has not been heard of for 5 s; its agent ends what runs there",
        ),
        options=SHORT_LINK,
        connections=False,
    ),
}


def see_it_end(hosts: SshHosts, folder: PurePosixPath, fault: Fault, *options: str) -> None:
    """Start a job, have something go wrong, and look at what is left and what was said."""
    with ssh_job(hosts, folder, fault.script, *fault.options, *options) as job:
        job.wait_until_up()
        fault.happen(job)
        ended = job.end()
        assert ended.status == fault.status, job.errors()
        assert fault.accounts_for(ended.said), ended.said
        assert left(hosts, connections=fault.connections) == []

"""One rank's process: started in a session of its own, ended by the kernel with its starter."""

from __future__ import annotations

import os

from slurm_adapter import signals
from slurm_adapter.errors import AdapterError, ClusterUnfitError
from slurm_adapter.node.job_files import cannot_run, find_program
from slurm_adapter.node.system import processes, signal_forwarding
from slurm_adapter.output import complain
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from slurm_adapter.node.view.view import ViewNamespaces
    from slurm_adapter.plan import RankPlan

_MOST_BYTES = 256
_IGNORED_BY_PYTHON = (signals.SIGPIPE, signals.SIGXFSZ)


@record
class RankStart:
    """One rank's start, checked whole before any rank is started."""

    rank: int
    node: str
    """The node's name, for errors."""
    words: tuple[str, ...]
    """The command; the first word is the program's path."""
    environment: Mapping[str, str]
    cwd: str
    namespaces: ViewNamespaces | None = None
    """Namespaces to enter; None where the rank gets none of its own."""
    first: Callable[[int], None] | None = None
    """What the rank's process does before all this, with a descriptor for what it says; raises an
    `AdapterError` where it cannot."""


def make_start(
    rank: RankPlan,
    inherited: Mapping[str, str],
    namespaces: ViewNamespaces | None,
    first: Callable[[int], None] | None = None,
) -> RankStart:
    """Return how to start a planned rank here; the arguments are as in `RankStart`.

    Raises:
        ClusterUnfitError: where its program is not found.
    """
    environment, cwd = rank.environment(inherited), rank.cwd.value
    program, *rest = rank.words
    words = (find_program(program, environment, cwd), *rest)
    return RankStart(rank.rank, rank.node.name, words, environment, cwd, namespaces, first)


def spawn(start: RankStart, stdout: int, stderr: int) -> int:
    """Start a rank with these descriptors as its stdout and stderr; return its pid.

    Raises:
        ClusterUnfitError: where its directory cannot be entered, or its program not run.
    """
    if _is_plain(start):
        try:
            return _start_at_once(start, stdout, stderr)
        except NotImplementedError:  # the C library is too old for a session of its own
            pass
    return _fork(start, stdout, stderr)


def _is_plain(start: RankStart) -> bool:
    """Say whether nothing of ours has to run between the start and the rank's program."""
    if start.namespaces is not None or start.first is not None or processes.has_raised_limit():
        return False
    # With the first process of a PID namespace the kernel ends all others there, unasked.
    return os.getpid() == 1


def _start_at_once(start: RankStart, stdout: int, stderr: int) -> int:
    """Start a rank without a copy of this process, which is what takes longest."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    what = "enter"
    try:
        if start.cwd:
            os.chdir(start.cwd)
        what = "run"
        return os.posix_spawn(
            start.words[0],
            start.words,
            start.environment,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
            ),
            setsid=True,
            setsigdef=_IGNORED_BY_PYTHON,
        )
    except OSError as error:
        raise _refusal(start, what, error) from error
    finally:
        os.fchdir(here)
        os.close(here)


def _fork(start: RankStart, stdout: int, stderr: int) -> int:
    answers, tell = os.pipe()
    die_with_parent = processes.dying_with_parent()
    child = os.fork()
    if child == 0:
        _become(start, stdout, stderr, tell, die_with_parent)
    os.close(tell)
    try:
        answer = os.read(answers, _MOST_BYTES)
    finally:
        os.close(answers)
    if answer:
        os.waitpid(child, 0)
        what, _, number = answer.decode().partition(" ")
        raise _refusal(start, what, OSError(int(number), os.strerror(int(number))))
    return child


def _refusal(start: RankStart, what: str, error: OSError) -> ClusterUnfitError:
    if what == "run":
        return cannot_run(start.words[0], error)
    if what == "enter":
        return ClusterUnfitError(
            f"{start.node} cannot enter {start.cwd}: {error.strerror}",
            "The directory must be there and readable.",
        )
    return ClusterUnfitError(
        f"{start.node} cannot give rank {start.rank} its surroundings: {error.strerror}",
        "Give --view off to run without.",
    )


def _become(
    start: RankStart, stdout: int, stderr: int, tell: int, die_with_parent: processes.Prepare
) -> NoReturn:
    what = "view"
    try:
        os.setsid()
        die_with_parent()
        if start.first is not None:
            os.close(tell)  # nobody is to wait so long: from here on the rank itself has begun
            tell = os.dup2(stderr, 2)
            for number in (*signal_forwarding.STOP_SIGNALS, signals.SIGCHLD):  # our starter's own
                signals.handle(number, signals.SIG_DFL)
            start.first(stdout)
        if start.namespaces is not None:
            start.namespaces.enter()
        what = "enter"
        if start.cwd:
            os.chdir(start.cwd)
        what = "run"
        tell = _arrange(stdout, stderr, tell)
        processes.restore_descriptor_limit()
        for number in _IGNORED_BY_PYTHON:
            signals.handle(number, signals.SIG_DFL)
        os.execve(start.words[0], start.words, start.environment)  # noqa: S606
    except AdapterError as error:
        os._exit(complain(error))
    except OSError as error:
        if start.first is not None:
            os._exit(complain(_refusal(start, what, error)))
        else:
            os.write(tell, f"{what} {error.errno or 1}".encode())
    except BaseException as error:  # noqa: BLE001 - two processes must never go on from here
        os.write(stderr, f"slurm-adapter: rank {start.rank}: {error!r}\n".encode())
    finally:
        os._exit(127)


def _arrange(stdout: int, stderr: int, tell: int) -> int:
    """Leave the rank its three streams and where to complain; return the latter.

    The rest would be closed by `execve`, which itself needs a number below the limit.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    # Out of the way first: what takes one of the numbers must not be one of the others.
    low = [os.dup(one) for one in (null, stdout, stderr, tell)]
    while min(low) < len(low):
        low = [os.dup(one) for one in low]
    for number, descriptor in enumerate(low):
        os.dup2(descriptor, number, inheritable=number < len(low) - 1)
    # Not closerange: where it has to try each number there may be a billion of them.
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= len(low):
            try:  # noqa: SIM105 - contextlib costs start-up time
                os.close(int(name))
            except OSError:  # the one that listed them
                pass
    return len(low) - 1

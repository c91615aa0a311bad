"""A PID namespace for a node's ranks: the kernel ends all in it when whoever asked for it ends.

Three processes: this one; a keeper that made the namespace and waits; the first process of the
namespace. Each of the latter two dies with the one before it, by parent-death signal, and with
the first process of a PID namespace the kernel kills every other in it, whatever its session.
"""

from __future__ import annotations

import os
import select
import signal

from slurm_adapter.node.system import calls, processes, signal_forwarding
from slurm_adapter.node.system.namespaces import RefusedError, enter_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_MOST_BYTES = 4096
_FLAGS = calls.CLONE_NEWNS | calls.CLONE_NEWPID
_UNEXPECTED = 70  # sysexits.h: EX_SOFTWARE


class Ways:
    """How the signals that mean stop get to the first process: as its starter gets them."""

    def keep(self) -> None:
        """Said in the keeper, before there is a first process: they are not for this one."""
        for number in signal_forwarding.STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def begin(self) -> None:
        """Said in the first process, before anybody may send it something."""
        for number in signal_forwarding.STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def attend(self, first: int) -> None:
        """Said in the starter, before it waits for the end of the first process."""

        def pass_on(number: int, _: object) -> None:
            send(first, number)

        for number in signal_forwarding.STOP_SIGNALS:
            signal.signal(number, pass_on)


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def run_in_pid_namespace(inner: Callable[[], int], ways: Ways | None = None) -> int:
    """Run a function as the first process of a PID namespace; return its status when all is gone.

    `ways` are those of signals to it; None: what the starter gets is passed on.

    Raises:
        RefusedError: where this is not allowed here; nothing has happened then.
    """
    ways = ways or Ways()
    flags = [_FLAGS | calls.CLONE_NEWUSER]
    if os.geteuid() == 0:
        flags.insert(0, _FLAGS)
    for one in flags:
        try:
            return _run(inner, one, ways)
        except RefusedError as refused:
            last = refused
    raise last


def _run(inner: Callable[[], int], flags: int, ways: Ways) -> int:
    answers, tell = os.pipe()
    die_with_parent = processes.dying_with_parent()
    keeper = os.fork()
    if keeper == 0:
        os.close(answers)
        _keep(inner, flags, ways, tell, die_with_parent)
    os.close(tell)
    try:
        answer = _read_all(answers).decode(errors="replace")
    finally:
        os.close(answers)
    word, _, rest = answer.partition(" ")
    if word != "first":
        os.waitpid(keeper, 0)
        number, _, call = rest.partition(" ")
        raise RefusedError(int(number or 1), call or "a process of its own")
    ways.attend(int(rest))
    return status_of(os.waitpid(keeper, 0)[1])


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, _MOST_BYTES):
        parts.append(part)
    return b"".join(parts)


def status_of(status: int) -> int:
    """Return how a process ended as a shell has it: 128 + N for signal N."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _keep(
    inner: Callable[[], int], flags: int, ways: Ways, tell: int, die_with_parent: processes.Prepare
) -> NoReturn:
    """In the keeper: make the namespaces, and wait for the first process in them."""
    status = _UNEXPECTED
    try:
        ways.keep()
        enter_own(flags)
        die_with_parent()  # only now: new credentials would clear it
        alive, held = os.pipe()
        first = os.fork()
        if first == 0:
            os.close(held)
            _be_first(inner, ways, tell, alive)
        os.write(held, str(first).encode())
        os.close(tell)
        status = status_of(os.waitpid(first, 0)[1])
    except OSError as error:
        _refuse(tell, error)
    finally:
        os._exit(status)


def _be_first(inner: Callable[[], int], ways: Ways, tell: int, alive: int) -> NoReturn:
    """In the first process: end with the keeper, see one's own processes only, then go on."""

    def whole() -> int:
        os.write(tell, f"first {own}".encode())
        os.close(tell)
        return inner()

    try:
        processes.die_with_parent()
        # As our starter knows it; what /proc shows may be a namespace further out.
        own = os.read(alive, _MOST_BYTES).decode()
        if select.select([alive], [], [], 0)[0]:  # its only writer, the keeper, died in between
            os._exit(_UNEXPECTED)
        calls.follow_machine()
        _mount_proc()
        ways.begin()
    except OSError as error:
        _refuse(tell, error)
        os._exit(_UNEXPECTED)
    end_after(whole)


def end_after(inner: Callable[[], int]) -> NoReturn:
    """Run a function and end this process with its status, whatever it raises."""
    status = _UNEXPECTED
    try:
        status = inner()
    except BaseException:  # noqa: BLE001 - two processes must never go on from here
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _mount_proc() -> None:
    """Show this namespace's processes; what a container has there of its own (lxcfs) stays."""
    with open("/proc/self/mountinfo", errors="replace") as file:
        points = [line.split()[4] for line in file]
    over = [one for one in points if one.startswith("/proc/") and os.path.isfile(one)]
    sources = [os.open(one, os.O_PATH | os.O_CLOEXEC) for one in over]
    calls.mount_proc("/proc")
    for one, source in zip(over, sources, strict=True):
        calls.bind(f"/proc/self/fd/{source}", one)
        os.close(source)


def _refuse(tell: int, error: OSError) -> None:
    where = str(error.filename or error.strerror)
    os.write(tell, f"refused {error.errno or 1} {where}".encode(errors="replace")[:_MOST_BYTES])

"""A PID namespace for a node's ranks: the kernel ends all in it when whoever asked for it ends.

Three processes: this one; its child, which made the namespace and waits; init, the first process
of the namespace. Each of the latter two dies with its parent, by parent-death signal, and with init
the kernel kills every other process of a PID namespace, whatever its session.
"""

from __future__ import annotations

import os
import select

from slurm_adapter import signals
from slurm_adapter.node.system import calls, processes, signal_forwarding
from slurm_adapter.node.system.namespaces import RefusedError, enter_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_MOST_BYTES = 4096
_FLAGS = calls.CLONE_NEWNS | calls.CLONE_NEWPID
_UNEXPECTED = 70  # sysexits.h: EX_SOFTWARE


class StopForwarding:
    """How the signals that mean stop get to init: as whoever started it gets them."""

    def in_child(self) -> None:
        """Called in init's parent before there is an init: they are not for this process."""
        for number in signal_forwarding.STOP_SIGNALS:
            signals.handle(number, signals.SIG_IGN)

    def in_init(self) -> None:
        """Called in init, before anybody may send it something."""
        for number in signal_forwarding.STOP_SIGNALS:
            signals.handle(number, signals.SIG_DFL)

    def in_starter(self, init: int) -> None:
        """Called in this process, before it waits for the end of init."""

        def forward(number: int, _: object) -> None:
            send(init, number)

        for number in signal_forwarding.STOP_SIGNALS:
            signals.handle(number, forward)


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def run_in_pid_namespace(inner: Callable[[], int], forwarding: StopForwarding | None = None) -> int:
    """Run a function as init of a PID namespace; return its status when all is gone.

    `forwarding` is that of signals to it; None: what this process gets is forwarded.

    Raises:
        RefusedError: where this is not allowed here; nothing has happened then.
    """
    forwarding = forwarding or StopForwarding()
    flags = [_FLAGS | calls.CLONE_NEWUSER]
    if os.geteuid() == 0:
        flags.insert(0, _FLAGS)
    for one in flags:
        try:
            return _run(inner, one, forwarding)
        except RefusedError as refused:
            last = refused
    raise last


def _run(inner: Callable[[], int], flags: int, forwarding: StopForwarding) -> int:
    answers, tell = os.pipe()
    die_with_parent = processes.dying_with_parent()
    child = os.fork()
    if child == 0:
        os.close(answers)
        _make_and_wait(inner, flags, forwarding, tell, die_with_parent)
    os.close(tell)
    try:
        answer = _read_all(answers).decode(errors="replace")
    finally:
        os.close(answers)
    word, _, rest = answer.partition(" ")
    if word != "init":
        os.waitpid(child, 0)
        number, _, call = rest.partition(" ")
        raise RefusedError(int(number or 1), call or "a process of its own")
    forwarding.in_starter(int(rest))
    return processes.wait_for(child)


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, _MOST_BYTES):
        parts.append(part)
    return b"".join(parts)


def _make_and_wait(
    inner: Callable[[], int],
    flags: int,
    forwarding: StopForwarding,
    tell: int,
    die_with_parent: processes.Prepare,
) -> NoReturn:
    """In the child: make the namespaces, and wait for init in them."""
    status = _UNEXPECTED
    try:
        forwarding.in_child()
        enter_own(flags)
        die_with_parent()  # only now: new credentials would clear it
        alive, held = os.pipe()
        init = os.fork()
        if init == 0:
            os.close(held)
            _be_init(inner, forwarding, tell, alive)
        os.write(held, str(init).encode())
        os.close(tell)
        status = processes.wait_for(init)
    except OSError as error:
        _refuse(tell, error)
    finally:
        os._exit(status)


def _be_init(
    inner: Callable[[], int], forwarding: StopForwarding, tell: int, alive: int
) -> NoReturn:
    """In init: end with its parent, see one's own processes only, then go on."""

    def whole() -> int:
        os.write(tell, f"init {own}".encode())
        os.close(tell)
        return inner()

    try:
        processes.die_with_parent()
        # As our starter knows it; what /proc shows may be a namespace further out.
        own = os.read(alive, _MOST_BYTES).decode()
        if select.select([alive], [], [], 0)[0]:  # its only writer, the parent, died in between
            os._exit(_UNEXPECTED)
        calls.follow_machine()
        _mount_proc()
        forwarding.in_init()
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

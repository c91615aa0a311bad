"""The process that owns the cluster: `python -m testbed.supervisor PROJECT`.

It stays outside, holds the read end of a pipe from the handle, and ends the
cluster when that pipe closes. Ending is one signal: the first process of the
PID namespace is killed, and the kernel ends everything else in it: daemonised
processes, and the PID namespace of each node. The same happens when the
supervisor itself is killed.
"""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from testbed import daemons, kernel, mounts, netns, state
from testbed.names import HEAD, NODES

if TYPE_CHECKING:
    from testbed.child import Child

_END_LIMIT_S = 60.0


def serve(project: Path) -> None:
    """Build the cluster, report it on standard output, keep it until the pipe closes."""
    directory = state.path_of(os.getpid())
    first: int | None = None
    running: dict[str, Child[str]] = {}
    try:
        state.sweep()
        state.create(directory)
        kernel.unshare(kernel.CLONE_NEWPID)
        pids: dict[str, int] = {}
        inside: dict[str, int] = {}
        pids[HEAD], _ = _fork_holder(partial(_become_head, directory, project))
        first = os.pidfd_open(pids[HEAD])
        for node in NODES:
            become = partial(_become_node, node, first)
            pids[node], inside[node] = _fork_holder(become, nested=True)
        netns.ip_batch(pids[HEAD], netns.head_commands(inside))
        for node in NODES:
            netns.ip_batch(pids[node], netns.node_commands(node))
        handles = {host: os.pidfd_open(pid) for host, pid in pids.items()}
        daemons.start(handles, directory, running, _pause)
        # Nobody asks for a daemon's exit status while it serves: let the kernel reap them all.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _report({"state": str(directory), "holders": pids})
        while True:
            _pause(None)
    except daemons.StartError as error:
        _report({"error": str(error)})
    except Exception:  # noqa: BLE001 - whatever it is, the handle must hear of it
        _report({"error": f"{traceback.format_exc()}\n{daemons.log_tails(directory)}"})
    finally:
        _handle_stop_signals(signal.SIG_IGN)
        if first is not None:
            _end(first)
        for daemon in running.values():
            daemon.wait()  # it ended with its namespace
        shutil.rmtree(directory, ignore_errors=True)


def _become_head(directory: Path, project: Path) -> None:
    kernel.die_with_parent(signal.SIGKILL)
    kernel.unshare(
        kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWNET
    )
    mounts.enter_private_view(directory, project)
    mounts.enter_node_view()
    socket.sethostname(HEAD)


def _become_node(node: str, head: int) -> None:
    kernel.setns(head, kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    kernel.unshare(
        kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWNET
    )
    mounts.enter_node_view()
    socket.sethostname(node)


def _fork_holder(become: Callable[[], None], *, nested: bool = False) -> tuple[int, int]:
    """Fork a process that keeps a host's namespaces alive; return its pid, outside and inside.

    The first one forked is also what the kernel calls the namespace's init. A
    `nested` one is that of a namespace within: the processes of a node see
    each other and no other node's. "Inside" is how the first one counts.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            if nested:
                kernel.unshare(kernel.CLONE_NEWPID)
                if os.fork():
                    os._exit(0)
            # As the machine's /proc tells it, which `become` covers.
            pids = _pids_by_namespace()[:2]
            become()
            # Fails when the supervisor was killed before it could be our death signal.
            os.write(writer, json.dumps(pids).encode())
        except BaseException:  # noqa: BLE001 - must not run on as a second supervisor
            with contextlib.suppress(BrokenPipeError):
                os.write(writer, traceback.format_exc().encode())
            os._exit(1)
        _hold()
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    if nested:
        os.waitpid(pid, 0)
    if not text.startswith("["):
        raise daemons.StartError(f"a host's namespaces cannot be made:\n{text}")
    outside, inside = json.loads(text)
    return outside, inside


def _pids_by_namespace() -> list[int]:
    """Return this process's number in each PID namespace it is in, the outermost first."""
    (line,) = re.findall(r"^NSpid:(.*)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return [int(word) for word in line.split()]


def _hold() -> NoReturn:
    """Do nothing for good, with nothing of the supervisor's in hand."""
    _handle_stop_signals(signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    while True:
        signal.pause()


def _end(first: int) -> None:
    """Kill the namespace's first process and wait until the kernel has ended all the others.

    It waits for those of our children that ended before and that nobody reaped.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pidfd_send_signal(first, signal.SIGKILL)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return
    select.select([first], [], [], _END_LIMIT_S)


def _pause(seconds: float | None) -> None:
    """Sleep; raise SystemExit when the handle's end of the pipe is gone."""
    if select.select([sys.stdin.fileno()], [], [], seconds)[0]:
        sys.exit(0)


def _report(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _handle_stop_signals(action: Callable[[int, Any], NoReturn] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, action)


def _stop(_number: int, _frame: object) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    _handle_stop_signals(_stop)
    serve(Path(sys.argv[1]))

"""A command that returns when its job runs, and watches it from the background until it ends."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from slurm_adapter.cli.exit_signals import exiting_when_stopped
from slurm_adapter.errors import AdapterError, ClusterUnfitError
from slurm_adapter.node.ranks.supervise import STOP_DETACHED
from slurm_adapter.output import complain, write_stdout

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_adapter.launch.ssh.records import Record

_BEGUN = b"!"


def run_in_background(start: Callable[[Callable[[Record], None]], int]) -> int:
    """Run `start` in a child; return 0 when it says that it has begun, else its exit status.

    The child keeps the terminal until then: it may have to ask for a password.
    """
    told, tell = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(told)
        _be_background(start, tell)
    os.close(tell)
    for number in (signal.SIGTERM, signal.SIGHUP):  # whoever sends one knows only this process
        signal.signal(number, lambda sent, _: os.kill(child, sent))
    while True:
        try:
            if os.read(told, 1) == _BEGUN:
                return 0
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        except KeyboardInterrupt:  # the child has it too, and ends in order
            continue


def _be_background(start: Callable[[Callable[[Record], None]], int], tell: int) -> NoReturn:
    status = 1

    def begun(record: Record) -> None:
        log = os.open(record.folder / "head.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        write_stdout(f"{record.job_id}\n")
        os.setsid()
        for descriptor, number in ((null, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, number)
        os.write(tell, _BEGUN)
        os.close(tell)

    try:
        with exiting_when_stopped(STOP_DETACHED):
            status = start(begun)
    except AdapterError as error:
        status = complain(error)
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    except OSError as error:
        status = complain(_unforeseen(error))
    except BaseException:  # noqa: BLE001 - nobody above it would print it
        traceback.print_exc()
    finally:
        os._exit(status)


def _unforeseen(error: OSError) -> ClusterUnfitError:
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return ClusterUnfitError(
        f"this process cannot go on: {where}{error.strerror or error}",
        "Make room there, or permit it; slurm-adapter jobs tells whether the job runs by now.",
    )

"""What a command took: time, the CPU of it and its children, memory."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """One run of a command, from its start until it and all its children had ended."""

    wall_s: float
    cpu_s: float
    """Of the command and of the children that it waited for."""
    peak_mb: float
    """The largest of them, in MiB that were in memory at once."""


def run(words: Sequence[str], environment: Mapping[str, str], output: Path) -> Usage:
    """Run a command with stdout and stderr into a file.

    Raises:
        RuntimeError: where it fails, with the end of what it said.
    """
    with output.open("wb") as file:
        begin = time.perf_counter()
        with subprocess.Popen(
            words,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                _, status, used = os.wait4(process.pid, 0)
            except BaseException:  # interrupted: it must not run on
                process.kill()
                raise
            wall_s = time.perf_counter() - begin
            process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        said = output.read_text(errors="replace")[-500:]
        raise RuntimeError(f"{words[0]} ended with {process.returncode}: {said}")
    return Usage(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)

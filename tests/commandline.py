"""The real `slurm-adapter` as a process, in an environment that holds nothing of the caller's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.child import Child
from testbed.waiting import LONG_S

BIN = Path(sys.executable).parent
ADAPTER = str(BIN / "slurm-adapter")
OWN_PORT = 20_000 + os.getpid() % 10_000
"""One that no other process with tests uses; below those that the kernel gives out."""
WITHOUT_SLURM = str(BIN)
"""A PATH on which `python` is found, and no `sbatch`."""


@dataclass(frozen=True)
class Done:
    """A command that has ended; its output with every byte kept (undecodable as surrogates)."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What was printed, read as one JSON document."""
        return json.loads(self.out)

    @property
    def directives(self) -> dict[str, str | None]:
        """The `#SBATCH` lines of a printed script: option to value, None for a flag."""
        lines = [line for line in self.out.splitlines() if line.startswith("#SBATCH --")]
        pairs = [line.removeprefix("#SBATCH --").partition("=") for line in lines]
        return {name: value if equals else None for name, equals, value in pairs}


def environment(**more: str) -> dict[str, str]:
    """Return a login's environment: no Slurm job, no config file, no SLURM_ADAPTER_ variables."""
    return {"PATH": f"{BIN}:{os.defpath}", "HOME": "/nonexistent", "LANG": "C.UTF-8", **more}


def adapter(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = LONG_S
) -> Done:
    """Run slurm-adapter to its end; `env` comes on top of `environment()`."""
    done = subprocess.run(
        [ADAPTER, *words],
        cwd=cwd,
        env={**environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    return Done(done.returncode, _text(done.stdout), _text(done.stderr))


@contextmanager
def running(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, stdout: int = subprocess.PIPE
) -> Iterator[Child[bytes]]:
    """Start slurm-adapter with a pipe at its stderr; it is killed at the end, if it still runs."""
    with Child(
        [ADAPTER, *words],
        cwd=cwd,
        env={**environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")

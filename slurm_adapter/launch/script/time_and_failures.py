"""What a job does about the end of its time, and about ranks that fail: checked before it starts.

`--warn` has Slurm send a signal to every rank some time before the limit; `--retries` starts the
ranks again in the same allocation; `--on-timeout requeue` has the next job wait in the queue from
the beginning, since a compute node may have no command to submit one with.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from slurm_adapter.errors import BadValueError, printable

DEFAULT_SIGNAL = "USR2"
"""NCCL and some frameworks use USR1 themselves."""
_WARN = re.compile(r"(?:(?:SIG)?([A-Z0-9]+)@)?([0-9]{1,5})")
_MOST_SECONDS = 65_535  # sbatch(1), --signal
_MOST_RETRIES = 100
_REQUEUE = re.compile(r"requeue(?::([0-9]{1,3}))?")
_RESUBMISSIONS, _MOST_RESUBMISSIONS = 3, 50
CHAIN = "SLURM_ADAPTER_CHAIN"
"""Names the jobs that continue each other: known to all, and a file of that name to the next."""


@dataclass(frozen=True)
class Life:
    """How long a job is to live beyond one attempt."""

    warn: tuple[str, int] | None = None
    """(signal without SIG, seconds before the limit)."""
    retries: int = 0
    """How often ranks that failed are started again in the same allocation."""
    resubmissions: int = 0
    """How many more jobs may go on where the one before ran into its limit."""

    @classmethod
    def parse(cls, warn: str | None, retries: int | None, on_timeout: str | None) -> Life:
        """Return what the options say.

        Raises:
            BadValueError: with the form that is right.
        """
        if retries is not None and not 0 <= retries <= _MOST_RETRIES:
            raise BadValueError(
                f"--retries {retries} cannot be meant", f"Give a number from 0 to {_MOST_RETRIES}."
            )
        return cls(
            None if warn is None else _parse_warn(warn),
            retries or 0,
            0 if on_timeout is None else _parse_on_timeout(on_timeout),
        )

    def check(self, starts: str, options: object) -> None:
        """Refuse what cannot work.

        Args:
            starts: what the contract starts on each node, `rank` or `torchrun`.
            options: names of the sbatch options that the user gives.

        Raises:
            BadValueError: with the remedy.
        """
        given = set(options) if isinstance(options, list | tuple | dict | frozenset) else set()
        if self.warn is not None and starts != "rank":
            raise BadValueError(
                f"--warn does not reach the ranks of {starts}, which starts each in a session of"
                f" its own and would end at {self.warn[0]} itself",
                "Use --contract env, where each rank is a task of Slurm's own.",
            )
        if self.warn is not None and "signal" in given:
            raise BadValueError("--warn and --sbatch signal say the same", "Give one of them.")
        if self.resubmissions and given & {"dependency", "array"}:
            raise BadValueError(
                "--on-timeout makes a chain of jobs with dependencies of its own",
                "Leave out --sbatch dependency and --sbatch array.",
            )


def _parse_warn(text: str) -> tuple[str, int]:
    match = _WARN.fullmatch(text)
    name = (match[1] if match else None) or DEFAULT_SIGNAL
    known = name.isdigit() or f"SIG{name}" in signal.Signals.__members__
    if match is None or not known or not 1 <= int(match[2]) <= _MOST_SECONDS:
        raise BadValueError(
            f"--warn {printable(text)} is not understood",
            f"Write SIGNAL@SECONDS or SECONDS, as in --warn USR2@120; SECONDS up to"
            f" {_MOST_SECONDS}.",
        )
    return name, int(match[2])


def _parse_on_timeout(text: str) -> int:
    match = _REQUEUE.fullmatch(text)
    number = int(match[1]) if match and match[1] else _RESUBMISSIONS
    if match is None or not 1 <= number <= _MOST_RESUBMISSIONS:
        raise BadValueError(
            f"--on-timeout {printable(text)} is not understood",
            f"Write requeue or requeue:N, as in --on-timeout requeue:5; N up to"
            f" {_MOST_RESUBMISSIONS}, {_RESUBMISSIONS} if left out.",
        )
    return number

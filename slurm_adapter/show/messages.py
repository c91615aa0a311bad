"""What the commands say of their own on stderr, a line each."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def say(text: str) -> None:
    """Say one thing on stderr; where nobody hears it any more, the job's end goes on."""
    with suppress(OSError):
        os.write(2, os.fsencode(f"slurm-adapter: {text}\n"))


def warn(warnings: Iterable[str]) -> None:
    """Say each warning on stderr."""
    for warning in warnings:
        say(f"warning: {warning}")

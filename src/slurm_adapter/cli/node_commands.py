"""`exec` and `env` as the help lists them; they are run by the node side's own command line."""

from __future__ import annotations

from typing import Annotated

import typer

from slurm_adapter.node.main import main

_Words = Annotated[list[str] | None, typer.Argument(metavar="[OPTIONS] -- [COMMAND]...")]


def execute(words: _Words = None) -> int:
    """Inside a step: set up this rank, then become COMMAND."""
    return main(["exec", *(words or [])])


def env(words: _Words = None) -> int:
    """Inside a step: print this rank's variables and the reason for each."""
    return main(["env", *(words or [])])

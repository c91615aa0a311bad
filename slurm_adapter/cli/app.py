"""The head's command line from outside: words in, exit status out, errors as a few lines."""

from __future__ import annotations

from typing import Any, cast

from slurm_adapter import __version__
from slurm_adapter.errors import AdapterError, BadValueError
from slurm_adapter.output import complain, write_stdout


def main(words: list[str]) -> int:
    """Run one command; return its exit status. Every error ends here, as a few lines."""
    if words[:1] in (["--version"], ["version"]):
        return _version()
    try:
        return _run(words)
    except AdapterError as error:
        return complain(error)
    except KeyboardInterrupt:
        return 130


def _version() -> int:
    try:
        write_stdout(f"slurm-adapter {__version__}\n")
    except AdapterError as error:
        return complain(error)
    return 0


def _run(words: list[str]) -> int:
    import typer  # 50 ms, which --version does not need

    from slurm_adapter.cli.commands import build_app

    # typer brings click along, under a name of its own in newer versions.
    click_error = cast("type[Exception]", typer.BadParameter.__mro__[2])
    try:
        status = build_app()(args=words or ["--help"], standalone_mode=False)
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.Abort:
        return 130
    except click_error as error:
        raise _as_our_own(error) from error
    return int(status or 0)


def _as_our_own(error: Any) -> BadValueError:
    """Return an error of the command line's library as ours."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "slurm-adapter"
    return BadValueError(error.format_message(), f"{path} --help lists the options.")

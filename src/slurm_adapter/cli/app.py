"""The head's command line: what each command is called and where it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from slurm_adapter import __version__
from slurm_adapter.errors import AdapterError, BadValueError, report

if TYPE_CHECKING:
    from typer import Typer


def main(words: list[str]) -> int:
    """Run one command; return its exit status. Every error ends here, as a few lines."""
    if words[:1] in (["--version"], ["version"]):
        print(f"slurm-adapter {__version__}")  # noqa: T201
        return 0
    try:
        return _run(words)
    except AdapterError as error:
        print(report(error), file=sys.stderr)  # noqa: T201
        return error.exit_status
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    import typer  # noqa: PLC0415 - 50 ms, which --version does not need

    # typer brings click along, under a name of its own in newer versions.
    click_error = cast("type[Exception]", typer.BadParameter.__mro__[2])
    try:
        status = build_app()(args=words or ["--help"], standalone_mode=False)
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.Abort:
        return 130
    except click_error as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "slurm-adapter"
        message: Any = getattr(error, "format_message", error.__str__)()
        raise BadValueError(str(message), f"{path} --help lists the options.") from error
    return int(status or 0)


def build_app() -> Typer:
    """Return the application; built when needed, because a rank never needs it."""
    import typer  # noqa: PLC0415

    from slurm_adapter.cli.local_command import local  # noqa: PLC0415
    from slurm_adapter.cli.node_commands import env, execute  # noqa: PLC0415
    from slurm_adapter.cli.options import program, with_common_options  # noqa: PLC0415
    from slurm_adapter.cli.sbatch_command import sbatch  # noqa: PLC0415

    app = typer.Typer(
        name="slurm-adapter",
        help="Start PyTorch training jobs on Slurm or on this machine; ModelArts scripts run"
        " unchanged.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None if not sys.stdout.isatty() else "rich",
    )
    ours_first = {"allow_interspersed_args": False}
    passing = {"ignore_unknown_options": True, "help_option_names": []}
    app.command("sbatch", context_settings=ours_first)(with_common_options(sbatch))
    app.command("local", context_settings=ours_first)(with_common_options(local))
    app.command("exec", context_settings=passing)(execute)
    app.command("env", context_settings=passing)(env)

    app.callback(invoke_without_command=False)(program)
    return app

"""The commands as they are declared: names, options, help. What they do is loaded when called."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from slurm_adapter.cli.options import seconds, with_common_options
from slurm_adapter.show.lines import has_colour

_OURS_FIRST = {"allow_interspersed_args": False}
_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}

_Grace = Annotated[
    float,
    typer.Option(
        "--grace",
        metavar="SECONDS",
        parser=seconds,
        help="From SIGTERM to SIGKILL when ending ranks.",
    ),
]
_Sbatch = Annotated[
    list[str] | None,
    typer.Option(
        "--sbatch", metavar="NAME[=VALUE]", help="Any long sbatch option by name. Repeatable."
    ),
]
_ScriptFile = Annotated[
    str | None,
    typer.Option("--script", metavar="FILE", help="Only write the script (-: to stdout)."),
]
_Parsable = Annotated[bool, typer.Option("--parsable", help="Print the job id alone.")]
_Preview = Annotated[
    str | None,
    typer.Option("--preview-nodes", metavar="LIST", help="Node names to show in a dry run."),
]
_Words = Annotated[list[str] | None, typer.Argument(metavar="[OPTIONS] -- [COMMAND]...")]


def sbatch(
    common: dict[str, Any],
    *,
    sbatch: _Sbatch = None,
    script_file: _ScriptFile = None,
    parsable: _Parsable = False,
    preview_nodes: _Preview = None,
) -> int:
    """Write the sbatch script and submit it."""
    from slurm_adapter.cli.sbatch import run_sbatch  # noqa: PLC0415

    return run_sbatch(
        common,
        options=sbatch or [],
        script_file=script_file,
        parsable=parsable,
        preview_nodes=preview_nodes,
    )


def local(common: dict[str, Any], *, grace: _Grace = 10.0) -> int:
    """Start the job here, N nodes pretended."""
    from slurm_adapter.cli.local import run_local  # noqa: PLC0415

    return run_local(common, grace_s=grace)


def execute(words: _Words = None) -> int:
    """Inside a step: set up this rank, then become COMMAND."""
    from slurm_adapter.node.main import main  # noqa: PLC0415

    return main(["exec", *(words or [])])


def env(words: _Words = None) -> int:
    """Inside a step: show the variables and why."""
    from slurm_adapter.node.main import main  # noqa: PLC0415

    return main(["env", *(words or [])])


def program(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Start PyTorch training jobs on Slurm or on this machine; ModelArts scripts run unchanged."""
    del version  # answered before any of this is loaded


def build_app() -> typer.Typer:
    """Return the application; rich draws its help at a terminal only."""
    app = typer.Typer(
        name="slurm-adapter",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if has_colour(sys.stdout) else None,
    )
    app.callback(invoke_without_command=False)(program)
    app.command("sbatch", context_settings=_OURS_FIRST)(with_common_options(sbatch))
    app.command("local", context_settings=_OURS_FIRST)(with_common_options(local))
    app.command("exec", context_settings=_PASSED_ON)(execute)
    app.command("env", context_settings=_PASSED_ON)(env)
    return app

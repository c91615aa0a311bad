"""The options that all launching commands share, declared once.

Each is None where it was not given, so that the layers below it can speak.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm_adapter.job.job import CONTRACTS, DELIVERIES, STARTERS, VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = ("rich", "plain", "json")


def whole_number(text: str) -> int:
    """Return a number typed on the command line; the error names what was typed."""
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a whole number") from error


def seconds(text: str) -> float:
    """Return seconds typed on the command line; the error names what was typed."""
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number of seconds") from error


def _option(
    help_text: str,
    *names: str,
    metavar: str | None = None,
    variable: bool = True,
    parser: Callable[[str], object] | None = None,
) -> Any:
    long = next(name for name in names if name.startswith("--"))
    envvar = "SLURM_ADAPTER_" + long[2:].upper().replace("-", "_") if variable else None
    return typer.Option(
        *names, help=help_text, metavar=metavar, envvar=envvar, show_envvar=False, parser=parser
    )


def _number(help_text: str, *names: str) -> Any:
    return _option(help_text, *names, metavar="N", parser=whole_number)


Script = Annotated[
    str | None,
    typer.Argument(metavar="SCRIPT", help="Boot file (.py). What follows it belongs to it."),
]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARGUMENTS", help="The script's own.")
]

# name of the parameter -> its type with the option
COMMON: dict[str, Any] = {
    "job": Annotated[str | None, _option("Job file (TOML).", "--job", metavar="FILE")],
    "nodes": Annotated[int | None, _number("Nodes.", "-N", "--nodes")],
    "gpus_per_node": Annotated[int | None, _number("GPUs on each node.", "--gpus-per-node")],
    "flavor": Annotated[
        str | None,
        _option("What a node has: a ModelArts flavor's text or id.", "--flavor", metavar="TEXT"),
    ],
    "code": Annotated[
        str | None,
        _option("Code directory (default: the script's).", "--code", metavar="DIR"),
    ],
    "contract": Annotated[
        str | None,
        _option("How the script learns its place.", "--contract", metavar="|".join(CONTRACTS)),
    ],
    "elastic": Annotated[
        str | None,
        _option(
            "torchrun contract: go on with MIN nodes of MAX, all of the job's.",
            "--elastic",
            metavar="MIN:MAX",
        ),
    ],
    "max_restarts": Annotated[
        int | None,
        _number("torchrun contract: start ranks again after so many failures.", "--max-restarts"),
    ],
    "ranks_by": Annotated[
        str | None,
        _option(
            "env contract under Slurm: who starts a rank for each GPU (default: slurm).",
            "--ranks-by",
            metavar="|".join(STARTERS),
        ),
    ],
    "env": Annotated[
        list[str] | None,
        _option(
            "Set a variable, or keep one that would be taken out. Repeatable.",
            "--env",
            metavar="NAME[=VALUE]",
            variable=False,
        ),
    ],
    "input": Annotated[
        list[str] | None,
        _option("An input channel. Repeatable.", "--input", metavar="NAME=PATH", variable=False),
    ],
    "output": Annotated[
        list[str] | None,
        _option("An output channel. Repeatable.", "--output", metavar="NAME=PATH", variable=False),
    ],
    "channels": Annotated[
        str | None,
        _option("How the script gets its channels.", "--channels", metavar="|".join(DELIVERIES)),
    ],
    "port": Annotated[int | None, _number("Rendezvous port.", "--port")],
    "network": Annotated[
        str | None,
        _option(
            "How the nodes meet (default: as the kernel sends it).",
            "--network",
            metavar="SUBNET|IFNAME",
        ),
    ],
    "master_suffix": Annotated[
        str | None,
        _option(
            "What the nodes' names end in on that network.", "--master-suffix", metavar="SUFFIX"
        ),
    ],
    "network_option": Annotated[
        list[str] | None,
        _option(
            "A key of [network], such as traffic_class=106. Repeatable.",
            "--network-option",
            metavar="KEY=VALUE",
            variable=False,
        ),
    ],
    "name": Annotated[
        str | None, _option("The job's name (default: the script's).", "--name", metavar="NAME")
    ],
    "job_folder": Annotated[
        str | None,
        _option("The job's own (default: slurm-adapter/NAME).", "--job-folder", metavar="DIR"),
    ],
    "python": Annotated[
        str | None,
        _option("Interpreter (default: the job's `python`).", "--python", metavar="PROGRAM"),
    ],
    "command": Annotated[
        str | None,
        _option(
            "Run this with /bin/sh -c in place of a script; nothing is appended.",
            "--command",
            metavar="TEXT",
            variable=False,
        ),
    ],
    "view": Annotated[
        str | None,
        _option("A rank's surroundings (default: by contract).", "--view", metavar="|".join(VIEWS)),
    ],
    "cache": Annotated[
        str | None,
        _option(
            "A directory of each node to show as /cache (default: one in the job's folder).",
            "--cache",
            metavar="DIR",
        ),
    ],
    "install_requirements": Annotated[
        bool,
        typer.Option(
            "--install-requirements",
            help="Install the code's pip-requirements.txt for this run.",
        ),
    ],
    "dry_run": Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, and do nothing.")
    ],
    "format": Annotated[
        str, _option("Form of the dry run.", "--format", metavar="|".join(FORMATS))
    ],
    "verbose": Annotated[bool, typer.Option("-v", "--verbose", help="Say more on stderr.")],
    "quiet": Annotated[bool, typer.Option("-q", "--quiet", help="Say only errors on stderr.")],
}
_DEFAULTS: dict[str, Any] = {
    "install_requirements": False,
    "dry_run": False,
    "format": "rich",
    "verbose": False,
    "quiet": False,
}


def with_common_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command `SCRIPT [ARGUMENTS]...` and the common options before its own.

    The function gets them as `common`, a dictionary by parameter name.
    """
    own = [
        parameter
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items()
        if name != "common"
    ]
    shared = {"script": Script, "arguments": Arguments, **COMMON}
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, keyword, default=_DEFAULTS.get(name), annotation=annotation)
        for name, annotation in shared.items()
    ] + [parameter.replace(kind=keyword) for parameter in own]

    @wraps(function)
    def command(**values: Any) -> int:
        common = {name: values.pop(name) for name in shared}
        return function(common, **values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command

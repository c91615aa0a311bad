"""The table of options as typer has it, and what was typed as records of it."""

from __future__ import annotations

import inspect
import os
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.option import COUNT, FLAG, REPEATED, SECONDS, options_of, read_value
from slurm_adapter.job.options import LAUNCHERS, JobOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_adapter.job.option import Option


class Given(NamedTuple):
    """What is said of a job where a command is typed, in two layers."""

    words: JobOptions
    environment: JobOptions

    @property
    def job_file(self) -> str | None:
        """The file that says more."""
        return self.words.job_file or self.environment.job_file


def options_for(command: str, *classes: type) -> list[Option]:
    """Return the options that a command has of some classes, those of all launchers first.

    What stands without a name is first of all.
    """
    mine = [one for one in options_of(*classes) if command in one.commands and one.long]
    return sorted(mine, key=lambda one: (not one.argument, one.commands != LAUNCHERS))


def with_options(
    command: str, *classes: type
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a function the options of a command that classes declare.

    It is called with a record of each class; of `JobOptions` with a `Given`.
    """
    mine = options_for(command, *classes)
    parameters = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.required else _default(one),
            annotation=_annotation(one),
        )
        for one in mine
    ]

    def decorated(function: Callable[..., int]) -> Callable[..., int]:
        @wraps(function)
        def call(**typed: Any) -> int:
            said = {
                one.name: read_value(one, value) if one.kind in REPEATED else value
                for one in mine
                if (value := typed[one.name]) != _default(one) and value != []
            }
            return function(*(_record(cls, mine, said) for cls in classes))

        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

    return decorated


def _default(option: Option) -> Any:
    """Return what stands for an option that was not typed."""
    return False if option.kind == FLAG else option.default


def _annotation(option: Option) -> Any:
    """Return the type of an option with its declaration, as typer wants it."""
    value = _TYPES.get(option.kind, list[str] if option.kind in REPEATED else str)
    if option.default is None and option.kind != FLAG and not option.required:
        value = value | None
    if option.argument:
        return Annotated[value, typer.Argument(metavar=option.argument, help=option.help)]
    parser = _parser(option) if option.kind in (COUNT, SECONDS) else None
    metavar = None if option.kind == FLAG else option.metavar
    declared = typer.Option(*option.flags, metavar=metavar, help=option.help, parser=parser)
    return Annotated[value, declared]


_TYPES: dict[str, Any] = {COUNT: int, SECONDS: float, FLAG: bool}


def _parser(option: Option) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return read_value(option, [text])
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return parse


def _record(cls: type, mine: Sequence[Option], said: Mapping[str, Any]) -> Any:
    """Return what was said of the options of one class."""
    ours = {one.name for one in options_of(cls)}
    words = {name: value for name, value in said.items() if name in ours}
    variables = _from_environment([one for one in mine if one.name in ours], os.environ)
    if cls is JobOptions:
        return Given(_job_options(words), _job_options(variables))
    return cls(**{**variables, **words})


def _job_options(said: Mapping[str, Any]) -> JobOptions:
    from slurm_adapter.cli.components import read_components
    from slurm_adapter.config.jobfile import check_pairs
    from slurm_adapter.node.step.options import job_options

    values = dict(said)
    if "components" in values:
        values["components"] = read_components(values["components"])
    if "command" in values and "boot" in values:  # a command has no boot file: it is its first word
        values["args"] = (values.pop("boot"), *values.get("args", ()))
    if "boot" in values:
        values.setdefault("args", ())  # those that a file names are for that file's own
    return check_pairs(job_options(values))


def _from_environment(mine: Sequence[Option], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what variables say of options, by field; an empty one says nothing."""
    said = {}
    for one in mine:
        text = environment.get(one.variable, "") if one.variable else ""
        if text:
            try:
                said[one.name] = read_value(one, [text])
            except ValueError as error:
                raise BadValueError(
                    f"{one.variable}={text}: {error}", "Give the variable a right value."
                ) from error
    return said

"""Job files: TOML becomes settings, with errors that name the file, the key and the remedy.

The same keys stand in a job file, in the user's config file and behind the options of the
command line; `Settings` is one such layer, and `merge` puts layers on top of each other.
"""

from __future__ import annotations

import difflib
import os
import sys
from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)

from slurm_adapter.errors import BadValueError
from slurm_adapter.paths import absolute, given, on_node

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAMED_ERRORS = 3
_EXPECTED = {
    "int_type": "a whole number",
    "string_type": "a text in quotes",
    "list_type": "a list",
    "dict_type": "a table",
    "bool_type": "true or false",
}
_EXAMPLES = {
    "name": 'name = "train"',
    "args": 'args = ["--epochs", "5"]',
    "nodes": "nodes = 2",
    "gpus_per_node": "gpus_per_node = 8",
    "port": "port = 29400",
    "view": 'view = "hosts"',
    "cache": 'cache = "/local/scratch"',
    "install_requirements": "install_requirements = true",
    "env": '[env] with lines such as WANDB_MODE = "offline"',
    "keep": 'keep = ["WANDB_API_KEY"]',
    "inputs": '[inputs] with lines such as data_url = "/datasets/cifar10"',
    "outputs": '[outputs] with lines such as train_url = "/results/train"',
    "slurm": '[slurm] with lines such as partition = "train"; a flag is true or left out',
}


def _as_text(value: object) -> object:
    """Numbers may stand unquoted where a text is meant; booleans may not: which text is true?"""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _as_option(value: object) -> object:
    """A flag is `true` or left out; TOML reads an unquoted 02:00:00 as a time of day."""
    if value is True:
        return ""
    if value is False:
        raise ValueError("a flag that is not wanted is left out, not false")
    if isinstance(value, time):
        return value.isoformat()
    return _as_text(value)


Text = Annotated[StrictStr, BeforeValidator(_as_text)]
SbatchValue = Annotated[StrictStr, BeforeValidator(_as_option)]


class Settings(BaseModel):
    """One layer of what a user may say about a job; None or empty where it says nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: StrictStr | None = None
    code: StrictStr | None = None
    boot: StrictStr | None = None
    command: StrictStr | None = None
    args: list[Text] | None = None
    nodes: StrictInt | None = None
    gpus_per_node: StrictInt | None = None
    flavor: StrictStr | None = None
    contract: StrictStr | None = None
    python: StrictStr | None = None
    port: StrictInt | None = None
    channels: StrictStr | None = None
    job_folder: StrictStr | None = None
    view: StrictStr | None = None
    cache: StrictStr | None = None
    install_requirements: StrictBool = False
    env: dict[str, Text] = {}
    keep: list[StrictStr] = []
    inputs: dict[str, StrictStr] = {}
    outputs: dict[str, StrictStr] = {}
    slurm: dict[str, SbatchValue] = {}


def read_job_file(path: Path) -> Settings:
    """Return the settings of a job file; its paths are meant relative to the file.

    Raises:
        BadValueError: with file, key, what was expected and the nearest right key.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise BadValueError(
            f"the job file {path} cannot be read: {error.strerror}", "Check the name after --job."
        ) from error
    except UnicodeDecodeError as error:
        raise BadValueError(f"{path} is not UTF-8: {error.reason}", "Save it as UTF-8.") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadValueError(
            f"{path} is not TOML: {error}", 'Write KEY = VALUE, texts in quotes: name = "train".'
        ) from error
    return _relative_to(_validated(data, str(path)), path.parent.absolute())


def read_config_file(environment: Mapping[str, str]) -> Settings:
    """Return the user's own defaults, empty where there is no config file."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    path = Path(home) / "slurm-adapter" / "config.toml"
    return read_job_file(path) if path.is_file() else Settings()


def settings_from_options(options: Mapping[str, Any]) -> Settings:
    """Return the settings that options of the command line make; names as in a job file."""
    return _validated({name: value for name, value in options.items() if value is not None}, "")


def merge(layers: Iterable[Settings]) -> Settings:
    """Return the layers on top of each other, the last one winning; tables merge by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name in sorted(layer.model_fields_set):
            value = getattr(layer, name)
            if isinstance(value, dict):
                value = {**merged.get(name, {}), **value}
            if name == "keep":
                value = [*merged.get(name, []), *value]
            merged[name] = value
        if layer.boot is not None and layer.command is None:
            merged.pop("command", None)  # a program given later takes the other one's place
        if layer.command is not None and layer.boot is None:
            merged.pop("boot", None)
    return Settings.model_construct(**merged)


def _validated(data: dict[str, Any], where: str) -> Settings:
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        found = [dict(one) for one in error.errors()]
        problems = [_problem(one) for one in found[:_NAMED_ERRORS]]
        if len(found) > _NAMED_ERRORS:
            problems.append(f"and {len(found) - _NAMED_ERRORS} more")
        prefix = f"{where}: " if where else ""
        raise BadValueError(prefix + "; ".join(problems), _remedy(found[0])) from error
    if settings.boot is not None and settings.command is not None:
        raise BadValueError(
            f"{f'{where}: ' if where else ''}a boot file and a command are two programs",
            "Give one of them.",
        )
    return settings


def _problem(error: dict[str, Any]) -> str:
    place = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"there is no key {place!r}"
    if error["type"] == "value_error":
        return f"{place}: {error['msg'].removeprefix('Value error, ')}"
    expected = _EXPECTED.get(error["type"], error["msg"])
    return f"{place} = {_as_toml(error['input'])} is not {expected}"


def _remedy(error: dict[str, Any]) -> str:
    """Return what to write instead, for the first problem."""
    place = str(error["loc"][0])
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        near = difflib.get_close_matches(place, list(Settings.model_fields), n=1)
        if near:
            return f"Did you mean {near[0]}?"
        return f"Known keys: {', '.join(Settings.model_fields)}."
    return f"Write it as in: {_EXAMPLES.get(place, _EXAMPLES['name'])}"


def _as_toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _relative_to(settings: Settings, folder: Path) -> Settings:
    """Make the paths of a file absolute. The boot file stays: it is meant inside the code."""
    base = str(folder)
    changes: dict[str, Any] = {
        name: absolute(value, base)
        for name in ("code", "job_folder")
        if (value := getattr(settings, name)) is not None
    }
    if settings.cache is not None:
        changes["cache"] = on_node(settings.cache, base)
    if settings.python is not None and "/" in settings.python:
        changes["python"] = absolute(settings.python, base)
    if settings.boot is not None and settings.code is None:
        changes["boot"] = absolute(settings.boot, base)
    for name in ("inputs", "outputs"):
        if channels := getattr(settings, name):
            changes[name] = {channel: given(path, base) for channel, path in channels.items()}
    return settings.model_copy(update=changes)

"""Job files: TOML becomes options, with errors that name the file, the key and the remedy.

The keys, what each may hold and how it is explained are those of the table of options. The same
keys stand in a job file, in the user's config file and behind the options of the command line: one
layer is a `JobOptions`, and `merge` puts layers on top of each other.
"""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictBool,
    StrictInt,
    StrictStr,
    create_model,
)

from slurm_adapter.config.toml import Text, as_text, read_toml, validated
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.option import (
    ARGUMENTS,
    CHANNELS,
    CHOICE,
    COMPONENTS,
    COUNT,
    FLAG,
    IMAGE,
    LIST,
    MOUNTS,
    NAMES,
    NETWORK,
    PATH_HERE,
    PATH_ON_NODE,
    PATH_THERE,
    PROGRAM,
    SBATCH,
    SECONDS,
    TEXT,
    VARIABLES,
    options_of,
)
from slurm_adapter.job.options import ComponentOptions, JobOptions
from slurm_adapter.job.remote_paths import at_login_host, rebased
from slurm_adapter.network.overrides import check_overrides, over
from slurm_adapter.paths import SITE_FILE, absolute, user_file
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slurm_adapter.job.option import Option

Options = TypeVar("Options", JobOptions, ComponentOptions)

# Options that take each other's place, and what is wrong with both.
_EITHER = {
    ("boot", "command"): "a boot file and a command are two programs",
    ("venv", "conda"): "venv and conda are two environments",
}


def _as_option(value: object) -> object:
    """A flag is `true` or left out; TOML reads an unquoted 02:00:00 as a time of day."""
    if value is True:
        return ""
    if value is False:
        raise ValueError("a flag that is not wanted is left out, not false")
    if isinstance(value, time):
        return value.isoformat()
    return as_text(value)


_TEXTS = (TEXT, CHOICE, PATH_HERE, PATH_THERE, PATH_ON_NODE, PROGRAM, IMAGE)
_TYPES: dict[str, Any] = {
    COUNT: StrictInt,
    SECONDS: float,
    FLAG: StrictBool,
    **dict.fromkeys(_TEXTS, StrictStr),
    **dict.fromkeys((LIST, NAMES, MOUNTS), list[StrictStr]),
    ARGUMENTS: list[Text],
    VARIABLES: dict[str, Text],
    CHANNELS: dict[str, StrictStr],
    SBATCH: dict[str, Annotated[StrictStr, BeforeValidator(_as_option)]],
    NETWORK: dict[str, Any],  # checked apart, as on a node
}
TABLES = (VARIABLES, CHANNELS, SBATCH, NETWORK, COMPONENTS)
"""Kinds that are a table of a file."""
_EXAMPLES = {COUNT: "2", FLAG: "true"}


def _model(name: str, keys: Mapping[str, Any]) -> type[BaseModel]:
    """Return what is validated: a table's keys with the types of their values."""
    fields: dict[str, Any] = {key: (kind, None) for key, kind in keys.items()}
    return create_model(name, __config__=ConfigDict(extra="forbid", frozen=True), **fields)


def _make_models() -> type[BaseModel]:
    """Return the model of a job file, with those of the tables in it."""
    component = _model("Component", {one.key: _TYPES[one.kind] for one in _keyed(ComponentOptions)})
    types = {**_TYPES, COMPONENTS: list[component]}  # type: ignore[valid-type]
    keys: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for one in _keyed(JobOptions):
        table, _, key = one.key.rpartition(".")
        (tables.setdefault(table, {}) if table else keys)[key] = types[one.kind]
        if table:
            keys[table] = None  # its place among the others
    for table, inner in tables.items():
        keys[table] = _model(table, inner)
    return _model("JobFile", keys)


def _keyed(cls: type) -> Sequence[Option]:
    return [one for one in options_of(cls) if one.key]


def _example(option: Option) -> str:
    """Return what is right for a key of a file."""
    if option.kind in TABLES or "." in option.key:
        return option.example
    given = option.example or _EXAMPLES.get(option.kind, "")
    return f"{option.key} = {given or _quoted(option)}"


def _quoted(option: Option) -> str:
    return f'"{option.choices[0] if option.choices else option.metavar}"'


_FILE = _make_models()
EXAMPLES = {
    key: example
    for one in reversed(_keyed(JobOptions))
    for key, example in [(one.key.partition(".")[0], _example(one))]
    if example
}
"""What is right for a key of a job file; for a table, what may stand in it."""


def read_job_file(path: Path, *, at_login: bool = False) -> JobOptions:
    """Return what a job file says; its paths are meant relative to the file.

    Args:
        path: the file's.
        at_login: whether the paths that are the job's own lie on other machines: see
            `remote_paths.at_login_host`.

    Raises:
        BadValueError: with file, key, what was expected and the nearest right key.
    """
    data = read_toml(path, "job file", "--job", 'name = "train"')
    said = _from_tables(data, str(path))
    if at_login:
        said = at_login_host(
            said, lambda one, item: f"{path}: {one.key}{f'.{item}' if item else ''}"
        )
    base = str(path.parent.absolute())
    if said.boot is not None and said.code is None:  # else it is meant inside the code
        said = replace(said, boot=absolute(said.boot, base))
    return rebased(said, base)


def read_config_files(
    environment: Mapping[str, str], *, at_login: bool = False
) -> list[JobOptions]:
    """Return the site's defaults and the user's own; a file that is not there says nothing."""
    paths = (Path(SITE_FILE), Path(user_file(environment)))
    return [read_job_file(path, at_login=at_login) for path in paths if path.is_file()]


def read_components(tables: Sequence[Mapping[str, object]]) -> tuple[ComponentOptions, ...] | None:
    """Return what tables as in `[[parts]]` say, typed on a command line; None where there are none.

    Raises:
        BadValueError: as `read_job_file`.
    """
    return _from_tables({"parts": list(tables)}, "").components if tables else None


def check_pairs(said: JobOptions, where: str = "") -> JobOptions:
    """Return what was said, or raise `BadValueError` for two things of which one is meant."""
    for (one, other), why in _EITHER.items():
        if getattr(said, one) is not None and getattr(said, other) is not None:
            raise BadValueError(f"{f'{where}: ' if where else ''}{why}", "Give one of them.")
    return said


def merge(layers: Iterable[JobOptions]) -> JobOptions:
    """Return the layers on top of each other, the last one winning; tables merge by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        if layer.hosts_file is not None:  # takes the place of a list below it
            merged.pop("hosts", None)
        for option in options_of(JobOptions):
            value = getattr(layer, option.name)
            if value is not None:
                below = merged.get(option.name)
                merged[option.name] = value if below is None else _over(option.kind, below, value)
        for one, other in _EITHER:
            for new, old in ((one, other), (other, one)):
                if getattr(layer, new) is not None and getattr(layer, old) is None:
                    merged.pop(old, None)  # what is given later takes the other one's place
    return JobOptions(**merged)


def _over(kind: str, below: Any, value: Any) -> Any:
    """Return a value on top of another."""
    if kind == NETWORK:
        return over(below, value)
    if kind == NAMES:
        return (*below, *value)
    return {**below, **value} if isinstance(value, dict) else value


def _from_tables(data: dict[str, Any], where: str) -> JobOptions:
    model = validated(_FILE, data, where, EXAMPLES)
    said = _as_options(JobOptions, model)
    if said.network is not None:
        said = replace(said, network=check_overrides(said.network, where))
    return check_pairs(said, where)


def _as_options(cls: type[Options], model: BaseModel) -> Options:
    return cls(**dict(_said(cls, model)))


def _said(cls: type, model: BaseModel) -> Iterator[tuple[str, Any]]:
    """Yield what a file's tables say, by the field of its option."""
    for option in _keyed(cls):
        *tables, key = option.key.split(".")
        found: BaseModel | None = model
        for table in tables:
            found = getattr(found, table)
        if found is not None and key in found.model_fields_set:
            yield option.name, _frozen(option.kind, getattr(found, key))


def _frozen(kind: str, value: Any) -> Any:
    if kind == COMPONENTS:
        return tuple(_as_options(ComponentOptions, one) for one in value)
    if kind == SBATCH:
        return {name: text or None for name, text in value.items()}
    return tuple(value) if isinstance(value, list) else value

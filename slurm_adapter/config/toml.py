"""TOML files that users write: read, validated, and mistakes said with file, key and remedy."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, StrictStr, ValidationError

from slurm_adapter.errors import BadValueError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Model = TypeVar("Model", bound=BaseModel)

_NAMED_ERRORS = 3
_EXPECTED = {
    "int_type": "a whole number",
    "string_type": "a text in quotes",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "bool_type": "true or false",
}


def as_text(value: object) -> object:
    """Numbers may stand unquoted where a text is meant; booleans may not: which text is true?"""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


Text = Annotated[StrictStr, BeforeValidator(as_text)]


def read_toml(path: Path, what: str, option: str, example: str) -> dict[str, Any]:
    """Return a file's tables.

    Args:
        path: the file.
        what: what it is to the user: `job file`.
        option: the option that named it, for the remedy.
        example: a line that is right.

    Raises:
        BadValueError: where it cannot be read or is not TOML.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadValueError(
            f"the {what} {path} cannot be read: {error.strerror}", f"Check the name after {option}."
        ) from error
    except UnicodeDecodeError as error:
        raise BadValueError(f"{path} is not UTF-8: {error.reason}", "Save it as UTF-8.") from error
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadValueError(
            f"{path} is not TOML: {error}", f"Write KEY = VALUE, texts in quotes: {example}."
        ) from error
    return tables


def validated(
    model: type[Model], data: dict[str, Any], where: str, examples: Mapping[str, str]
) -> Model:
    """Return the data as a model.

    Args:
        model: what keys there are.
        data: the file's tables, or options by name.
        where: the file, empty for options.
        examples: what is right for a key of the file, by name; the first one stands for the rest.

    Raises:
        BadValueError: with each key that is wrong (three at most), what was expected of it, and
            the nearest right key or an example.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = [dict(one) for one in error.errors()]
        problems = [_problem(one) for one in found[:_NAMED_ERRORS]]
        if len(found) > _NAMED_ERRORS:
            problems.append(f"and {len(found) - _NAMED_ERRORS} more")
        prefix = f"{where}: " if where else ""
        remedy = _remedy(model, found[0], examples)
        raise BadValueError(prefix + "; ".join(problems), remedy) from error


def _problem(error: dict[str, Any]) -> str:
    place = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"there is no key {place!r}"
    if error["type"] == "value_error":
        return f"{place}: {error['msg'].removeprefix('Value error, ')}"
    expected = _EXPECTED.get(error["type"], error["msg"])
    return f"{place} = {_as_toml(error['input'])} is not {expected}"


def _remedy(model: type[BaseModel], error: dict[str, Any], examples: Mapping[str, str]) -> str:
    """Return what to write instead, for the first problem."""
    *tables, key = map(str, error["loc"])
    if error["type"] == "extra_forbidden":
        known = _keys_of(model, tables)
        if near := difflib.get_close_matches(key, known, n=1):
            return f"Did you mean {near[0]}?"
        return f"Known keys: {', '.join(known)}."
    first = str(error["loc"][0])
    return f"Write it as in: {examples.get(first) or next(iter(examples.values()))}"


def _keys_of(model: type[BaseModel], tables: list[str]) -> list[str]:
    """Return the keys of a table inside a file, given the keys that lead to it."""
    found: Any = model
    for table in tables:
        inner = isinstance(found, type) and issubclass(found, BaseModel)
        found = found.model_fields[table].annotation if inner else get_args(found)[-1]
    return list(found.model_fields)


def _as_toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)

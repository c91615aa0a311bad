"""What people are shown of a record: its signature, its fields with the texts below them, refusals.

Worked out when somebody asks, from the source where that is at hand; nothing else loads it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import MappingProxyType

_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
    "None": "None",
}
_LONGEST_SHOWN = 60


class _Annotation(str):
    """The text of an annotation, shown without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Shown:
    """A default value, shown as one would write it."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "{}" if _is_empty_mapping(self._value) else repr(self._value)


def _is_empty_mapping(value: object) -> bool:
    return hasattr(value, "items") and not value


def signature(cls: type) -> inspect.Signature:
    """Return how a record is made."""
    own = vars(cls)
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=_Shown(own[name]) if name in own else inspect.Parameter.empty,
                annotation=_Annotation(annotation),
            )
            for name, annotation in cls.__annotations__.items()
        ]
    )


def documentation(cls: type, written: str | None) -> str:
    """Return a record's own text, and below it its fields."""
    texts = dict(_texts(cls))
    own: MappingProxyType[str, object] = vars(cls)
    lines = [inspect.cleandoc(written or ""), "", "Fields:"]
    for name, annotation in cls.__annotations__.items():
        default = f" = {_Shown(own[name])!r}" if name in own else ""
        lines.append(f"    {name}: {annotation}{default}")
        if name in texts:
            lines.append(textwrap.indent(texts[name], " " * 8))
    return "\n".join(lines)


def _texts(cls: type) -> Iterator[tuple[str, str]]:
    """Yield (field, text) for each that has one below it; none where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return
    (found,) = tree.body
    body = found.body if isinstance(found, ast.ClassDef) else []
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield field.target.id, inspect.cleandoc(text.value.value)


def refusal(cls: type, name: str, value: object, kinds: Sequence[str]) -> BadValueError:
    """Return the error for a field's value that is of none of its kinds: what to write there."""
    shown = repr(value)
    if len(shown) > _LONGEST_SHOWN:
        shown = shown[:_LONGEST_SHOWN] + "..."
    return BadValueError(
        f"{cls.__name__}: {name}={shown} is not {_said(kinds, cls)}",
        _remedy(name, kinds[0], value, cls),
    )


def _said(kinds: Sequence[str], cls: type) -> str:
    """Return words for what a field takes; a name that stands for several classes as those."""
    words = []
    for part in kinds:
        known = getattr(sys.modules[cls.__module__], part, None)
        names = [one.__name__ for one in getattr(known, "__args__", ())] or [part]
        words += [_WORDS.get(name, f"a {name}") for name in names]
    return " or ".join(words)


def _remedy(name: str, first: str, value: object, cls: type) -> str:
    """Return what to write in the place of a value, where that can be told from it."""
    if isinstance(value, str) and first == "int" and value.strip().isdecimal():
        return f"Give the number itself: {name}={int(value)}."
    if isinstance(value, str) and first == "tuple[str, ...]":
        return f"Give a tuple of words: {name}={tuple(value.split())!r}."
    if isinstance(value, (list, set)) and first.startswith("tuple["):
        return f"Give a tuple: {name}=tuple(...)."
    if first == "str" and hasattr(value, "__fspath__"):
        return f"Give it as text: {name}=str(...)."
    return f"help(slurm_adapter.{cls.__name__}) shows the fields and what they take."

"""Frozen dataclasses for code that starts with every rank.

The standard library's `dataclasses` loads `inspect` and compiles text for each class: 20 ms of
the 35 ms that a rank's start may cost. This decorator gives what is used of it: an initialiser
with defaults, equality, a repr, immutability, `__post_init__`, patterns in `match`, copies and
pickles. Type checkers take it for `dataclass(frozen=True)`. What `help` shows (the signature, the
fields with the texts below them) is worked out when somebody asks.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from functools import cached_property as cached_property  # noqa: PLC0414 - said to be public
    from typing import Any, TypeVar

    from typing_extensions import dataclass_transform

    T = TypeVar("T")

    @dataclass_transform(frozen_default=True)
    def record(cls: type[T]) -> type[T]:
        """Make a class with annotated fields an immutable value."""
        return cls

    @dataclass_transform(frozen_default=True)
    def checked_record(cls: type[T]) -> type[T]:
        """Make a record that users make themselves: a value of another type is refused."""
        return cls

else:

    class cached_property:  # noqa: N801 - as the standard library's, whose `functools` costs 3 ms
        """A value worked out when first asked for, and kept in the instance."""

        def __init__(self, work_out: Callable[[Any], Any]) -> None:
            self._work_out = work_out
            self.__doc__ = work_out.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._work_out(instance)
            return value

    def record(cls: type[T]) -> type[T]:
        """Make a class with annotated fields an immutable value."""
        return _make_record(cls)

    def checked_record(cls: type[T]) -> type[T]:
        """Make a record that users make themselves: a value of another type is refused."""
        return _make_record(cls, checked=True)


def _make_record(cls: type[T], *, checked: bool = False) -> type[T]:
    fields = tuple(cls.__annotations__)
    defaults = {name: cls.__dict__[name] for name in fields if name in cls.__dict__}
    known = frozenset(fields)
    hooks: list[Callable[[Any], None]] = [_check_types] if checked else []
    hooks += [cls.__dict__["__post_init__"]] if "__post_init__" in cls.__dict__ else []

    def __init__(self: Any, *values: object, **named: object) -> None:  # noqa: N807
        state = self.__dict__
        state.update(defaults)
        if values:
            state.update(zip(fields, values, strict=False))
        state.update(named)
        # Hundreds of nodes are made of this for each rank: names are only looked at all together.
        if state.keys() != known or (values and not named.keys() <= set(fields[len(values) :])):
            raise _misuse(cls.__name__, fields, values, named, defaults)
        if len(values) > len(fields):
            raise TypeError(f"{cls.__name__} takes {len(fields)} values, got {len(values)}")
        for hook in hooks:
            hook(self)

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        return type(other) is cls and _values(self, fields) == _values(other, fields)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(_values(self, fields))

    def __repr__(self: Any) -> str:  # noqa: N807
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"{cls.__name__}({shown})"

    attributes = {
        "__init__": __init__,
        "__eq__": __eq__,
        "__hash__": __hash__,
        "__repr__": __repr__,
        "__setattr__": _refuse_set,
        "__delattr__": _refuse_delete,
        "__reduce__": _reduce,
        "__match_args__": fields,
        "__signature__": _WhenAsked("__signature__", None),
        "__doc__": _WhenAsked("__doc__", cls.__doc__),
    }
    for name, attribute in attributes.items():
        setattr(cls, name, attribute)
    return cls


def _misuse(
    name: str,
    fields: tuple[str, ...],
    values: tuple[object, ...],
    named: Mapping[str, object],
    defaults: Mapping[str, object],
) -> TypeError:
    """Return what is wrong with the values that a record was to be made of."""
    wrong = sorted(named.keys() - set(fields[len(values) :]))
    if wrong:
        return TypeError(f"{name} has no field, or got twice: {', '.join(wrong)}")
    given = {*defaults, *fields[: len(values)], *named}
    missing = [field for field in fields if field not in given]
    return TypeError(f"{name} lacks {', '.join(missing)}")


def replace(value: T, **changes: object) -> T:
    """Return a copy of a record with some fields changed; it is checked like a new one."""
    fields: tuple[str, ...] = type(value).__match_args__  # type: ignore[attr-defined]
    return type(value)(**{**dict(zip(fields, _values(value, fields), strict=True)), **changes})


def as_dict(value: object) -> dict[str, Any]:
    """Return a record's fields by name, in order; values as they are."""
    fields: tuple[str, ...] = type(value).__match_args__  # type: ignore[attr-defined]
    return dict(zip(fields, _values(value, fields), strict=True))


def changed_fields(value: object) -> dict[str, Any]:
    """Return those of a record's fields by name that are not what they would be by default."""
    defaults = type(value).__dict__
    return {
        name: one
        for name, one in as_dict(value).items()
        if name not in defaults or one is not defaults[name]
    }


def _values(value: object, fields: tuple[str, ...]) -> tuple[object, ...]:
    state = value.__dict__
    return tuple(state[name] for name in fields)


def _refuse_set(self: object, name: str, _: object) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed: use replace()")


def _refuse_delete(self: object, name: str) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be taken away")


_PLAIN = {"str": str, "int": int, "float": (int, float), "bool": bool}


class _WhenAsked:
    """An attribute of a class that is worked out when somebody reads it."""

    def __init__(self, name: str, written: str | None) -> None:
        self._name, self._written = name, written

    def __get__(self, instance: Any, owner: type) -> Any:
        from slurm_adapter import record_help

        if self._name == "__signature__":
            return record_help.signature(owner)
        return record_help.documentation(owner, self._written)


def _reduce(self: object) -> tuple[Any, ...]:
    """Return how a copy is made: of what differs from the defaults, checked like a new one."""
    # An empty mapping that nobody may change stands for none given, and cannot be pickled.
    changed = {
        name: dict(one) if type(one).__name__ == "mappingproxy" else one
        for name, one in changed_fields(self).items()
    }
    return _remake, (type(self), changed)


def _remake(cls: type[T], fields: Mapping[str, object]) -> T:
    return cls(**fields)


def _check_types(value: object) -> None:
    """Refuse the first field whose value is not of the type that it is annotated with."""
    cls, state = type(value), value.__dict__
    for name, annotation in cls.__annotations__.items():
        one = state[name]
        if cls.__dict__.get(name, _check_types) is one:
            continue
        if not _fits(annotation, one, cls):
            from slurm_adapter.record_help import refusal

            raise refusal(cls, name, one, _split(annotation, "|"))


def _fits(annotation: str, value: object, cls: type) -> bool:
    return any(_fits_one(one, value, cls) for one in _split(annotation, "|"))


def _fits_one(annotation: str, value: Any, cls: type) -> bool:
    if annotation == "None":
        return value is None
    if annotation in _PLAIN:
        right: Any = _PLAIN[annotation]
        return isinstance(value, right) and (annotation == "bool" or not isinstance(value, bool))
    head, _, inside = annotation.partition("[")
    if not inside:
        return _is_named(annotation, value, cls)
    parts = _split(inside[:-1], ",")
    if head == "tuple":
        if parts[-1] == "...":
            parts = parts[:1] * len(value) if isinstance(value, tuple) else parts
        return (
            isinstance(value, tuple)
            and len(value) == len(parts)
            and all(_fits(part, one, cls) for part, one in zip(parts, value, strict=True))
        )
    return hasattr(value, "items") and all(
        _fits(parts[0], key, cls) and _fits(parts[1], one, cls) for key, one in value.items()
    )


def _is_named(annotation: str, value: object, cls: type) -> bool:
    """Say whether a value is of a class, or of one of several, that its module calls so."""
    if annotation == "Any":
        return True
    known = getattr(sys.modules[cls.__module__], annotation, None)
    if known is None:  # the module knows it for type checkers alone
        return type(value).__name__ == annotation
    return isinstance(value, known)


def _split(text: str, separator: str) -> list[str]:
    """Return the parts of an annotation that stand between separators outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == separator and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]

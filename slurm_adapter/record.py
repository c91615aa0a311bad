"""Frozen dataclasses for the floors that start with every rank.

The standard library's `dataclasses` loads `inspect` and compiles text for each class: 20 ms of
the 35 ms that a rank's start may cost. This decorator gives what is used of it: an initialiser
with defaults, equality, a repr, immutability, `__post_init__`, and patterns in `match`.
Type checkers take it for `dataclass(frozen=True)`.
"""

from __future__ import annotations

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


def _make_record(cls: type[T]) -> type[T]:
    fields = tuple(cls.__annotations__)
    defaults = {name: cls.__dict__[name] for name in fields if name in cls.__dict__}
    known = frozenset(fields)
    post_init = cls.__dict__.get("__post_init__")

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
        if post_init is not None:
            post_init(self)

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        return type(other) is cls and _values(self, fields) == _values(other, fields)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(_values(self, fields))

    def __repr__(self: Any) -> str:  # noqa: N807
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"{cls.__name__}({shown})"

    for method in (__init__, __eq__, __hash__, __repr__, _refuse_set, _refuse_delete):
        setattr(cls, _NAMES.get(method.__name__, method.__name__), method)
    setattr(cls, "__match_args__", fields)  # noqa: B010 - mypy knows no such attribute
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


_NAMES = {"_refuse_set": "__setattr__", "_refuse_delete": "__delattr__"}


def _values(value: object, fields: tuple[str, ...]) -> tuple[object, ...]:
    state = value.__dict__
    return tuple(state[name] for name in fields)


def _refuse_set(self: object, name: str, _: object) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed: use replace()")


def _refuse_delete(self: object, name: str) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be taken away")

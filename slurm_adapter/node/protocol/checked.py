"""An agent's messages as the head takes them: nothing that a node sends is trusted.

Names, fields and their types must be those of the records; sizes are bounded. Never loaded by an
agent.
"""

from __future__ import annotations

import json
import struct
from functools import cache
from types import UnionType
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from slurm_adapter.node.protocol import copy_messages, login_messages, messages
from slurm_adapter.node.protocol.encoding import name_of, read_bulk
from slurm_adapter.node.protocol.framing import MESSAGE, BrokenMessageError
from slurm_adapter.node.protocol.messages import AgentMessage

_MOST_BYTES = 32 << 20
_MOST_NUMBER = 1 << 63
_NONSENSE = "what it sends makes no sense"


def read_agent_message(kind: bytes, body: bytes) -> AgentMessage:
    """Return a message of an agent.

    Raises:
        BrokenMessageError: it is none.
    """
    try:
        bulk = read_bulk(kind, body)
        if bulk is not None:
            return bulk
        if kind == MESSAGE and len(body) <= _MOST_BYTES:
            return _read(body)
    except (ValueError, TypeError, KeyError, RecursionError, struct.error) as error:
        raise BrokenMessageError(_NONSENSE) from error
    raise BrokenMessageError(_NONSENSE)


def _read(body: bytes) -> AgentMessage:
    name, given = json.loads(body, parse_constant=_refuse)
    kind, hints = _kinds()[name]
    if not isinstance(given, dict) or given.keys() != hints.keys():
        raise ValueError(name)
    message: AgentMessage = kind(**{field: _of_type(hints[field], given[field]) for field in hints})
    return message


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


@cache
def _kinds() -> dict[str, tuple[type[AgentMessage], dict[str, Any]]]:
    """Return what an agent may tell by name, with the types of its fields."""
    modules = (messages, copy_messages, login_messages)
    kinds = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    return {
        name_of(kind): (kind, get_type_hints(kind))
        for kind in kinds
        if issubclass(kind, AgentMessage) and kind is not AgentMessage
    }


def _of_type(hint: Any, value: Any) -> Any:
    """Return a value as a field of that type has it.

    Raises:
        ValueError: it is of another type.
    """
    if isinstance(hint, UnionType):  # X | None
        return None if value is None else _of_type(get_args(hint)[0], value)
    if get_origin(hint) is tuple:
        return _as_tuple(get_args(hint), value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint or (hint is int and abs(value) >= _MOST_NUMBER):
        raise ValueError(hint)
    return value


def _as_tuple(hints: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(hints)  # noqa: TRY004 - of a node, not of a caller
    if hints[-1] is Ellipsis:
        return tuple([_of_type(hints[0], one) for one in value])
    return tuple([_of_type(hint, one) for hint, one in zip(hints, value, strict=True)])

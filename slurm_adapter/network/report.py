"""What a node tells the head of its network, and back: JSON, since nothing it sends is trusted."""

from __future__ import annotations

import json

from slurm_adapter.network.gids import NcclVersion
from slurm_adapter.network.interfaces import Address, Interface
from slurm_adapter.network.rdma import Gid, Port
from slurm_adapter.record import as_dict, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")

_TEXT, _COUNT, _PERHAPS = (str,), (int,), (int, type(None))
_TYPES: dict[type, dict[str, tuple[type, ...]]] = {
    Address: {"ip": _TEXT, "prefix": _COUNT, "scope": _TEXT},
    Interface: {"name": _TEXT, "kind": _TEXT, "speed_mbps": _PERHAPS},
    Gid: {"index": _COUNT, "value": _TEXT, "kind": _TEXT},
    Port: {
        "device": _TEXT,
        "number": _COUNT,
        "layer": _TEXT,
        "gbps": (int, float),
        "ports": _COUNT,
    },
}


@record
class Report:
    """One node's network, as the node itself sees it."""

    interfaces: tuple[Interface, ...]
    ports: tuple[Port, ...]
    nccl: NcclVersion | None
    """None where nothing depends on it."""
    given: Mapping[str, str]
    """Which of the variables that are looked at its ranks would inherit there."""
    gpus_near: Mapping[str, str]
    """For each HCA, words for the GPUs beside it."""
    listens: int
    """The port at which it waits for the connections that try the network; 0: nowhere."""

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(_plain(as_dict(self)), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return what a node has told.

        Raises:
            ValueError: where it is none of our making.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            nccl = document["nccl"]
            return cls(
                interfaces=tuple(map(_interface, document["interfaces"])),
                ports=tuple(map(_port, document["ports"])),
                nccl=None if nccl is None else _nccl(nccl),
                given=_texts(document["given"]),
                gpus_near=_texts(document["gpus_near"]),
                listens=_number(document["listens"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it lacks {error}") from error


def _plain(value: Any) -> Any:
    """Return records as dictionaries, tuples as lists."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return _plain(as_dict(value)) if hasattr(type(value), "__match_args__") else value


def _interface(document: dict[str, Any]) -> Interface:
    addresses = tuple(_made(Address, one) for one in document.pop("addresses"))
    members = tuple(map(str, document.pop("members")))
    return _made(Interface, {**document, "addresses": addresses, "members": members})


def _port(document: dict[str, Any]) -> Port:
    gids = tuple(_made(Gid, one) for one in document.pop("gids"))
    return _made(Port, {**document, "gids": gids})


def _made(kind: type[T], fields: dict[str, Any]) -> T:
    """Return a record of what was told, each value of the type that is used below."""
    found = kind(**fields)
    for name, wanted in _TYPES[kind].items():
        _check(getattr(found, name), *wanted)
    return found


def _nccl(document: dict[str, Any]) -> NcclVersion:
    number = document["number"]
    found = None if number is None else tuple(map(_number, number))
    return NcclVersion(found, str(document["where"]))


def _texts(document: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in document.items()}


def _number(value: object) -> int:
    _check(value, int)
    return int(value)  # type: ignore[call-overload, no-any-return]


def _check(value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        raise TypeError(f"{value!r} is no {kinds[0].__name__}")

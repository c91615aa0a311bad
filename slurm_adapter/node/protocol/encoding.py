"""Messages as frames: the head's, and an agent's on their way out; `checked` reads the latter.

The head's travel as `marshal`: whoever reads it must trust its sender, as an agent does anyway,
which got its own code from there. An agent's travel as JSON, bulk apart.
"""

from __future__ import annotations

import struct
import sys

from slurm_adapter.node.protocol.framing import BEAT, DATA, ENDED, MESSAGE, OUTPUT, frame
from slurm_adapter.node.protocol.messages import Beat, Data, RankEnded, RankOutput
from slurm_adapter.node.protocol.records import pack, unpack
from slurm_adapter.record import as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.node.protocol.messages import AgentMessage, Request

_OUTPUT = struct.Struct(">IB")
_ENDED = struct.Struct(">IIQ")
_DATA = struct.Struct(">I")
BEAT_FRAME = frame(BEAT)


def name_of(kind: type) -> str:
    """Return the name of a message on its way: the module beside this one, and the record."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def request_frame(request: Request) -> bytes:
    """Return a message of the head as bytes."""
    if isinstance(request, Data):
        return frame(DATA, _DATA.pack(request.number) + request.piece)
    return frame(MESSAGE, pack((name_of(type(request)), as_dict(request))))


def read_request(kind: bytes, body: bytes) -> Request:
    """Return a message of the head; its module is loaded with the first of its kind."""
    if kind == BEAT:
        return Beat()
    if kind == DATA:
        return Data(_DATA.unpack_from(body)[0], body[_DATA.size :])
    name, fields = unpack(body)
    module, _, own = name.partition(".")
    path = f"{__package__}.{module}"
    __import__(path)
    request: Request = getattr(sys.modules[path], own)(**fields)
    return request


def agent_frame(message: AgentMessage) -> bytes:
    """Return a message of an agent as bytes."""
    if isinstance(message, RankOutput):
        return frame(OUTPUT, _OUTPUT.pack(message.rank, message.is_error) + message.lines)
    if isinstance(message, RankEnded):
        ended = _ENDED.pack(message.rank, message.status, int(message.at_s * 1e6))
        return frame(ENDED, ended)
    if isinstance(message, Data):
        return frame(DATA, _DATA.pack(message.number) + message.piece)
    if isinstance(message, Beat):
        return BEAT_FRAME
    return frame(MESSAGE, _json([name_of(type(message)), as_dict(message)]).encode())


def read_bulk(kind: bytes, body: bytes) -> AgentMessage | None:
    """Return a message of an agent that is no JSON; None where it is.

    Raises:
        struct.error: it is too short or too long.
    """
    if kind == OUTPUT:
        rank, is_error = _OUTPUT.unpack_from(body)
        return RankOutput(rank, body[_OUTPUT.size :], bool(is_error))
    if kind == ENDED:
        rank, status, at_us = _ENDED.unpack(body)
        return RankEnded(rank, status, at_us / 1e6)
    if kind == DATA:
        return Data(_DATA.unpack_from(body)[0], body[_DATA.size :])
    return Beat() if kind == BEAT else None


def _json(value: object) -> str:
    """Return JSON text, undecodable bytes of paths in it as the surrogates that stand for them."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_json(key)}:{_json(one)}" for key, one in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_json, value)) + "]"
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _quoted(text: str) -> str:
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        from json.encoder import encode_basestring_ascii
    quoted: str = encode_basestring_ascii(text)
    return quoted

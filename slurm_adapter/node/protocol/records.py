"""Job, cluster and run on their way from the head to an agent: records as bytes.

Only in that direction: `marshal` is fast and always there, and whoever reads it must trust its
sender, as an agent does anyway, which got its own code from there.
"""

from __future__ import annotations

import marshal

from slurm_adapter.cluster.cluster import Cluster, Node, Run
from slurm_adapter.job.job import Argv, Boot, Channel, Command, Job
from slurm_adapter.job.options import JobOptions
from slurm_adapter.record import changed_fields
from slurm_adapter.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_RECORDS: dict[str, Any] = {
    one.__name__: one
    for one in (Argv, Boot, Channel, Cluster, Command, Job, JobOptions, Node, Run, Setting)
}
_SIMPLE = frozenset({str, int, float, bool, bytes, type(None)})
# The newest form that every supported Python reads.
_VERSION = 4


def pack(value: object) -> bytes:
    """Return a record, or a tuple or dictionary of them, as bytes."""
    return marshal.dumps(_plain(value), _VERSION)


def unpack(data: bytes) -> Any:
    """Return what was packed."""
    return _whole(marshal.loads(data))  # noqa: S302 - see above


def _plain(value: Any) -> Any:
    """Return records as tuples (name, fields), tuples as lists, mappings as dictionaries."""
    if type(value) in _SIMPLE:
        return value
    name = type(value).__name__
    if _RECORDS.get(name) is type(value):
        return name, {field: _plain(one) for field, one in changed_fields(value).items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if hasattr(value, "items"):
        return {key: _plain(one) for key, one in value.items()}
    return value


def _whole(value: Any) -> Any:
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if kind is tuple:
        name, fields = value
        return _RECORDS[name](**{field: _whole(one) for field, one in fields.items()})
    if kind is list:
        return tuple([_whole(one) for one in value])
    return {key: _whole(one) for key, one in value.items()}

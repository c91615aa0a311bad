"""A job and the nodes' parts of its plan on their way from the head to agents: records as bytes.

Only in that direction: `marshal` is fast and always there, and whoever reads it must trust its
sender, as an agent does anyway, which got its own code from there. What the nodes of a plan have
alike is worked out and packed once for all of them.
"""

from __future__ import annotations

import marshal

from slurm_adapter.cluster import Node
from slurm_adapter.contracts.place import Workers
from slurm_adapter.job.job import Argv, Boot, Channel, Command, Job
from slurm_adapter.job.options import JobOptions
from slurm_adapter.plan import NodePlan, RankPlan
from slurm_adapter.record import as_dict, changed_fields
from slurm_adapter.setting import Hole, Removal, Setting, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_RECORDS: dict[str, Any] = {
    one.__name__: one
    for one in (
        *(Argv, Boot, Channel, Command, Job, JobOptions),
        *(Hole, Node, Removal, Setting, Word, Workers),
    )
}
_SIMPLE = frozenset({str, int, float, bool, bytes, type(None)})
# The newest form that every supported Python reads.
_VERSION = 4
# What is each node's own; a rank's are in its difference to the first.
_OWN = ("index", "node", "ranks")


def pack(value: object) -> bytes:
    """Return a record, or a tuple or dictionary of them, as bytes."""
    return marshal.dumps(_plain(value), _VERSION)


def unpack(data: bytes) -> Any:
    """Return what was packed."""
    return _whole(marshal.loads(data))  # noqa: S302 - see above


def pack_plans(plans: Iterable[NodePlan]) -> Iterator[bytes]:
    """Yield each node's part of a plan as bytes.

    The first node with a level of the view stands for all that have it: their ranks are told by
    what they have other than its first one.
    """
    shared: dict[str, tuple[RankPlan, bytes]] = {}
    for plan in plans:
        level = plan.node.view
        if level not in shared:
            first = plan.ranks[0]
            alike = {name: one for name, one in as_dict(plan).items() if name not in _OWN}
            shared[level] = first, pack((alike, _rank_fields(first)))
        first, packed = shared[level]
        ranks = [_difference(rank, first) for rank in plan.ranks]
        own = pack((plan.index, plan.node, ranks))
        yield marshal.dumps((packed, own), _VERSION)


def unpack_plan(data: bytes) -> NodePlan:
    """Return a node's part of a plan."""
    shared, own = marshal.loads(data)  # noqa: S302 - see above
    alike, first = unpack(shared)
    index, node, ranks = unpack(own)
    settings = {item.name: item for item in first["settings"]}
    plans = tuple(_rank(index, node, first, settings, *rank) for rank in ranks)
    return NodePlan(index=index, node=node, ranks=plans, **alike)


def _rank_fields(rank: RankPlan) -> dict[str, Any]:
    fields = as_dict(rank)
    del fields["node"], fields["node_index"]
    return {**fields, "kept": sorted(rank.kept)}


def _difference(rank: RankPlan, first: RankPlan) -> tuple[Any, ...]:
    """Return what `_rank` makes a rank of, beside another one."""
    ours, theirs = ({item.name: item for item in one.settings} for one in (rank, first))
    alike = list(ours) == list(theirs)
    changed = [item for name, item in ours.items() if item != theirs.get(name)]
    return (
        rank.rank,
        rank.local_rank,
        None if rank.argv == first.argv else rank.argv,
        None if rank.cwd == first.cwd else rank.cwd,
        changed,
        None if alike else list(ours),
    )


def _rank(
    index: int, node: Node, first: dict[str, Any], settings: dict[str, Setting], *difference: Any
) -> RankPlan:
    rank, local_rank, argv, cwd, changed, names = difference
    own = settings | {item.name: item for item in changed}
    return RankPlan(
        rank=rank,
        node_index=index,
        node=node,
        local_rank=local_rank,
        argv=first["argv"] if argv is None else argv,
        cwd=cwd or first["cwd"],
        settings=tuple(own.values() if names is None else [own[name] for name in names]),
        removals=first["removals"],
        kept=frozenset(first["kept"]),
    )


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

"""Host lists and host files: the nodes they name, and which of them a run takes.

The order is that of the list: the first host is node 0. A list that cannot be read, names
nothing or names a host twice is an error; this machine never stands in for it (SSH-08).
"""

from __future__ import annotations

import re
from types import MappingProxyType

from slurm_adapter.cluster import Cluster, Node
from slurm_adapter.cluster.host_fields import SSH_PORT, host_key, ip_address, quoted
from slurm_adapter.cluster.host_line import Entry, read_line, read_names
from slurm_adapter.cluster.hostlist import MOST_HOSTS, fold_hostlist
from slurm_adapter.errors import BadValueError, NodeListError
from slurm_adapter.record import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from slurm_adapter.errors import AdapterError

_LINE_BREAK = re.compile(r"\r\n|\n|\r")


@record
class Hosts:
    """What a host list or host file says: all its nodes, and the groups it gives names to."""

    nodes: tuple[Node, ...]
    """In the order of the list; names differ, and so do addresses with their ports."""
    source: str
    """Said in errors and reasons, e.g. `the host file lab.toml`."""
    groups: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Names of nodes by the name of their group."""

    def by_key(self) -> dict[str, Node]:
        """Return the nodes by what all spellings of their names have in common."""
        return {host_key(node.name): node for node in self.nodes}


def read_host_file(path: str) -> Hosts:
    """Return the hosts of a text file.

    Raises:
        AdapterError: for a file that cannot be read (SSH-08 a), and as `read_host_text`.
    """
    try:
        with open(path, "rb") as file:
            # Some editors put a mark before the text.
            text = file.read().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadValueError(
            f"the host file {path} cannot be read: {reason}",
            "Check the name after --hosts; a list of hosts is given with -H.",
        ) from error
    return read_host_text(text, path)


def read_host_text(text: str, name: str) -> Hosts:
    """Return the hosts of lines of text: `#` begins a comment, blank lines are nothing.

    Args:
        text: the lines, however they end (SSH-08 d).
        name: the file's.

    Raises:
        AdapterError: where nothing is named, and for a line that is wrong, with its number and
            text (SSH-08 b).
    """
    entries = [
        entry
        for number, line in enumerate(_LINE_BREAK.split(text), start=1)
        if (said := line.partition("#")[0].strip(" \t"))
        for entry in read_line(said, f"{name}, line {number}")
    ]
    return gather(entries, f"the host file {name}")


def read_host_list(texts: Iterable[str], place: str) -> Hosts:
    """Return the hosts of a list's texts, each like one line of a host file.

    Args:
        texts: e.g. `gpu01,gpu[02-04]:8`.
        place: where they come from, for errors: `-H`.

    Raises:
        AdapterError: with place and text for what is wrong.
    """
    return gather([entry for text in texts for entry in read_line(text, place)], "the host list")


def gather(entries: Iterable[Entry], source: str) -> Hosts:
    """Return the nodes of entries, each once (SSH-08 e).

    Raises:
        BadValueError: for no host at all, a host given twice, one machine under two names, and a
            group, which only a host file can give meaning to.
    """
    nodes: list[Node] = []
    places: dict[str, Entry] = {}
    for entry in entries:
        if entry.group is not None:
            raise BadValueError(
                f"{entry.place}: there is no group {quoted(entry.text)}",
                "Groups come from a host file in TOML: --hosts FILE.toml.",
            )
        for name in entry.names:
            key = host_key(name)
            if key in places:
                raise _given_twice(name, places[key], entry)
            places[key] = entry
            nodes.append(_node(name, entry))
        if len(nodes) > MOST_HOSTS:
            raise NodeListError(
                f"{source} names more than {MOST_HOSTS:,} hosts",
                "Check the ranges for a digit too many.",
            )
    if not nodes:
        raise BadValueError(
            f"{source} names no host", "Name one on each line, as in: gpu01 slots=8"
        )
    _check_addresses(nodes, places)
    return Hosts(tuple(nodes), source)


def pick(hosts: Hosts, texts: Iterable[str], place: str, *, strict: bool = True) -> Hosts:
    """Return those of the hosts that a list names, in the list's order; groups by `@NAME`.

    What the list says of a host (its slots, say) wins. A host that a group brings a second time
    counts once, where it came first: `gpu07,@big` begins with gpu07.

    Args:
        hosts: what there is.
        texts: the list.
        place: where the list comes from, for errors.
        strict: whether a name that is not among the hosts is an error rather than a host of
            which nothing is known.

    Raises:
        AdapterError: with place and text.
    """
    known = hosts.by_key()
    chosen: dict[str, tuple[Node, Entry]] = {}
    for entry in (entry for text in texts for entry in read_line(text, place)):
        names = entry.names if entry.group is None else _members(hosts, entry)
        if strict:
            _check_known(names, hosts, known, entry.place)
        for name in names:
            key = host_key(name)
            before, by = chosen.get(key, (None, entry))
            if before is not None and entry.group is not None:
                continue
            if before is not None and by.group is None:
                raise _given_twice(name, by, entry)
            node = before or known.get(key) or _node(name, entry)
            chosen[key] = replace(node, **_fields(entry)), entry
    picked = [node for node, _ in chosen.values()]
    _check_addresses(picked, {key: entry for key, (_, entry) in chosen.items()})
    return replace(hosts, nodes=tuple(picked))


def leave_out(hosts: Hosts, texts: Iterable[str], place: str, *, strict: bool = True) -> Hosts:
    """Return the hosts without those that a list names.

    Args:
        hosts: what there is.
        texts: the list.
        place: where the list comes from, for errors.
        strict: whether a name that is not among the hosts is an error.

    Raises:
        AdapterError: for such a name, for a group that the host file does not have, and where no
            host is left.
    """
    known = hosts.by_key()
    left = dict(known)
    for entry in (entry for text in texts for entry in read_names(text, place)):
        # A group's hosts are hosts of the file, though perhaps not among those chosen from it.
        names = entry.names if entry.group is None else _members(hosts, entry)
        if strict and entry.group is None:
            _check_known(names, hosts, known, entry.place)
        for name in names:
            left.pop(host_key(name), None)
    if not left:
        raise BadValueError(f"{place} leaves no host of {hosts.source}", "Leave out fewer.")
    return replace(hosts, nodes=tuple(left.values()))


def take(hosts: Hosts, nodes: int | None) -> Cluster:
    """Return the first `nodes` hosts (None: all of them) as a cluster.

    Raises:
        BadValueError: where there are fewer.
    """
    there = len(hosts.nodes)
    if nodes is not None and not 1 <= nodes <= there:
        raise BadValueError(
            f"{nodes} nodes are wanted, there {'is' if there == 1 else 'are'} {there}"
            f" in {hosts.source}",
            f"Give a number from 1 to {there}, as in --nodes {there}, or name more hosts.",
        )
    return Cluster(hosts.nodes[:nodes], hosts.source)


def folded(names: Sequence[str]) -> str:
    """Return host names for an error: with brackets, shortened."""
    return quoted(fold_hostlist(names))


def _node(name: str, entry: Entry) -> Node:
    fields = _fields(entry)
    own = ip_address(name)
    # A zone (fe80::1%eth0) is named differently on each node.
    if own is not None and "%" not in own:
        fields = {"address": own, "address_reason": f"given in {entry.place}", **fields}
    return Node(name, **fields)


def _fields(entry: Entry) -> dict[str, Any]:
    """Return the fields of `Node` that an entry gives."""
    if "address" in entry.said:
        return {**entry.said, "address_reason": f"given in {entry.place}"}
    return dict(entry.said)


def _members(hosts: Hosts, entry: Entry) -> tuple[str, ...]:
    members = hosts.groups.get(entry.group or "")
    if members is None:
        names = ", ".join(f"@{name}" for name in hosts.groups)
        raise BadValueError(
            f"{entry.place}: there is no group {quoted(entry.text)} in {hosts.source}",
            f"Its groups: {names}." if names else "Groups come from a host file in TOML.",
        )
    return members


def _check_known(names: Iterable[str], hosts: Hosts, known: Mapping[str, Node], place: str) -> None:
    if missing := [name for name in names if host_key(name) not in known]:
        raise BadValueError(
            f"{place}: {folded(missing)} {'is' if len(missing) == 1 else 'are'} not among the hosts"
            f" of {hosts.source}",
            f"It has {folded([node.name for node in hosts.nodes])}.",
        )


def _check_addresses(nodes: Iterable[Node], places: Mapping[str, Entry]) -> None:
    """Raise where two nodes are one machine: the same address, and the same SSH port on it."""
    seen: dict[tuple[str, int], Node] = {}
    for node in nodes:
        if node.address is None:
            continue
        other = seen.setdefault((node.address, node.port or SSH_PORT), node)
        if other is not node:
            first, second = (places[host_key(one.name)] for one in (other, node))
            raise BadValueError(
                f"{other.name} and {node.name} have one address, {node.address}:"
                f" {first.shown} and {second.shown}",
                "Name each machine once, or give each its own port=.",
            )


def _given_twice(name: str, first: Entry, second: Entry) -> AdapterError:
    return BadValueError(
        f"{quoted(name)} is given twice: {first.shown} and {second.shown}",
        "Name each host once; :N or slots=N says how many ranks it takes.",
    )

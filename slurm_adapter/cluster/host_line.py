"""One line about hosts: `alice@gpu[01-04]:8 port=2222`, as typed or as in a host file.

What DeepSpeed's and MPI's host files, ssh and Slurm's node lists have in common:

    [USER@]NAMES[:SLOTS][,...] [slots=N] [port=N] [user=USER] [address=IP] [python=PROGRAM]
                               [interface=NAME]

NAMES may have Slurm's brackets; an IPv6 address stands in brackets where slots follow. Whatever
else a line holds is an error that shows the line (SSH-08): a key passed over would be missed on
some far-off node.
"""

from __future__ import annotations

import re

from slurm_adapter.cluster.host_fields import READERS, host_name, ip_address, quoted, said_twice
from slurm_adapter.cluster.hostlist import MOST_HOSTS, expand_hostlist
from slurm_adapter.errors import AdapterError, BadValueError
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    T = TypeVar("T")

KNOWN_KEYS = "Known: slots=8, port=2222, user=x, address=10.0.0.2, python=PROGRAM, interface=eth0."
_HOW_HOSTS = "Write hosts as in gpu01, gpu[02-04]:8, alice@gpu05:4 or [2001:db8::5]:4."
_BRACKETS_OR_COMMA = re.compile(r"\[[^\[\]]*\]|,")
_IN_BRACKETS = re.compile(r"\[([^\[\]]*:[^\[\]]*)\](?::(.*))?", re.DOTALL)
_GROUP = re.compile(r"@([A-Za-z0-9_][A-Za-z0-9_.-]*)(?::(.*))?", re.DOTALL)


@record
class Entry:
    """Hosts named together, and what is said of each of them."""

    names: tuple[str, ...]
    """Host names or addresses in order, checked; empty for a group."""
    said: Mapping[str, str | int]
    """Fields of `Node` by name: slots, port, user, address, python, interface."""
    place: str
    """Where it stands, e.g. `hosts.txt, line 2`."""
    text: str
    """The entry as written."""
    group: str | None = None
    """The name of a group of hosts, without its @."""

    @property
    def shown(self) -> str:
        """Where it stands and how it is written, for an error."""
        return f"{self.place} ({quoted(self.text)})"


def read_line(text: str, place: str) -> list[Entry]:
    """Return the entries of one line; keys after the hosts hold for each of them.

    Raises:
        AdapterError: with place and text, for whatever is not in the grammar.
    """
    words = [word for word in re.split(r"[ \t]+", text) if word]
    if not words:
        raise BadValueError(f"{place}: no host is named", _HOW_HOSTS)
    where = f"{place}: {quoted(text)}"
    said = _read_keys(words[1:], where)
    entries = []
    for written in _split(words[0]):
        entry = at(where, _read_entry, written, place)
        if twice := sorted(entry.said.keys() & said.keys()):
            raise said_twice(twice[0], where)
        if "address" in said and len(entry.names) > 1:
            raise BadValueError(
                f"{where}: one address= for {len(entry.names)} hosts",
                "Write a line for each host that has an address of its own.",
            )
        entries.append(Entry(entry.names, {**said, **entry.said}, place, written, entry.group))
    return entries


def read_names(text: str, place: str) -> list[Entry]:
    """Return the entries of a list that only names hosts and groups, e.g. those to leave out.

    Raises:
        AdapterError: with place and text, also where something is said of the hosts.
    """
    entries = read_line(text, place)
    for entry in entries:
        if entry.said:
            raise BadValueError(
                f"{place}: {quoted(text)} says more than which hosts are meant",
                "Give names alone, as in gpu01,gpu[03-04].",
            )
    return entries


def at(where: str, read: Callable[..., T], *values: object) -> T:
    """Return what `read` makes of the values; an error of its says where they stand."""
    try:
        return read(*values)
    except AdapterError as error:
        raise type(error)(f"{where}: {error.found}", error.remedy) from error


def _split(text: str) -> Iterator[str]:
    """Yield what stands between commas, those inside brackets apart."""
    start = 0
    for match in _BRACKETS_OR_COMMA.finditer(text):
        if match.group() == ",":
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _read_keys(words: list[str], where: str) -> dict[str, str | int]:
    said: dict[str, str | int] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadValueError(
                f"{where}: {quoted(word)} is not KEY=VALUE",
                f"Hosts are separated by a comma alone, or stand on a line each. {KNOWN_KEYS}",
            )
        if key not in READERS:
            raise BadValueError(f"{where}: there is no key {quoted(key)}", KNOWN_KEYS)
        if key in said:
            raise said_twice(key, where)
        said[key] = at(where, READERS[key], value)
    return said


def _read_entry(text: str, place: str) -> Entry:
    if not text:
        raise BadValueError("a comma without a host", "Separate hosts by one comma: gpu01,gpu02.")
    if text.startswith("@"):
        group = _GROUP.fullmatch(text)
        if group is None:
            raise BadValueError(
                f"{quoted(text)} cannot name a group",
                "Use letters, digits, '.', '-' and '_', as in @big or @big:8.",
            )
        return Entry((), dict(_slots(group[2])), place, text, group[1])
    user, at_sign, rest = text.rpartition("@")
    said = dict(_user(user)) if at_sign else {}
    names, slots = _names_and_slots(rest)
    return Entry(tuple(map(host_name, names)), {**said, **dict(_slots(slots))}, place, text)


def _names_and_slots(text: str) -> tuple[list[str], str | None]:
    """Return (names, what stands behind the colon); IPv6 and node list brackets told apart.

    Only an address has a colon inside its brackets; without brackets, only an address has two.
    """
    if bracketed := _IN_BRACKETS.fullmatch(text):
        return [_ipv6(bracketed[1])], bracketed[2]
    if text.count(":") > 1:
        return [_ipv6(text)], None
    nodes, colon, slots = text.partition(":")
    names = expand_hostlist(nodes, most=MOST_HOSTS) if "[" in nodes or "]" in nodes else [nodes]
    return names, slots if colon else None


def _ipv6(text: str) -> str:
    if ip_address(text) is None or ":" not in text:
        raise BadValueError(
            f"{quoted(text)} is not an IPv6 address",
            "Write it as in 2001:db8::5, or with slots as in [2001:db8::5]:4.",
        )
    return text


def _user(text: str) -> Iterator[tuple[str, str | int]]:
    yield "user", READERS["user"](text)


def _slots(text: str | None) -> Iterator[tuple[str, str | int]]:
    if text is not None:
        yield "slots", READERS["slots"](text)

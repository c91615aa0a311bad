"""Host files in TOML: what each host is like, defaults for all, and groups by name.

The form is documented in docs/hosts.md. What may be said of a host, and how each thing is checked,
is that of the plain host file (`cluster.hostfacts`); only `env` is more.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr

from slurm_adapter.cluster import Cluster, Variables
from slurm_adapter.cluster.host_fields import READERS, host_key, quoted, said_twice
from slurm_adapter.cluster.host_line import Entry, at, read_line, read_names
from slurm_adapter.cluster.hosts import (
    Hosts,
    folded,
    gather,
    leave_out,
    read_host_file,
    read_host_list,
    read_host_text,
    take,
)
from slurm_adapter.config.toml import Text, read_toml, validated
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import LONGEST_STRING
from slurm_adapter.record import replace
from slurm_adapter.setting import check_variable_name

if TYPE_CHECKING:
    from collections.abc import Iterable

_GROUP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_EXAMPLES = {
    "hosts": '[hosts.gpu01] with lines such as slots = 8 or python = "/opt/py/bin/python"',
    "defaults": '[defaults] with lines such as user = "ada"',
    "groups": '[groups] with lines such as big = ["gpu01", "gpu[02-04]"]',
}


class Facts(BaseModel):
    """What `[defaults]` may say of every host; None or empty where it says nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slots: StrictInt | None = None
    port: StrictInt | None = None
    user: StrictStr | None = None
    python: StrictStr | None = None
    interface: StrictStr | None = None
    env: dict[str, Text] = {}


class HostTable(Facts):
    """What `[hosts.NAMES]` may say."""

    address: StrictStr | None = None


class HostFile(BaseModel):
    """A host file's tables."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    defaults: Facts = Facts()
    hosts: dict[str, HostTable] = {}
    groups: dict[str, list[StrictStr]] = {}


def read_hosts(
    source: str | os.PathLike[str] | Iterable[str],
    *,
    nodes: int | None = None,
    exclude: Iterable[str] = (),
) -> Cluster:
    """Return the nodes that a host list or a host file names, in its order.

    Args:
        source: a list, as in `gpu01,gpu[02-04]:8,alice@gpu05:4`; several such texts, each like
            a line of a host file; a host file's text, if it has line breaks; or a host file: a
            path object, or a text that begins with a path (no host's name has a slash) or ends
            in .toml. A file whose name ends in .toml is read as TOML.
        nodes: take only so many, the first ones.
        exclude: names, node lists and `@GROUP`s to leave out before that.

    Returns:
        A cluster with one node or more. Of each node its name is known, and of address, user,
        port, slots, python, interface and env what the list says.

    Raises:
        AdapterError: for a list or file that is missing, empty or wrong in any line, a host given
            twice, a name to leave out that is not there, and fewer hosts than `nodes`.
    """
    if not isinstance(source, str | os.PathLike):
        hosts = read_host_list(source, "the list")
    elif isinstance(source, str) and "\n" in source:
        hosts = read_host_text(source, "the text")
    elif isinstance(source, str) and not _is_path(source):
        hosts = read_host_list([source], "the list")
    else:
        hosts = read_any_host_file(os.fspath(source))
    return take(leave_out(hosts, exclude, "exclude"), nodes)


def _is_path(text: str) -> bool:
    return "/" in text.partition(" ")[0] or text.lower().endswith(".toml")


def read_any_host_file(path: str) -> Hosts:
    """Return the hosts of a host file: TOML where its name ends in .toml, else lines."""
    if path.lower().endswith(".toml"):
        return read_toml_host_file(Path(path))
    return read_host_file(path)


def read_toml_host_file(path: Path) -> Hosts:
    """Return the hosts and groups of a host file in TOML.

    Raises:
        AdapterError: with file, key and remedy.
    """
    data = read_toml(path, "host file", "--hosts", 'user = "ada"')
    file = validated(HostFile, data, str(path), _EXAMPLES)
    source = f"the host file {path}"
    defaults = _said(file.defaults, f"{path}: defaults")
    entries: list[Entry] = []
    env: dict[str, Variables] = {}
    for key, table in file.hosts.items():
        for entry in _entries(key, table, str(path)):
            entries.append(replace(entry, said={**defaults, **entry.said}))
            variables = Variables({**file.defaults.env, **table.env})
            env.update(dict.fromkeys(map(host_key, entry.names), variables))
    hosts = gather(entries, source)
    nodes = tuple(replace(node, env=env[host_key(node.name)]) for node in hosts.nodes)
    return Hosts(nodes, source, _groups(file, hosts, str(path)))


def _entries(key: str, table: HostTable, path: str) -> list[Entry]:
    """Return the entries of `[hosts.KEY]`, the key written like a host list."""
    place = f"{path}: hosts.{key}"
    said = _said(table, place)
    entries = read_line(key, path)
    for entry in entries:
        if entry.group is not None:
            raise BadValueError(
                f"{place} is a group, not a host", "Groups stand under [groups], without @."
            )
        if twice := sorted(entry.said.keys() & said.keys()):
            raise said_twice(twice[0], place)
    if "address" in said and sum(len(entry.names) for entry in entries) > 1:
        raise BadValueError(
            f"{place}: one address for several hosts",
            "Give each host that has an address of its own a table of its own.",
        )
    return [replace(entry, said={**said, **entry.said}) for entry in entries]


def _said(table: Facts, place: str) -> dict[str, Any]:
    """Return what a table says, checked; fields of `Node` by name, `env` apart."""
    for name, value in table.env.items():
        at(f"{place}.env", check_variable_name, name)
        if "\0" in value or len(os.fsencode(value)) >= LONGEST_STRING:
            raise BadValueError(
                f"{place}.env: no variable can hold the value of {name}",
                "Linux allows 128 KiB without a NUL byte; put it into a file and give its name.",
            )
    values = {name: getattr(table, name, None) for name in READERS}
    return {
        name: at(f"{place}.{name}", READERS[name], str(value))
        for name, value in values.items()
        if value is not None
    }


def _groups(file: HostFile, hosts: Hosts, path: str) -> dict[str, tuple[str, ...]]:
    known = hosts.by_key()
    groups = {}
    for group, texts in file.groups.items():
        place = f"{path}: groups.{group}"
        if not _GROUP_NAME.fullmatch(group):
            raise BadValueError(
                f"{path}: groups: {quoted(group)} cannot name a group",
                "Use letters, digits, '.', '-' and '_', as in big.",
            )
        entries = [entry for text in texts for entry in read_names(text, place)]
        if any(entry.group for entry in entries):
            raise BadValueError(f"{place} names another group", 'Name hosts: ["gpu[01-04]"].')
        names = [name for entry in entries for name in entry.names]
        if missing := [name for name in names if host_key(name) not in known]:
            raise BadValueError(
                f"{place}: the file has no host {folded(missing)}",
                f"Its hosts: {folded([node.name for node in hosts.nodes])}.",
            )
        groups[group] = tuple(dict.fromkeys(known[host_key(name)].name for name in names))
    return groups

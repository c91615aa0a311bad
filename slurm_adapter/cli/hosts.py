"""Which machines `slurm-adapter ssh` starts a job on: what was typed, set or written in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from slurm_adapter.cluster.hosts import Hosts, leave_out, pick, read_host_list, take
from slurm_adapter.config.hostfile import read_any_host_file
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.option import options_of
from slurm_adapter.job.options import JobOptions
from slurm_adapter.paths import with_home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.cli.options import Given
    from slurm_adapter.cluster import Cluster


class _Layer(NamedTuple):
    """What one source says of hosts, and how its parts are called in errors."""

    hosts: Sequence[str]
    file: str | None
    exclude: Sequence[str]
    hosts_place: str
    exclude_place: str
    at_once: bool
    """Whether hosts and file were given together, and not in two files."""


def choose_nodes(given: Given, files: JobOptions, nodes: int | None) -> Cluster:
    """Return the nodes to start on: option, else environment, else job file, else config file.

    A host file says what hosts there are and what they are like, a list says which are meant. Of
    the two the list may come from a stronger source; it then may also name hosts that the file
    lacks. A file takes the place of whatever list stands below it.

    Args:
        given: what was said where the command was typed.
        files: what job file and config files say, merged.
        nodes: take so many, the first ones; None: all.

    Raises:
        AdapterError: where no hosts are given, for what is wrong in a list or file, and where
            there are fewer hosts than `nodes`.
    """
    layers = [
        _layer(given.words, (_HOSTS.long, _EXCLUDE.long), at_once=True),
        _layer(given.environment, (_HOSTS.variable, _EXCLUDE.variable), at_once=True),
        _layer(files, ("[ssh] hosts", "[ssh] exclude"), at_once=False),
    ]
    found, by = _hosts(layers)
    for layer in layers:
        if layer.exclude:
            # What is always left out, by a file, need not be in a list typed today.
            strict = layers.index(layer) <= layers.index(by)
            found = leave_out(found, layer.exclude, layer.exclude_place, strict=strict)
            break
    return take(found, nodes)


_HOSTS, _EXCLUDE = (one for one in options_of(JobOptions) if one.name in ("hosts", "exclude"))


def _layer(said: JobOptions, places: tuple[str, str], *, at_once: bool) -> _Layer:
    return _Layer(said.hosts or (), said.hosts_file, said.exclude or (), *places, at_once=at_once)


def _hosts(layers: list[_Layer]) -> tuple[Hosts, _Layer]:
    """Return the hosts of the strongest list or file, and the layer that says which."""
    listed = next((layer for layer in layers if layer.hosts), None)
    filed = next((layer for layer in layers if layer.file is not None), None)
    if filed is not None and filed.file is not None:
        there = read_any_host_file(with_home(filed.file))
        if listed is None or layers.index(filed) < layers.index(listed):
            return there, filed
        strict = filed is listed and filed.at_once
        return pick(there, listed.hosts, listed.hosts_place, strict=strict), listed
    if listed is None:
        raise BadValueError(
            "no hosts were given to start the job on",
            "Name them, as in -H gpu01,gpu02, or give a file with one on each line: --hosts FILE.",
        )
    return read_host_list(listed.hosts, listed.hosts_place), listed

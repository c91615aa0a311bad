"""A job's own hosts file: every worker's names, each with exactly one address.

An IPv4-mapped line stands beside each address, because PyTorch's store looks the mapped form up
in reverse whenever a rank connects: without the line each look-up asks DNS, and where that does
not answer costs 10 s. It has a name of its own, so that a look-up by a worker's name still gives
one address.
"""

from __future__ import annotations

import os

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.addresses import is_address, is_loopback, look_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slurm_adapter.contracts.place import Workers

SWITCH = "/etc/nsswitch.conf"
_MAPPED = ".mapped"
# A source, or an action in brackets, blanks included (nsswitch.conf(5)).
# From this many look-ups on they are made side by side.
_FEW, _THREADS = 4, 32


def resolve_all(names: Sequence[str], hosts: Mapping[str, str]) -> list[str]:
    """Return one address for each name: from the hosts file, else as the resolver has it.

    Raises:
        ClusterUnfitError: where names do not resolve.
    """
    missing = [name for name in names if name not in hosts]
    asked = dict(zip(missing, _ask(missing), strict=True))
    unknown = [name for name, address in asked.items() if not address]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""  # noqa: PLR2004
        raise ClusterUnfitError(
            f"{os.uname().nodename} cannot resolve {', '.join(unknown[:3])}{more}",
            f"Make every node's name resolve on every node; try `getent hosts {unknown[0]}` there."
            " --view off goes without.",
        )
    return [hosts.get(name) or asked[name] for name in names]


def _ask(names: Sequence[str]) -> list[str]:
    if len(names) <= _FEW:
        return [look_up(name) for name in names]
    from concurrent.futures import ThreadPoolExecutor  # 10 ms, seldom needed

    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(look_up, names))
    # Before Python 3.13 a thread that was joined may still be ending; a process that enters a user
    # namespace must have one thread.
    while len(os.listdir("/proc/self/task")) > 1:
        os.sched_yield()
    return found


def check_addresses(names: Sequence[str], addresses: Sequence[str]) -> None:
    """Refuse addresses under which nodes could not meet: loopback, or one for two nodes.

    Raises:
        ClusterUnfitError: naming the nodes.
    """
    owner: dict[str, str] = {}
    for name, address in zip(names, addresses, strict=True):
        if len(names) > 1 and is_loopback(address):
            raise ClusterUnfitError(
                f"{name} resolves to {address} on {os.uname().nodename}: loopback never leads to"
                " another node",
                f"Give {name} its real address in the name service or in /etc/hosts there.",
            )
        if address in owner:
            raise ClusterUnfitError(
                f"{owner[address]} and {name} resolve to the same address {address}",
                "Give each node an address of its own in the name service or in /etc/hosts.",
            )
        owner[address] = name


def hosts_text(
    site: str,
    workers: Workers,
    addresses: Sequence[str],
    names: Sequence[str],
    *,
    workers_first: bool = False,
) -> str:
    """Return the hosts file of a job.

    Args:
        site: the machine's own file; its lines are kept.
        workers: the job's nodes by ModelArts' names.
        addresses: one for each node.
        names: the nodes' own names where the machine's file lacks them, else empty.
        workers_first: whether an address leads back to a worker's name rather than the node's.
    """
    lines = [f"# {workers.job_name}: every worker, and its mapped address"]
    for index, address in enumerate(addresses):
        alias = f" {names[index]}" if names and names[index] else ""
        short = workers.instance(index)
        lines.append(f"{address} {short}.{workers.job_name} {short}{alias}")
        if ":" not in address:
            lines.append(f"::ffff:{address} {short}{_MAPPED}")
    lines.append(f"::ffff:127.0.0.1 localhost{_MAPPED}")
    own = "\n".join(lines) + "\n"
    theirs = site if not site or site.endswith("\n") else f"{site}\n"
    return own + theirs if workers_first else theirs + own


def for_wrapper(text: str) -> str:
    """Return a job's hosts file as nss_wrapper needs it.

    It cannot read comments and odd addresses. And it answers no look-up for IPv6 from an IPv4
    line, as PyTorch asks for: here the mapped lines carry the workers' names themselves.
    """
    kept: list[str] = []
    named: dict[str, str] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if names and is_address(address):
            named[address] = " ".join(names)
            kept.append(f"{address} {named.get(address.removeprefix('::ffff:'), named[address])}")
    return "\n".join(kept) + "\n"


def files_first(switch: str) -> str | None:
    """Return the text of nsswitch.conf with the hosts file asked first; None where it is.

    With `resolve` before `files` (systemd-resolved) a name that it does not know ends the search.
    """
    lines = switch.splitlines()
    for number, line in enumerate(lines):
        key, colon, rest = line.partition("#")[0].partition(":")
        if key.strip() == "hosts" and colon:
            if rest.replace("[", " [").split()[:1] == ["files"]:
                return None
            import re  # 4 ms, where something is to be changed

            sources = re.findall(r"\[[^\]]*\]|[^\s\[]+", rest)
            lines[number] = f"hosts: files {' '.join(_without_files(sources))}"
            return "\n".join(lines) + "\n"
    return None


def _without_files(sources: Iterable[str]) -> Iterator[str]:
    """Drop `files` and the action in brackets behind it."""
    dropped = False
    for source in sources:
        if source == "files" or (dropped and source.startswith("[")):
            dropped = source == "files"
        else:
            dropped = False
            yield source

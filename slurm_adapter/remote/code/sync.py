"""`ssh --sync`: every host gets a copy of the code before anything starts.

The agent of each host is asked which files it has already, and then sent the contents of the
others, over the connection that is there. Hosts that share the directory get one copy.
"""

from __future__ import annotations

import posixpath
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.errors import ClusterUnfitError, printable
from slurm_adapter.remote.code.copy import CopySettings, HostCopying, Source
from slurm_adapter.remote.code.files import amount
from slurm_adapter.remote.requests import RequestError
from slurm_adapter.remote.transport.port import ConnectionLostError, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from slurm_adapter.remote.agent import Agent
    from slurm_adapter.remote.code.copy import HostCopy
    from slurm_adapter.remote.code.files import Code

AT_ONCE = 8
PATIENCE_S = 120.0
_NAMED = 8
_ELSEWHERE = "--job-folder DIR names another place."


@dataclass(frozen=True)
class Synced:
    """The code is on every host."""

    files: int
    size: int
    """Bytes of all files."""
    hosts: tuple[HostCopy, ...]
    """In the order of the agents."""
    seconds: float
    warnings: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return what there is to say about it: a line for all hosts, then one for each."""
        files, hosts = _count(self.files, "file"), _count(len(self.hosts), "host")
        total = f"{files}, {amount(self.size)}, on {hosts} in {self.seconds:.1f} s"
        return [f"code: {total}", *(f"  {host.line()}" for host in self.hosts)]


def sync(
    code: Code,
    destination: str,
    agents: Sequence[Agent],
    *,
    at_once: int = AT_ONCE,
    patience_s: float = PATIENCE_S,
    with_basis: bool = False,
) -> Synced:
    """Bring the copy of the code on every host up to date.

    Args:
        code: what belongs to the code.
        destination: the copy's directory, absolute, the same on every host. It is made; one that
            holds anything that no `sync` put there is left alone, which is an error.
        agents: the hosts', begun and idle.
        at_once: how many hosts are copied to at a time.
        patience_s: how long a host may say nothing before it counts as hanging.
        with_basis: whether a new copy begins with an earlier one beside it, in
            `PLACE/STAMP/NAME` like the destination.

    Raises:
        ClusterUnfitError: naming every host that does not have the code now, with the reason.
        BadValueError: a file was changed, or could not be read, while it was copied.
    """
    started = time.monotonic()
    source = Source(code)
    settings = CopySettings(posixpath.normpath(destination), patience_s, with_basis)
    hosts = [HostCopying(agent, source, settings) for agent in agents]
    pool = ThreadPoolExecutor(max_workers=at_once)
    steps = _Steps(pool, len(hosts))
    try:
        steps.take(HostCopying.begin, hosts)
        steps.take(lambda host: host.look(hosts), hosts)
        _find_shared(hosts)
        steps.take(HostCopying.copy, [host for host in hosts if host.same_as is None])
        steps.take(HostCopying.check, [host for host in hosts if host.same_as is not None])
    finally:
        for host in hosts:
            host.cancel()
        pool.shutdown(cancel_futures=True)
        for host in hosts:
            host.close()
    seconds = time.monotonic() - started
    warnings = (*code.warnings, *_nowhere(hosts))
    return Synced(len(code.files), code.size, tuple(host.done for host in hosts), seconds, warnings)


class _Steps:
    """Takes hosts through a step, some at a time, and says in one message where it failed."""

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self._pool = pool
        self._count = count

    def take(self, step: Callable[[HostCopying], None], hosts: Sequence[HostCopying]) -> None:
        reasons: dict[str, list[str]] = {}
        remedies: dict[str, None] = {}
        for host, future in [(host, self._pool.submit(step, host)) for host in hosts]:
            name = host.name
            try:
                future.result()
            except RequestError as error:
                reasons.setdefault(str(error), []).append(name)
                remedies[error.remedy or _ELSEWHERE] = None
            except (ConnectionLostError, NoAnswerError) as error:
                reasons.setdefault(error.found.removeprefix(f"{name}: "), []).append(name)
                remedies[_ELSEWHERE] = None
        if reasons:
            raise self._failed(reasons, remedies)

    def _failed(self, reasons: dict[str, list[str]], remedies: Iterable[str]) -> ClusterUnfitError:
        count = sum(map(len, reasons.values()))
        lines = [f"{_some(names)}: {printable(reason)}" for reason, names in reasons.items()]
        return ClusterUnfitError(
            f"{count} of {self._count} hosts cannot have a copy of the code:",
            "\n".join([*lines, " ".join(["Nothing was started.", *remedies])]),
        )


def _find_shared(hosts: Sequence[HostCopying]) -> None:
    """Give hosts that see one directory to the first of them."""
    first = list(range(len(hosts)))
    for number, host in enumerate(hosts):
        # Both ways: a network file system may show one of two the other's sign only later.
        for other in host.seen:
            low, high = sorted((first[number], first[other]))
            if low != high:
                first = [low if one == high else one for one in first]
    for number, host in enumerate(hosts):
        host.same_as = hosts[first[number]] if first[number] != number else None


def _nowhere(hosts: Sequence[HostCopying]) -> list[str]:
    """Return a warning for each link that leads nowhere on some hosts."""
    where: dict[str, list[str]] = {}
    for host in hosts:
        for path in host.nowhere:
            where.setdefault(path, []).append(host.name)
    return [f"{printable(path)} leads nowhere on {_some(names)}" for path, names in where.items()]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

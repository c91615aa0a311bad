"""By which address each RoCE port goes, and what NCCL has to be told of it (NET-06).

NCCL 2.21 and later look for the address themselves: RoCE v2, IPv4 unless told otherwise, never a
link-local one. Older ones take one index for all ports, and take 0 where they are told none.
Source: NCCL's documentation of NCCL_IB_GID_INDEX, and NVIDIA/nccl#769, #890, #1427.
"""

from __future__ import annotations

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.rdma import ETHERNET, listed
from slurm_adapter.record import record
from slurm_adapter.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from slurm_adapter.network.rdma import Gid, Port

GID_INDEX, FAMILY = "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY"
FINDS_GID_SINCE = (2, 21)


@record
class NcclVersion:
    """Which NCCL a job's ranks load."""

    number: tuple[int, ...] | None
    """None where it was not found out."""
    where: str
    """What says so."""

    @property
    def finds_gid(self) -> bool:
        """Whether it is known to pick the GID by itself."""
        return self.number is not None and self.number >= FINDS_GID_SINCE

    @property
    def shown(self) -> str:
        """The version, and where that is read."""
        if self.number is None:
            return f"NCCL of unknown version ({self.where})"
        return f"NCCL {'.'.join(map(str, self.number))} ({self.where})"


@record
class Gids:
    """The addresses of a node's RoCE ports."""

    gids: tuple[Gid, ...] = ()
    """One for each port."""
    settings: tuple[Setting, ...] = ()
    warnings: tuple[str, ...] = ()


def choose_gids(
    node: str,
    ports: Sequence[Port],
    given: Mapping[str, str],
    overrides: Mapping[str, Any],
    find_nccl: Callable[[], NcclVersion],
) -> Gids:
    """Return the addresses that RoCE ports go by; nothing for InfiniBand.

    Args and errors: as `hcas.choose_hcas` has them.
    """
    roce = [port for port in ports if port.layer == ETHERNET]
    if not roce:
        return Gids()
    if GID_INDEX in given or "gid_index" in overrides:
        text = given.get(GID_INDEX, str(overrides.get("gid_index")))
        gids, warnings = _check_index(node, text, roce)
        configured = Setting(GID_INDEX, text, "configured: the site's override")
        return Gids(gids, () if GID_INDEX in given else (configured,), warnings)
    gids = tuple(gid for port in roce if (gid := _best(port)) is not None)
    if FAMILY in given:
        return Gids(gids)
    nccl = find_nccl()
    if not nccl.finds_gid:
        return _one_for_all(node, roce, gids, nccl)
    if not gids or any(gid.ipv4 for gid in gids):
        return Gids(gids)
    why = f"read: RoCE has IPv6 addresses only; {nccl.shown} would look for IPv4"
    return Gids(gids, (Setting(FAMILY, "AF_INET6", why),))


def _one_for_all(
    node: str, ports: Sequence[Port], gids: tuple[Gid, ...], nccl: NcclVersion
) -> Gids:
    """Return the index that NCCL has to be told, which is the same for all ports."""
    common = set.intersection(*({gid.index for gid in _good(port)} for port in ports))
    if not common:
        warning = (
            f"{node}: no GID index is right for all of {listed(ports)}, and {nccl.shown} takes one"
            " for all of them. NCCL 2.21 and later find each by themselves"
        )
        return Gids(gids, warnings=(warning,))
    index = next((gid.index for gid in gids if gid.index in common), min(common))
    used = tuple(next(gid for gid in port.gids if gid.index == index) for port in ports)
    kind = "IPv4" if used[0].ipv4 else "IPv6"
    assumed = "" if nccl.number else "assumed to need it, "
    why = f"read: RoCE v2 and {kind} on {listed(ports)}; {assumed}{nccl.shown}"
    return Gids(used, (Setting(GID_INDEX, str(index), why),))


def _good(port: Port) -> list[Gid]:
    """Return the slots by which another machine is reached, IPv4 where there is any."""
    routable = [gid for gid in port.gids if gid.is_routable]
    return [gid for gid in routable if gid.ipv4] or routable


def _best(port: Port) -> Gid | None:
    return next(iter(_good(port)), None)


def _check_index(
    node: str, text: str, ports: Sequence[Port]
) -> tuple[tuple[Gid, ...], tuple[str, ...]]:
    """Return the slots of the user's index; each port must have it (NET-08)."""
    if text == "-1":  # NCCL's own word for finding it
        return tuple(gid for port in ports if (gid := _best(port)) is not None), ()
    found: list[Gid] = []
    warnings: list[str] = []
    for port in ports:
        gid = next((gid for gid in port.gids if str(gid.index) == text), None)
        if gid is None:
            there = ", ".join(f"{one.index} ({one.shown})" for one in _good(port)) or "none"
            raise ClusterUnfitError(
                f"{node}: {GID_INDEX}={text} is no address of {port.shown}",
                f"Its RoCE v2 addresses: {there}.",
            )
        if not gid.is_routable:
            warnings.append(
                f"{node}: {GID_INDEX}={text} is {gid.kind} {gid.shown} on {port.shown}, which may"
                " not reach other machines"
            )
        found.append(gid)
    return tuple(found), tuple(warnings)

"""Which HCAs NCCL should use, by which address, and why not the others (NET-02, NET-06, NET-07).

GPUs and HCAs of one NUMA node are not matched up here: NCCL searches the machine's topology itself.
"""

from __future__ import annotations

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.gids import choose_gids
from slurm_adapter.network.nccl_syntax import NcclList, nccl_form
from slurm_adapter.network.rdma import ETHERNET, INFINIBAND, listed
from slurm_adapter.record import record
from slurm_adapter.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from slurm_adapter.network.gids import NcclVersion
    from slurm_adapter.network.rdma import Gid, Port

HCA, DISABLE = "NCCL_IB_HCA", "NCCL_IB_DISABLE"
TRAFFIC_CLASS, TIMEOUT = "NCCL_IB_TC", "NCCL_IB_TIMEOUT"
_FROM_OVERRIDES = ((TRAFFIC_CLASS, "traffic_class"), (TIMEOUT, "timeout"))


@record
class Hcas:
    """What a node uses of its RDMA devices."""

    ports: tuple[Port, ...] = ()
    gids: tuple[Gid, ...] = ()
    """For RoCE: the address that each of the ports goes by."""
    settings: tuple[Setting, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    """(port, why it is not used)."""
    warnings: tuple[str, ...] = ()
    evidence: str = ""


def choose_hcas(
    node: str,
    ports: Sequence[Port],
    given: Mapping[str, str],
    overrides: Mapping[str, Any],
    find_nccl: Callable[[], NcclVersion],
) -> Hcas:
    """Return what a node's ranks should use.

    Args:
        node: its name, for messages.
        ports: all of its RDMA ports.
        given: NCCL's variables that the user or the site has set; they win, and are checked.
        overrides: what no program can see: `storage_hcas`, `rails`, `gid_index`, `traffic_class`,
            `timeout`, as `network.overrides` checks them.
        find_nccl: asked for the version only where something depends on it.

    Raises:
        ClusterUnfitError: where what the user has set or overridden is not on this node.
    """
    if given.get(DISABLE) == "1" or given.get("NCCL_NET", "").lower() == "socket":
        return Hcas(evidence="configured: RDMA is switched off by your variables")
    if not ports:
        _check_nothing_named(node, given, overrides)
        return Hcas(evidence="read: no RDMA device")
    rejected = {port.shown: why for port in ports if (why := _why_not(port, overrides))}
    usable = [port for port in ports if port.shown not in rejected]
    if HCA in given:
        chosen = _check_given(node, given[HCA], ports)
        evidence = "configured: set by you"
        rejected = {one.shown: f"not in your {HCA}" for one in ports if one not in chosen}
    elif "rails" in overrides:
        chosen = _by_rails(node, overrides["rails"], usable, rejected)
        evidence = "configured: the rails of the site file, in their order"
        rejected |= {one.shown: "not among the rails" for one in usable if one not in chosen}
    else:
        chosen, evidence, more = _of_one_kind(usable)
        rejected |= more
    if not chosen:
        return _none_usable(node, rejected)
    settings = [] if HCA in given else [Setting(HCA, _value(chosen), evidence)]
    gids = choose_gids(node, chosen, given, overrides, find_nccl)
    for variable, key in _FROM_OVERRIDES:
        if key in overrides and variable not in given:
            settings.append(
                Setting(variable, str(overrides[key]), "configured: the site's override")
            )
    return Hcas(
        ports=tuple(chosen),
        gids=gids.gids,
        settings=(*settings, *gids.settings),
        rejected=tuple(rejected.items()),
        warnings=gids.warnings,
        evidence=evidence,
    )


def _why_not(port: Port, overrides: Mapping[str, Any]) -> str:
    """Return why a port is of no use for training, empty where it may be of some."""
    if any(
        NcclList((name,), exact=True).takes(port.device, port.number)
        for name in _storage(overrides)
    ):
        return "storage, as the site's override has it"
    if not port.active:
        return "not active"
    if port.layer == ETHERNET and not any(gid.is_routable for gid in port.gids):
        if not port.gids:
            return "no address here: it belongs to another container, or has no IP address"
        return "no RoCE v2 address that leads to another machine"
    return ""


def _storage(overrides: Mapping[str, Any]) -> Iterable[str]:
    found: Iterable[str] = overrides.get("storage_hcas", ())
    return found


def _of_one_kind(usable: Sequence[Port]) -> tuple[list[Port], str, dict[str, str]]:
    """Return (ports of one link layer, the evidence, why not the others)."""
    infiniband = [port for port in usable if port.layer == INFINIBAND]
    if infiniband:
        others = [port for port in usable if port.layer != INFINIBAND]
        why = "Ethernet beside InfiniBand: NCCL cannot mix them"
        evidence = f"read: {_count(infiniband, 'active InfiniBand port')}"
        return infiniband, evidence, {port.shown: why for port in others}
    fastest = max((port.gbps for port in usable), default=0.0)
    chosen = [port for port in usable if port.gbps == fastest]
    slower = {
        port.shown: f"{port.gbps:g} Gb/s beside {fastest:g}: taken for storage or management; rails"
        " = [...] in the site file says otherwise"
        for port in usable
        if port.gbps != fastest
    }
    return chosen, f"read: {_count(chosen, 'active RoCE port')} of {fastest:g} Gb/s", slower


def _count(ports: Sequence[Port], what: str) -> str:
    return f"{len(ports)} {what}{'' if len(ports) == 1 else 's'}"


def _value(ports: Sequence[Port]) -> str:
    """Return the ports as NCCL's list; a number stands where a device has others, too."""
    whole = {
        port.device for port in ports if sum(o.device == port.device for o in ports) == port.ports
    }
    names = (port.device if port.device in whole else port.shown for port in ports)
    return nccl_form(dict.fromkeys(names))


def _by_rails(
    node: str, rails: Iterable[str], usable: Sequence[Port], rejected: Mapping[str, str]
) -> list[Port]:
    chosen: list[Port] = []
    for rail in rails:
        wanted = NcclList((rail,), exact=True)
        found = [port for port in usable if wanted.takes(port.device, port.number)]
        if not found:
            why = [f"{name}: {why}" for name, why in rejected.items() if name.split(":")[0] == rail]
            raise ClusterUnfitError(
                f"{node} cannot use {rail}, which the rails of its site file name"
                + (f" ({'; '.join(why)})" if why else ": there is none"),
                f"{node} has: {listed(usable)}. Mend rails in the [network] table.",
            )
        chosen += found
    return chosen


def _check_given(node: str, value: str, ports: Sequence[Port]) -> list[Port]:
    """Return the ports that the user's NCCL_IB_HCA takes; there must be one (NET-08)."""
    wanted = NcclList.parse(value)
    chosen = [port for port in ports if port.active and wanted.takes(port.device, port.number)]
    if not chosen and not wanted.excludes:
        down = [port for port in ports if wanted.takes(port.device, port.number)]
        what = f"only {listed(down)}, not active" if down else "none of its ports"
        raise ClusterUnfitError(
            f"{node}: {HCA}={value} takes {what}",
            f"Active on {node}: {listed(one for one in ports if one.active)}. Leave {HCA} out, or"
            " name one of them.",
        )
    return chosen


def _check_nothing_named(node: str, given: Mapping[str, str], overrides: Mapping[str, Any]) -> None:
    if HCA in given and not NcclList.parse(given[HCA]).excludes:
        raise ClusterUnfitError(
            f"{node}: {HCA}={given[HCA]} names an HCA, and there is no RDMA device",
            f"Leave {HCA} out: NCCL uses sockets there.",
        )
    if "rails" in overrides:
        raise ClusterUnfitError(
            f"{node} has no RDMA device; its site file has rails: {', '.join(overrides['rails'])}",
            "Take rails out of the [network] table, or leave the node out.",
        )


def _none_usable(node: str, rejected: Mapping[str, str]) -> Hcas:
    reasons = "; ".join(f"{name}: {why}" for name, why in rejected.items())
    return Hcas(
        settings=(Setting(DISABLE, "1", "read: RDMA devices are there, none can be used"),),
        rejected=tuple(rejected.items()),
        warnings=(f"{node} uses no RDMA, NCCL goes over sockets: {reasons}",),
        evidence="read: no RDMA port can be used",
    )

"""What a node's ranks should use to reach the others: settings, each with its evidence.

Evidence is one of four words, which stand first in each reason: `measured` (the kernel's own route,
connections made), `read` (sysfs, a file), `configured` (by the user or the site), `assumed`.
"""

from __future__ import annotations

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.network.interfaces import listed
from slurm_adapter.record import record
from slurm_adapter.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from slurm_adapter.network.gids import NcclVersion
    from slurm_adapter.network.hcas import Hcas
    from slurm_adapter.network.interfaces import Interface
    from slurm_adapter.network.rdma import Port

NCCL, GLOO, TENSORPIPE = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"
FAMILY = "NCCL_SOCKET_FAMILY"
VARIABLES = (
    *(NCCL, GLOO, TENSORPIPE, FAMILY, "NCCL_NET"),
    *("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "NCCL_IB_ADDR_FAMILY"),
    *("NCCL_IB_TC", "NCCL_IB_TIMEOUT"),
)
"""What is looked for among the user's own variables: those win."""
INTERFACE_PLACEHOLDER = "<interface>"


@record
class Route:
    """The interface by which a node reaches the others."""

    interface: str
    address: str
    """The node's own address on it."""
    reason: str
    """The evidence, and what was found."""


@record
class Choice:
    """What a node's ranks should use."""

    route: Route
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...] = ()
    hcas: Hcas | None = None
    """None where no RDMA device was looked for."""


def choose(
    node: str,
    route: Route,
    interfaces: Sequence[Interface],
    given: Mapping[str, str],
    rdma: Callable[[], Hcas] | None = None,
) -> Choice:
    """Return the settings of a node whose route to the others is known.

    Args:
        node: its name, for messages.
        route: the interface and address that were found or chosen.
        interfaces: all that it has.
        given: those of `VARIABLES` that the user or the site has set.
        rdma: chooses the HCAs; None where the node has none and none are named.

    Raises:
        ClusterUnfitError: where a variable of the user's names nothing that is there (NET-08).
        BadValueError: where it is written in another library's syntax (NET-03).
    """
    settings: list[Setting] = []
    warnings: list[str] = []
    names = [one.name for one in interfaces]
    single, reason = route.interface, route.reason
    if NCCL in given:
        taken = _check_nccl(node, given[NCCL], interfaces)
        warnings += _lo_warning(node, given[NCCL])
        if single not in taken:
            single, reason = taken[0], f"configured: follows your {NCCL}"
    else:
        exact = _why_exact(route.interface, names)
        settings.append(Setting(NCCL, f"={route.interface}", f"{route.reason}; {exact}"))
    for variable in (GLOO, TENSORPIPE):
        if variable in given:
            _check_names(node, variable, given[variable], interfaces)
        else:
            settings.append(Setting(variable, single, reason))
    if ":" in route.address and FAMILY not in given:
        why = f"read: the nodes meet at IPv6 addresses, here {route.address}"
        settings.append(Setting(FAMILY, "AF_INET6", why))
    hcas = rdma() if rdma is not None else None
    if hcas is not None:
        settings += hcas.settings
        warnings += hcas.warnings
    return Choice(route, tuple(settings), tuple(warnings), hcas)


def not_known_yet(environment: Mapping[str, str]) -> tuple[Setting, ...]:
    """Return what stands for the settings of a node that has not been looked at.

    `environment` is what its ranks will inherit, as far as that is known.
    """
    why = "chosen on the node before its ranks start"
    return tuple(
        Setting(name, INTERFACE_PLACEHOLDER, why, known=False)
        for name in (NCCL, GLOO, TENSORPIPE)
        if name not in environment
    )


def rdma_chooser(
    node: str,
    ports: Sequence[Port],
    given: Mapping[str, str],
    overrides: Mapping[str, Any],
    find_nccl: Callable[[], NcclVersion],
) -> Callable[[], Hcas] | None:
    """Return what chooses a node's HCAs, None where there is nothing to choose or to check."""
    if not ports and "NCCL_IB_HCA" not in given and "rails" not in overrides:
        return None

    def chooser() -> Hcas:
        from slurm_adapter.network.hcas import choose_hcas  # few nodes need it

        return choose_hcas(node, ports, given, overrides, find_nccl)

    return chooser


def given_variables(env: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return those of `VARIABLES` that a job sets, or that its ranks would inherit."""
    found = {name: env.get(name) or environment.get(name, "") for name in VARIABLES}
    return {name: value for name, value in found.items() if value}


def _why_exact(name: str, others: Iterable[str]) -> str:
    """Return why a name stands in NCCL's exact form: else it is a prefix (NET-01)."""
    longer = [other for other in others if other != name and other.startswith(name)]
    if not longer:
        return "= is NCCL's exact form"
    return f"= because NCCL would take {name} for {' and '.join(longer)}, too"


def _check_nccl(node: str, value: str, interfaces: Sequence[Interface]) -> list[str]:
    """Return the interfaces with an address that NCCL would take; there must be one."""
    from slurm_adapter.network.nccl_syntax import NcclList  # few set these themselves

    wanted = NcclList.parse(value)
    taken = [one.name for one in interfaces if one.up and one.addresses and wanted.takes(one.name)]
    if not taken:
        raise _nothing_named(node, NCCL, value, interfaces)
    return taken


def _lo_warning(node: str, value: str) -> list[str]:
    from slurm_adapter.network.nccl_syntax import NcclList

    wanted = NcclList.parse(value)
    if not wanted.excludes or not wanted.takes("lo"):
        return []
    better = f"^{'=' if wanted.exact else ''}{','.join(('lo', *wanted.names))}"
    return [f"{node}: {NCCL}={value} leaves lo in: NCCL may take loopback. Write {better}."]


def _check_names(node: str, variable: str, value: str, interfaces: Sequence[Interface]) -> None:
    from slurm_adapter.network.nccl_syntax import gloo_names

    there = {one.name for one in interfaces if one.up and one.addresses}
    for name in gloo_names(variable, value):
        if name not in there:
            raise _nothing_named(node, variable, value, interfaces)


def _nothing_named(
    node: str, variable: str, value: str, interfaces: Sequence[Interface]
) -> ClusterUnfitError:
    return ClusterUnfitError(
        f"{node}: {variable}={value} names no interface that is up and has an address there",
        f"{node} has: {listed(interfaces)}. Leave {variable} out, or name one of them.",
    )

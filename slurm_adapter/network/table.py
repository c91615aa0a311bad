"""A node's choice as a row of a table: for people, in `env` and in a dry run that has looked."""

from __future__ import annotations

from slurm_adapter.network.routes import why_never
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_adapter.network.choose import Choice
    from slurm_adapter.network.interfaces import Interface
    from slurm_adapter.network.rdma import Gid, Port

TITLES = ("node", "interface", "address", "speed", "HCAs", "GID", "evidence")


@record
class Row:
    """What one node uses."""

    node: str
    interface: str
    address: str
    speed: str
    hcas: str
    gid: str
    evidence: str
    unused: tuple[tuple[str, str], ...]
    """(interface or HCA, why it is not used)."""
    near: tuple[tuple[str, str], ...] = ()
    """(HCA, words for the GPUs beside it)."""

    @property
    def cells(self) -> tuple[str, ...]:
        """What stands below `TITLES`."""
        return (
            *(self.node, self.interface, self.address, self.speed),
            *(self.hcas, self.gid, self.evidence),
        )


def row_of(
    node: str, choice: Choice, interfaces: Sequence[Interface], near: Mapping[str, str]
) -> Row:
    """Return a node's row."""
    own = next((one for one in interfaces if one.name == choice.route.interface), None)
    found = choice.hcas
    ports = found.ports if found is not None else ()
    read = found.evidence if found is not None else "read: no RDMA device"
    return Row(
        node=node,
        interface=choice.route.interface,
        address=choice.route.address,
        speed=_speed(own.speed_mbps if own is not None else None),
        hcas=_hcas(ports),
        gid=_gid(choice) if found is not None and found.gids else "-",
        evidence=f"{choice.route.reason}; {read}",
        unused=tuple(_unused(choice, interfaces)),
        near=tuple(near.items()),
    )


def _unused(choice: Choice, interfaces: Sequence[Interface]) -> list[tuple[str, str]]:
    """Return (interface or HCA, why it is not used) for all that are not."""
    found = []
    for interface in interfaces:
        if interface.name != choice.route.interface:
            why = (
                why_never(interface)
                or f"not the way to the others, which is {choice.route.interface}"
            )
            found.append((interface.name, why))
    return found + list(choice.hcas.rejected if choice.hcas is not None else ())


def _speed(mbps: int | None) -> str:
    return "-" if mbps is None else f"{mbps / 1000:g} Gb/s"


def _hcas(ports: Sequence[Port]) -> str:
    if not ports:
        return "none"
    rates = {port.gbps for port in ports}
    layer = ports[0].layer if ports[0].layer != "Ethernet" else "RoCE"
    names = ", ".join(port.device if port.ports == 1 else port.shown for port in ports)
    return f"{names} ({layer}{f', {rates.pop():g} Gb/s' if len(rates) == 1 else ''})"


def _gid(choice: Choice) -> str:
    """Return the index that is set and the addresses it stands for, or who finds it."""
    index = next((one.value for one in choice.settings if one.name == "NCCL_IB_GID_INDEX"), None)
    found: Sequence[Gid] = choice.hcas.gids if choice.hcas is not None else ()
    shown = found[0].shown + (", ..." if len(found) > 1 else "")
    return f"{shown} by NCCL" if index is None else f"{index} ({shown})"

"""The `[network]` table of a job file or a site file: what no program can see of a network.

Checked here, in one place, for the head and for nodes, where nothing but the standard library is.
"""

from __future__ import annotations

from slurm_adapter.errors import BadValueError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_EXAMPLES = {
    "socket_ifname": '"bond0"',
    "subnet": '"10.20.0.0/16"',
    "master_suffix": '".hpc.example"',
    "storage_hcas": '["mlx5_2", "mlx5_7"]',
    "rails": '["mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5"]',
    "gid_index": "3",
    "traffic_class": "106",
    "timeout": "22",
}
KEYS = tuple(_EXAMPLES)
_OPTIONS = {
    "socket_ifname": "--network",
    "subnet": "--network",
    "master_suffix": "--master-suffix",
}
_MOST_GID_INDEX, _MOST_TRAFFIC_CLASS, _MOST_TIMEOUT = 255, 255, 31
_LONGEST_INTERFACE = 15


def check_overrides(table: Mapping[str, object], where: str = "") -> dict[str, Any]:
    """Return the overrides of a table, each of them checked.

    Args:
        table: `socket_ifname` or `subnet`, `master_suffix`, `storage_hcas`, `rails`, `gid_index`,
            `traffic_class`, `timeout`; any may be missing.
        where: the file, empty for options.

    Raises:
        BadValueError: with the key and an example that is right.
    """
    prefix = f"{where}: " if where else ""
    for key in table:
        if key not in _EXAMPLES:
            raise BadValueError(
                f"{prefix}there is no key '{printable(str(key))}' in [network]",
                f"Its keys are {', '.join(KEYS)}.",
            )
    overrides = {key: _checked(key, value, prefix) for key, value in table.items()}
    if "socket_ifname" in overrides and "subnet" in overrides:
        raise BadValueError(
            f"{prefix}socket_ifname and subnet both choose the network", "Give one of them."
        )
    return overrides


def over(below: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return one layer on top of another; a network that it chooses takes the place of the other's.

    It is chosen by an interface's name or by its addresses.
    """
    chosen = {"socket_ifname", "subnet"}
    if chosen & overrides.keys():
        below = {key: value for key, value in below.items() if key not in chosen}
    return {**below, **overrides}


def from_options(
    network: str | None, master_suffix: str | None, pairs: Sequence[str]
) -> dict[str, Any]:
    """Return the overrides in options of the command line.

    Args:
        network: what follows `--network`: SUBNET or IFNAME.
        master_suffix: what follows `--master-suffix`.
        pairs: what follows each `--network-option`: KEY=VALUE, lists separated by commas.

    Raises:
        BadValueError: a key or a value is wrong.
    """
    table: dict[str, object] = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not equals:
            raise BadValueError(
                f"--network-option {printable(text)} has no value",
                "Write KEY=VALUE, as in --network-option traffic_class=106.",
            )
        table[key] = _from_text(key, value)
    if network is not None:
        table["subnet" if "/" in network else "socket_ifname"] = network
    if master_suffix is not None:
        table["master_suffix"] = master_suffix
    return check_overrides(table)


def as_options(overrides: Mapping[str, Any]) -> list[str]:
    """Return overrides as the words of options that `from_options` takes apart."""
    words = []
    for key, value in overrides.items():
        text = ",".join(value) if isinstance(value, list | tuple) else str(value)
        own = _OPTIONS.get(key)
        words.append(f"--network-option={key}={text}" if own is None else f"{own}={text}")
    return words


def _from_text(key: str, value: str) -> object:
    if key in ("storage_hcas", "rails"):
        return value.split(",")
    return int(value) if _EXAMPLES.get(key, "").isdigit() and value.isdigit() else value


def _checked(key: str, value: object, prefix: str) -> Any:
    read, expected = _READERS[key]
    found = read(value)
    if found is None:
        raise BadValueError(
            f"{prefix}network.{key} = {printable(repr(value))} is not {expected}",
            f"Write {key} = {_EXAMPLES[key]}.",
        )
    return found


def _interface(value: object) -> str | None:
    good = isinstance(value, str) and 0 < len(value) <= _LONGEST_INTERFACE
    return str(value) if good and not set(str(value)) & set("^=,:/ \t\n") else None


def _subnet(value: object) -> str | None:
    import ipaddress  # 10 ms, only where one is given

    try:
        return str(ipaddress.ip_network(value, strict=False)) if isinstance(value, str) else None
    except ValueError:
        return None


def _suffix(value: object) -> str | None:
    if not isinstance(value, str) or not value.strip(".-"):
        return None
    good = value[0] in ".-" and value.isascii()
    return value if good and value.replace(".", "").replace("-", "").isalnum() else None


def _devices(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list | tuple) or not value:
        return None
    for one in value:
        if not isinstance(one, str) or not one or set(one) & set("^=, \t\n"):
            return None
    return tuple(value)


def _number_to(most: int) -> Callable[[object], int | None]:
    def read(value: object) -> int | None:
        good = isinstance(value, int) and not isinstance(value, bool)
        return int(value) if good and 0 <= int(value) <= most else None  # type: ignore[call-overload]

    return read


_READERS: dict[str, tuple[Callable[[object], Any], str]] = {
    "socket_ifname": (_interface, "the name of an interface"),
    "subnet": (_subnet, "a network"),
    "master_suffix": (_suffix, "the end of a host's name, from its '.' or '-' on"),
    "storage_hcas": (_devices, "a list of HCAs"),
    "rails": (_devices, "a list of HCAs"),
    "gid_index": (_number_to(_MOST_GID_INDEX), f"a number from 0 to {_MOST_GID_INDEX}"),
    "traffic_class": (_number_to(_MOST_TRAFFIC_CLASS), f"a number from 0 to {_MOST_TRAFFIC_CLASS}"),
    "timeout": (_number_to(_MOST_TIMEOUT), f"a number from 0 to {_MOST_TIMEOUT}"),
}

"""What may be said of a host: its name, address, user and the rest, each checked once.

What stands here reaches ssh's command line and files on the nodes. A name that begins with a
dash would be an option there (`-oProxyCommand=...`), so that the characters are few and told.
"""

from __future__ import annotations

import ipaddress
import re

from slurm_adapter.errors import BadValueError, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SLOTS = 4_096
SSH_PORT = 22
_LAST_PORT = 65_535
_LONGEST_NAME = 253
_LONGEST_SHOWN = 80
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\.?")
# What the C library takes for an IPv4 address in short, octal or hexadecimal form.
_NUMERIC = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]*|[0-9]+))*\.?")
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+@-]*")
_ZONE = re.compile(r"[A-Za-z0-9_.-]+")
# The kernel's own limit is 15 bytes (IFNAMSIZ); the characters are those that NCCL's and Gloo's
# lists of interfaces leave alone.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
_PROGRAM = re.compile(r"/.*[^/]|[^-/~\s][^/]*", re.DOTALL)


def host_name(text: str) -> str:
    """Return a host's name or IP address as written, or raise `BadValueError`."""
    if ip_address(text) is not None:
        return text
    if _NUMERIC.fullmatch(text):
        raise BadValueError(
            f"{quoted(text)} would be taken for part of an IP address",
            "Write all four numbers, as in 10.0.0.1, or give the host's name.",
        )
    if not _HOST.fullmatch(text) or len(text) > _LONGEST_NAME:
        raise BadValueError(
            f"{quoted(text)} cannot be a host's name",
            "Use letters, digits, '.', '-' and '_', the first one a letter or digit: gpu01.",
        )
    return text


def host_key(name: str) -> str:
    """Return what two names of one host have in common: case does not count, nor a last dot."""
    return ip_address(name) or name.lower().rstrip(".")


def ip_address(text: str) -> str | None:
    """Return an IP address in its usual form, None where the text is not one.

    An IPv4 address mapped into IPv6 is that IPv4 address.
    """
    if ":" not in text and not (text[:1].isdigit() and "." in text):
        return None
    _, percent, zone = text.partition("%")
    if percent and not _ZONE.fullmatch(zone):
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def quoted(text: str) -> str:
    """Return a text for an error: on one line, in quotes, its middle left out if long."""
    line = printable(text)
    if len(line) > _LONGEST_SHOWN:
        line = f"{line[:60]}...{line[-15:]}"
    return f"'{line}'"


def said_twice(key: str, where: str) -> BadValueError:
    """Return the error for a line that gives one thing in two ways."""
    return BadValueError(f"{where}: {key} is given twice", "Give it once.")


def _slots(text: str) -> int:
    return _number(text, "slots", 1, MOST_SLOTS, "gpu01:8 or slots=8")


def _port(text: str) -> int:
    return _number(text, "port", 1, _LAST_PORT, "port=2222")


def _number(text: str, key: str, least: int, most: int, example: str) -> int:
    # More than nine digits are not even looked at: int() takes its time over very long ones.
    if text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most:  # noqa: PLR2004
        return int(text)
    raise BadValueError(
        f"{quoted(text)} cannot be {key}",
        f"Give a number from {least} to {most}, as in {example}.",
    )


def _user(text: str) -> str:
    if not _USER.fullmatch(text):
        raise BadValueError(
            f"{quoted(text)} cannot be the user to log in as",
            "Use letters, digits and . _ + - @; any other name can stand in ~/.ssh/config.",
        )
    return text


def _address(text: str) -> str:
    address = ip_address(text)
    # A zone (fe80::1%eth0) is named differently on each node.
    if address is None or "%" in address or ipaddress.ip_address(address).is_unspecified:
        raise BadValueError(
            f"{quoted(text)} is not an IP address that other nodes could reach",
            "Write address=10.0.0.2; a name that DNS knows can be the host's own.",
        )
    return address


def _python(text: str) -> str:
    if not _PROGRAM.fullmatch(text) or not text.isprintable():
        raise BadValueError(
            f"{quoted(text)} cannot be a node's interpreter",
            "Give its whole path, as in python=/opt/py/bin/python, or a name in the node's PATH.",
        )
    return text


def _interface(text: str) -> str:
    if not _INTERFACE.fullmatch(text):
        raise BadValueError(
            f"{quoted(text)} cannot be a network interface",
            "Give one name of at most 15 characters, as `ip link` shows it: interface=eth0.",
        )
    return text


READERS: dict[str, Callable[[str], str | int]] = {
    "slots": _slots,
    "port": _port,
    "user": _user,
    "address": _address,
    "python": _python,
    "interface": _interface,
}
"""Field of `Node` -> what reads it from text: returns its value or raises `BadValueError`."""

"""Expand what OpenSSH expands in its options: `%h`, `${NAME}` and `~`."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import socket
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOKEN = re.compile(r"%(.?)|\$\{([^}]*)\}", re.DOTALL)


def home() -> Path:
    """Return the home directory that ssh takes: the account's, whatever HOME says."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def tokens(name: str, hostname: str, port: int, user: str, alias: str | None) -> dict[str, str]:
    """Return what each letter behind a `%` stands for, for one host.

    Args:
        name: the host as the user called it.
        hostname: what it is reached by.
        port: where its server listens.
        user: whom to log in as there.
        alias: its HostKeyAlias.
    """
    machine, account = _machine_and_account()
    return {
        "%": "%",
        "d": str(home()),
        "h": hostname,
        "i": str(os.getuid()),
        "j": "",
        "k": alias or name,
        "L": machine.partition(".")[0],
        "l": machine,
        "n": name,
        "p": str(port),
        "r": user,
        "u": account,
        # ssh's own choice for a short name of a connection; no secret hangs on it.
        "C": hashlib.sha1(f"{machine}{hostname}{port}{user}".encode()).hexdigest(),  # noqa: S324
    }


def expand(
    text: str, known: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> str:
    """Return an option's value with its tokens put in.

    Args:
        text: the value.
        known: what each letter stands for.
        environment: where `${NAME}` is looked up; without it, it is left for a shell.

    Raises:
        BadValueError: a token or variable that does not exist, as ssh would say.
    """

    def value(found: re.Match[str]) -> str:
        letter, variable = found.groups()
        if variable is not None:
            if environment is None:
                return found[0]
            if variable not in environment:
                raise BadValueError(
                    f"the ssh config uses ${{{variable}}}, which is not set: {text}",
                    f"Set {variable}, or change that line.",
                )
            return environment[variable]
        if letter not in known:
            raise BadValueError(
                f"the ssh config uses %{letter}, which is not known here: {text}",
                "Write what it stands for instead.",
            )
        return known[letter]

    return _TOKEN.sub(value, text)


def expand_path(text: str, known: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return a path with its tokens put in and `~` or `~NAME` at its start replaced."""
    return home_path(expand(text, known, environment))


def home_path(path: str) -> str:
    """Return a path with `~` or `~NAME` at its start replaced."""
    if path == "~" or path.startswith("~/"):
        return f"{home()}{path[1:]}"
    return os.path.expanduser(path)  # a Path would raise for an unknown ~NAME


@cache
def _machine_and_account() -> tuple[str, str]:
    try:
        account = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        account = str(os.getuid())
    return socket.gethostname(), account

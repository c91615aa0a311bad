"""Paths that a user gives, made absolute; and what stands in a file, whoever wrote it.

Links are kept: on the nodes a shared file system may be mounted by that very name.
"""

from __future__ import annotations

import os.path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGE_FILES = (".sif", ".sqsh", ".squashfs", ".img")
"""How a file that holds a container's image may end."""
SITE_FILE = "/etc/slurm-adapter.toml"
"""What an administrator says for everybody, in the form of a job file."""


def user_file(environment: Mapping[str, str]) -> str:
    """Return where a user's own defaults stand, in the form of a job file."""
    home = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return f"{home}/slurm-adapter/config.toml"


def with_home(path: str) -> str:
    """Return a path with `~` put in."""
    return os.path.expanduser(path)


def absolute(path: str, base: str) -> str:
    """Return a path made absolute from `base`, `~` put in."""
    return os.path.abspath(os.path.join(base, with_home(path)))


def given(path: str, base: str) -> str:
    """Return a path for a script: an absolute one is left as it is, last slash included."""
    return path if path.startswith("/") else absolute(path, base)


def on_node(path: str, base: str) -> str:
    """Return a path that is meant on each node: one that begins with a variable is left to it."""
    return path if path.startswith("$") else absolute(path, base)


def read_text(path: str) -> str:
    """Return a file's text; empty where it cannot be read (whoever needs it says so then)."""
    try:
        # Every byte is kept, whoever wrote it in whatever encoding.
        with open(
            path, encoding="utf-8", errors="surrogateescape", newline=""
        ) as file:  # pathlib costs start-up time
            return file.read()
    except OSError:
        return ""

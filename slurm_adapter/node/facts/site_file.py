"""The `[network]` tables of the site's and the user's own file, as a node reads them.

A hand-written batch file starts `exec` without any head that could have read them.
"""

from __future__ import annotations

from slurm_adapter.errors import BadValueError
from slurm_adapter.network.overrides import check_overrides, over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def network_overrides(files: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the files, the site's before the user's, and options say; the last one wins.

    Raises:
        BadValueError: where a file is broken.
    """
    overrides: dict[str, Any] = {}
    for layer in (*map(_table, files), options):
        overrides = over(overrides, layer)
    return overrides


def _table(path: str) -> dict[str, Any]:
    try:
        import tomllib  # type: ignore[import-not-found]
    except ImportError as error:  # Python 3.10
        raise BadValueError(
            f"{path} cannot be read by this Python, which has no TOML reader",
            "Use Python 3.11 or later for slurm-adapter on the nodes.",
        ) from error
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file).get("network", {})
    except OSError as error:
        raise BadValueError(
            f"{path} cannot be read: {error.strerror}", "Make it readable for everyone."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValueError(
            f"{path} is not TOML: {error}",
            'Write KEY = VALUE, texts in quotes: subnet = "10.0.0.0/8".',
        ) from error
    if not isinstance(table, dict):
        raise BadValueError(
            f"{path}: network is not a table", "Write [network] on a line of its own."
        )
    return check_overrides(table, path)

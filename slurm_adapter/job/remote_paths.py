"""Paths in options: made absolute from where they were said, or meant on other machines.

There this one's home and working directory mean nothing. Until the home directory there is known,
`HOME` stands for it.
"""

from __future__ import annotations

import os.path

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.option import (
    CHANNELS,
    IMAGE,
    MOUNTS,
    PATH_HERE,
    PATH_ON_NODE,
    PATH_THERE,
    PROGRAM,
    options_of,
)
from slurm_adapter.job.options import JobOptions
from slurm_adapter.paths import IMAGE_FILES, absolute, given, on_node
from slurm_adapter.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from slurm_adapter.job.option import Option

HOME = "/~"
_LOG_OPTIONS = ("output", "error", "input", "chdir")
"""Options of sbatch that are paths."""


def rebased(said: JobOptions, base: str) -> JobOptions:
    """Return what was said with its paths made absolute from the folder `base`.

    The boot file stays: where code is named, it is meant inside that.
    """
    rebase: dict[str, Callable[[Any, str], Any]] = {
        PATH_HERE: absolute,
        PATH_THERE: absolute,
        PATH_ON_NODE: on_node,
        PROGRAM: lambda name, base: absolute(name, base) if "/" in name else name,
        IMAGE: lambda image, base: absolute(image, base) if _is_image_file(image) else image,
        CHANNELS: lambda channels, base: {
            name: given(path, base) for name, path in channels.items()
        },
    }
    return _changed(said, lambda option, value: rebase[option.kind](value, base), rebase)


def at_login_host(said: JobOptions, where: Callable[[Option, str], str]) -> JobOptions:
    """Return what was said with those paths meant on another machine that are the job's own.

    Args:
        said: what was said.
        where: names an option, or one of its items, for an error.

    Raises:
        BadValueError: for a relative one, and for a variable in a path that sbatch is told.
    """
    rebase: dict[str, Callable[[Option, Any], Any]] = {
        PATH_THERE: lambda option, path: there(path, where(option, "")),
        PATH_ON_NODE: lambda option, path: (
            path if path.startswith("$") else there(path, where(option, ""))
        ),
        PROGRAM: lambda option, name: there(name, where(option, "")) if "/" in name else name,
        IMAGE: lambda option, image: _image(image, where(option, "")),
        MOUNTS: lambda option, mounts: tuple(_mount(one, where(option, "")) for one in mounts),
        CHANNELS: lambda option, channels: {
            name: there(path, where(option, name)) for name, path in channels.items()
        },
    }
    return _changed(said, lambda option, value: rebase[option.kind](option, value), rebase)


def _changed(
    said: JobOptions, change: Callable[[Option, Any], Any], kinds: dict[str, Any]
) -> JobOptions:
    values = [(one, getattr(said, one.name)) for one in options_of(JobOptions) if one.kind in kinds]
    return replace(said, **{one.name: change(one, value) for one, value in values if value})


def logs_at_login_host(slurm: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return options of sbatch, those that are paths of logs meant on another machine."""
    return {
        name: _log_path(value, f"--sbatch {name}") if name in _LOG_OPTIONS and value else value
        for name, value in slurm.items()
    }


def _log_path(value: str, what: str) -> str:
    if "$" in value:
        raise BadValueError(
            f"{what}={value} names a variable, which is not known here",
            "With --login write the path out, or begin it with ~.",
        )
    return value if value == "none" else there(value, what)


def there(path: str, what: str) -> str:
    """Return a path on another machine, absolute, `HOME` in the place of its home directory.

    A shell here has put this machine's home directory in the place of an unquoted `~`.

    Args:
        path: as given.
        what: where it was given, for the error.

    Raises:
        BadValueError: it is relative.
    """
    own = os.path.expanduser("~")
    if path.startswith(f"{own}/") and own != "/":
        return HOME + path.removeprefix(own)
    if path == "~" or path.startswith("~/"):
        return HOME + path[1:]
    if path.startswith("/"):
        return path
    raise BadValueError(
        f"{what} {path!r} is a relative path, and with --login it is one on the cluster",
        "Write it from the root or from your home directory there, as in ~/data.",
    )


def at_home(path: str, home: str) -> str:
    """Return a path with the home directory put in; what begins with one goes on behind a colon."""
    return (
        home + path[len(HOME) :]
        if path == HOME or path.startswith((f"{HOME}/", f"{HOME}:"))
        else path
    )


def _is_image_file(image: str) -> bool:
    return image.endswith(IMAGE_FILES) or image.startswith(("/", "./", "../"))


def _image(image: str, what: str) -> str:
    return there(image, what) if _is_image_file(image) or image.startswith("~") else image


def _mount(text: str, what: str) -> str:
    """Return a container's mount, SOURCE[:DESTINATION[:ro]], its source a path there."""
    source, colon, rest = text.partition(":")
    return there(source, what) + colon + rest

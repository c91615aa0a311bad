"""Places on other machines, where this one's home and working directory mean nothing.

Until the home directory there is known, `HOME` stands for it.
"""

from __future__ import annotations

import os.path

from slurm_adapter.errors import BadValueError
from slurm_adapter.paths import IMAGE_FILES

HOME = "/~"


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


def image_there(image: str, what: str) -> str:
    """Return a container's image; one that is a file as a path there, see `there`."""
    is_file = image.endswith(IMAGE_FILES) or image.startswith(("/", "./", "../", "~"))
    return there(image, what) if is_file else image


def mount_there(text: str, what: str) -> str:
    """Return a container's mount, SOURCE[:DESTINATION[:ro]], its source a path there."""
    source, colon, rest = text.partition(":")
    return there(source, what) + colon + rest


def at_home(path: str, home: str) -> str:
    """Return a path with the home directory put in; what begins with one goes on behind a colon."""
    return (
        home + path[len(HOME) :]
        if path == HOME or path.startswith((f"{HOME}/", f"{HOME}:"))
        else path
    )

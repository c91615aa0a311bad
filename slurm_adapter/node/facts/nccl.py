"""Which NCCL a job's ranks will load: found among the interpreter's packages, torch not imported.

torch loads `libnccl.so.2` of the package nvidia-nccl-cu*; builds without one (conda, NVIDIA's
containers) use the system's library, whose file carries its version.
"""

from __future__ import annotations

import os
import re

from slurm_adapter.network.gids import NcclVersion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from slurm_adapter.job.job import Job

_PACKAGE = re.compile(r"nvidia_nccl_cu\d+-(\d+(?:\.\d+)+)\.dist-info")
_LIBRARY = re.compile(r"libnccl\.so\.(\d+\.\d+(?:\.\d+)*)")
_PYTHON = re.compile(r"python3\.\d+")
_PACKAGES = ("site-packages", "dist-packages")
_SYSTEM = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
)


def find_nccl(job: Job, python: str, environment: Mapping[str, str]) -> NcclVersion:
    """Return the version that a job's interpreter will most likely load, and what says so.

    What LD_LIBRARY_PATH leads to comes first, as the loader has it, then the interpreter's own
    packages, then the system's library.

    Args:
        job: what runs; its variables come before the inherited ones.
        python: its interpreter on this node, a path or a name in the PATH.
        environment: what the ranks inherit.
    """
    path = _interpreter(python, job.value_of("PATH", environment))
    real = os.path.realpath(path) if path else ""
    prefixes = dict.fromkeys(_prefix(one) for one in (path, real) if one)
    search = job.value_of("LD_LIBRARY_PATH", environment).split(":")
    for folders, pattern in (
        (filter(None, search), _LIBRARY),
        (_package_folders(prefixes, os.path.basename(real)), _PACKAGE),
        ((*(f"{prefix}/lib" for prefix in prefixes), *_SYSTEM), _LIBRARY),
    ):
        for folder in folders:
            for name in _names(folder):
                if (match := pattern.fullmatch(name)) is not None:
                    return NcclVersion(tuple(map(int, match[1].split("."))), f"{folder}/{name}")
    return NcclVersion(None, f"none found for {path or python}")


def _interpreter(python: str, search: str) -> str:
    """Return the interpreter's path, empty where there is none."""
    if "/" in python:
        return python
    for folder in filter(None, search.split(":")):
        if os.access(f"{folder}/{python}", os.X_OK):
            return f"{folder}/{python}"
    return ""


def _prefix(path: str) -> str:
    """Return where an interpreter was installed; a virtual environment is such a place."""
    return os.path.dirname(os.path.dirname(os.path.abspath(path)))


def _package_folders(prefixes: Iterable[str], program: str) -> Iterator[str]:
    """Yield where packages are; `program` is the interpreter's own name, such as python3.11."""
    for prefix in prefixes:
        for lib in ("lib", "lib64", "local/lib"):
            for name in _names(f"{prefix}/{lib}"):
                others = _PYTHON.fullmatch(program) and name != program
                if name == "python3" or (_PYTHON.fullmatch(name) and not others):
                    yield from (f"{prefix}/{lib}/{name}/{packages}" for packages in _PACKAGES)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []

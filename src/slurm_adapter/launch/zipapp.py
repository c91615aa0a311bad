"""The node side as one file in a job's folder: for nodes, or images, that have no slurm-adapter.

Its name holds its content's hash: a later version of ours does not change what a queued job runs.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.launch.archive import agent_files
from slurm_adapter.node.program import make_folder

PLAIN_NAME = "slurm-adapter.pyz"


def zipapp_name() -> str:
    """Return the name of the file in a job's folder."""
    digest = blake2b(agent_files().archive, digest_size=6).hexdigest()
    return PLAIN_NAME.replace(".", f"-{digest}.")


def zipapp_words(python: str, path: str) -> list[str]:
    """Return the words that start the node side from its file, absolute, by `python`."""
    return [python, "-I", "-S", path]


def write_zipapp(folder: str) -> None:
    """Have the file in a job's folder, which is made; a reader never sees half of it.

    Raises:
        ClusterUnfitError: where it cannot be written.
    """
    make_folder(folder)
    path = Path(folder) / zipapp_name()
    partial = path.with_suffix(".partial")
    try:
        if path.is_file() and path.read_bytes() == agent_files().archive:
            return
        partial.write_bytes(agent_files().archive)
        partial.replace(path)
    except OSError as error:
        raise ClusterUnfitError(
            f"{path} cannot be written: {error.strerror}",
            "Name a folder that can be with --job-folder DIR.",
        ) from error

"""The node side as one file in a job's folder: for nodes, or images, that have no slurm-adapter.

Its name holds its content's hash: a later version of ours does not change what a queued job runs.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from slurm_adapter.remote.agent_archive import agent_files

if TYPE_CHECKING:
    from slurm_adapter.remote.submit_host import SubmitHost

PLAIN_NAME = "slurm-adapter.pyz"
_END = 32


def zipapp_name() -> str:
    """Return the name of the file in a job's folder."""
    digest = blake2b(agent_files().archive, digest_size=6).hexdigest()
    return PLAIN_NAME.replace(".", f"-{digest}.")


def zipapp_words(python: str, path: str) -> list[str]:
    """Return the words that start the node side from its file, absolute, by `python`."""
    return [python, "-I", "-S", path]


def write_zipapp(submit_host: SubmitHost, folder: str) -> None:
    """Have the file in a job's folder, which is made; a reader never sees half of it.

    Raises:
        ClusterUnfitError: where it cannot be written.
    """
    archive = agent_files().archive
    path = f"{folder}/{zipapp_name()}"
    end = len(archive) - _END  # enough: it is written at one stroke, under a name of its own
    if submit_host.read([(path, end)]) != [(end, archive[end:])]:
        submit_host.make_folder(folder)
        submit_host.write(path, archive)

"""Inside a container: the user's variables come before the image's own.

A batch script hands them over under names that no image sets. What an image, or a hook of its
runtime, says about the rendezvous is nobody's choice: enroot's hook for PyTorch images sets
MASTER_ADDR and MASTER_PORT in every task.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "SLURM_ADAPTER_ENV_"
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")


def as_meant(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the environment of a task with the user's own values.

    Args:
        environment: the task's, as the image has left it.
        names: the variables that the user has set, or keeps.
    """
    meant = {
        name: value
        for name, value in environment.items()
        if name not in _RENDEZVOUS and not name.startswith(PREFIX)
    }
    for name in names:
        value = environment.get(PREFIX + name, environment.get(name))
        if value is not None:
            meant[name] = value
    return meant

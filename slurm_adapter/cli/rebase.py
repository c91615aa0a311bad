"""What the user said of a job that is submitted through a login node: its places lie there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_adapter.cli.request import settings_from_layers, settings_of
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.remote_paths import image_there, mount_there, there

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.config.jobfile import Settings

_LOG_OPTIONS = ("output", "error", "input", "chdir")


def settings_at_login_host(
    common: dict[str, Any], options: list[str], own: Mapping[str, Any]
) -> Settings:
    """Return all that the user said, places meant on the cluster."""
    given = dict(common)
    for name in ("job_folder", "cache", "python"):
        given[name] = _place(common[name], f"--{name.replace('_', '-')}", name)
    for name in ("input", "output"):
        given[name] = [_channel(text, f"--{name}") for text in common[name] or []]
    ours = dict(own)
    for name in ("venv", "conda"):
        ours[name] = _place(own[name], f"--{name}", name)
    if own["container"]:
        ours["container"] = image_there(own["container"], "--container")
    if mounts := own["container_mounts"]:
        ours["container_mounts"] = [mount_there(text, "--container-mount") for text in mounts]
    settings = settings_from_layers(
        settings_of(given, options, ours), common["job"], elsewhere=True
    )
    slurm = {
        name: _log_path(value, f"--sbatch {name}") if name in _LOG_OPTIONS and value else value
        for name, value in settings.slurm.items()
    }
    return settings.model_copy(update={"slurm": slurm})


def _place(value: str | None, what: str, name: str) -> str | None:
    """Return a place there; a bare name of an interpreter or of an environment is none."""
    if not value or (name in ("python", "conda") and "/" not in value):
        return value
    if name == "cache" and value.startswith("$"):
        return value
    return there(value, what)


def _channel(text: str, what: str) -> str:
    name, equals, path = text.partition("=")
    return f"{name}={there(path, f'{what} {name}=')}" if equals and path else text


def _log_path(value: str, what: str) -> str:
    if "$" in value:
        raise BadValueError(
            f"{what}={value} names a variable, which is not known here",
            "With --login write the path out, or begin it with ~.",
        )
    return value if value == "none" else there(value, what)

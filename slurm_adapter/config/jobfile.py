"""Job files: TOML becomes settings, with errors that name the file, the key and the remedy.

The same keys stand in a job file, in the user's config file and behind the options of the
command line; `Settings` is one such layer, and `merge` puts layers on top of each other.
"""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictBool, StrictInt, StrictStr

from slurm_adapter.config.toml import Text, as_text, read_toml, validated
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.remote_paths import image_there, mount_there, there
from slurm_adapter.network.overrides import check_overrides, over
from slurm_adapter.paths import IMAGE_FILES, SITE_FILE, absolute, given, on_node, user_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_EXAMPLES = {
    "name": 'name = "train"',
    "args": 'args = ["--epochs", "5"]',
    "nodes": "nodes = 2",
    "gpus_per_node": "gpus_per_node = 8",
    "elastic": 'elastic = "1:3"',
    "max_restarts": "max_restarts = 3",
    "ranks_by": 'ranks_by = "node"',
    "port": "port = 29400",
    "view": 'view = "hosts"',
    "cache": 'cache = "/local/scratch"',
    "install_requirements": "install_requirements = true",
    "env": '[env] with lines such as WANDB_MODE = "offline"',
    "keep": 'keep = ["WANDB_API_KEY"]',
    "inputs": '[inputs] with lines such as data_url = "/datasets/cifar10"',
    "outputs": '[outputs] with lines such as train_url = "/results/train"',
    "gpu_option": 'gpu_option = "gres"',
    "exclusive": "exclusive = true",
    "requeue": "requeue = true",
    "modules": 'modules = ["gcc/12", "cuda/12.4"]',
    "venv": 'venv = "/home/ada/venv"',
    "conda": 'conda = "train"',
    "prologue": 'prologue = ["ulimit -n 65536"]',
    "container": 'container = "/images/pytorch.sif"',
    "container_runtime": 'container_runtime = "apptainer"',
    "container_mounts": 'container_mounts = ["/datasets", "/scratch/ada:/scratch:ro"]',
    "container_options": 'container_options = ["--rocm"]',
    "slurm": '[slurm] with lines such as partition = "train"; a flag is true or left out',
    "warn": 'warn = "USR2@120"',
    "retries": "retries = 2",
    "on_timeout": 'on_timeout = "requeue:5"',
    "network": '[network] with lines such as subnet = "10.20.0.0/16"',
    "parts": "[[parts]] with lines such as nodes = 1 and gpus_per_node = 2",
    "login": 'login = "ada@login1"',
    "ssh": '[ssh] with lines such as hosts = ["gpu01 slots=8", "gpu[02-04]"]',
}

# Keys that take each other's place, and what is wrong with both.
_EITHER = {
    ("boot", "command"): "a boot file and a command are two programs",
    ("venv", "conda"): "venv and conda are two environments",
}


def _as_option(value: object) -> object:
    """A flag is `true` or left out; TOML reads an unquoted 02:00:00 as a time of day."""
    if value is True:
        return ""
    if value is False:
        raise ValueError("a flag that is not wanted is left out, not false")
    if isinstance(value, time):
        return value.isoformat()
    return as_text(value)


SbatchValue = Annotated[StrictStr, BeforeValidator(_as_option)]


class SshTable(BaseModel):
    """Which machines a job is started on over SSH; None where it says nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hosts: list[StrictStr] | None = None
    """Lines as in a host file; beside `hosts_file`: which of its hosts."""
    hosts_file: StrictStr | None = None
    exclude: list[StrictStr] | None = None

    def over(self, below: SshTable) -> SshTable:
        """Return this layer on top of another; a host file takes the place of a list below it."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        if self.hosts_file is not None:
            said.setdefault("hosts", None)
        return below.model_copy(update=said)


class ComponentTable(BaseModel):
    """Further nodes of another kind: a component of a heterogeneous job of Slurm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: StrictInt = 1
    gpus_per_node: StrictInt | None = None
    flavor: StrictStr | None = None
    slurm: dict[str, SbatchValue] = {}


class Settings(BaseModel):
    """One layer of what a user may say about a job; None or empty where it says nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: StrictStr | None = None
    code: StrictStr | None = None
    boot: StrictStr | None = None
    command: StrictStr | None = None
    args: list[Text] | None = None
    nodes: StrictInt | None = None
    gpus_per_node: StrictInt | None = None
    flavor: StrictStr | None = None
    contract: StrictStr | None = None
    elastic: StrictStr | None = None
    max_restarts: StrictInt | None = None
    ranks_by: StrictStr | None = None
    python: StrictStr | None = None
    port: StrictInt | None = None
    channels: StrictStr | None = None
    job_folder: StrictStr | None = None
    view: StrictStr | None = None
    cache: StrictStr | None = None
    install_requirements: StrictBool = False
    gpu_option: StrictStr | None = None
    exclusive: StrictBool = False
    requeue: StrictBool = False
    modules: list[StrictStr] = []
    venv: StrictStr | None = None
    conda: StrictStr | None = None
    prologue: list[StrictStr] = []
    container: StrictStr | None = None
    container_runtime: StrictStr | None = None
    container_mounts: list[StrictStr] = []
    container_options: list[StrictStr] = []
    env: dict[str, Text] = {}
    keep: list[StrictStr] = []
    inputs: dict[str, StrictStr] = {}
    outputs: dict[str, StrictStr] = {}
    slurm: dict[str, SbatchValue] = {}
    parts: list[ComponentTable] = []
    warn: StrictStr | None = None
    retries: StrictInt | None = None
    on_timeout: StrictStr | None = None
    login: StrictStr | None = None
    network: dict[str, Any] = {}
    """As `network.hints` has it."""
    ssh: SshTable = SshTable()


def read_job_file(path: Path, *, elsewhere: bool = False) -> Settings:
    """Return the settings of a job file; its paths are meant relative to the file.

    Args:
        path: the file's.
        elsewhere: whether the places that are the job's own lie on other machines: see
            `elsewhere.there`.

    Raises:
        BadValueError: with file, key, what was expected and the nearest right key.
    """
    data = read_toml(path, "job file", "--job", 'name = "train"')
    settings = _validated(data, str(path))
    if elsewhere:
        settings = settings.model_copy(update=_elsewhere(settings, str(path)))
    return _relative_to(settings, path.parent.absolute())


def read_config_files(environment: Mapping[str, str], *, elsewhere: bool = False) -> list[Settings]:
    """Return the site's defaults and the user's own; a file that is not there says nothing."""
    paths = (Path(SITE_FILE), Path(user_file(environment)))
    return [read_job_file(path, elsewhere=elsewhere) for path in paths if path.is_file()]


def settings_from_options(options: Mapping[str, Any]) -> Settings:
    """Return the settings that options of the command line make; names as in a job file."""
    return _validated({name: value for name, value in options.items() if value is not None}, "")


def merge(layers: Iterable[Settings]) -> Settings:
    """Return the layers on top of each other, the last one winning; tables merge by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name in sorted(layer.model_fields_set):
            value = getattr(layer, name)
            if name == "network":
                value = over(merged.get(name, {}), value)
            elif isinstance(value, dict):
                value = {**merged.get(name, {}), **value}
            if isinstance(value, SshTable):
                value = value.over(merged.get(name, SshTable()))
            if name == "keep":
                value = [*merged.get(name, []), *value]
            merged[name] = value
        for one, other in _EITHER:
            for new, old in ((one, other), (other, one)):
                if getattr(layer, new) is not None and getattr(layer, old) is None:
                    merged.pop(old, None)  # what is given later takes the other one's place
    return Settings.model_construct(**merged)


def _validated(data: dict[str, Any], where: str) -> Settings:
    settings = validated(Settings, data, where, _EXAMPLES)
    if settings.network:
        hints = check_overrides(settings.network, where)
        settings = settings.model_copy(update={"network": hints})
    for (one, other), why in _EITHER.items():
        if getattr(settings, one) is not None and getattr(settings, other) is not None:
            raise BadValueError(f"{f'{where}: ' if where else ''}{why}", "Give one of them.")
    return settings


def _elsewhere(settings: Settings, file: str) -> dict[str, Any]:
    """Return what changes where a file's places lie on other machines."""
    changes: dict[str, Any] = {}
    for name in ("job_folder", "venv"):
        if value := getattr(settings, name):
            changes[name] = there(value, f"{file}: {name}")
    for name in ("python", "conda"):
        value = getattr(settings, name)
        if value is not None and "/" in value:  # else it is a name
            changes[name] = there(value, f"{file}: {name}")
    if settings.cache is not None and not settings.cache.startswith("$"):
        changes["cache"] = there(settings.cache, f"{file}: cache")
    if settings.container is not None:
        changes["container"] = image_there(settings.container, f"{file}: container")
    if settings.container_mounts:
        changes["container_mounts"] = [
            mount_there(text, f"{file}: container_mounts") for text in settings.container_mounts
        ]
    for name in ("inputs", "outputs"):
        if channels := getattr(settings, name):
            changes[name] = {
                channel: there(path, f"{file}: {name}.{channel}")
                for channel, path in channels.items()
            }
    return changes


def _relative_to(settings: Settings, folder: Path) -> Settings:
    """Make the paths of a file absolute. The boot file stays: it is meant inside the code."""
    base = str(folder)
    changes: dict[str, Any] = {
        name: absolute(value, base)
        for name in ("code", "job_folder")
        if (value := getattr(settings, name)) is not None
    }
    if settings.cache is not None:
        changes["cache"] = on_node(settings.cache, base)
    for name in ("python", "conda"):
        value = getattr(settings, name)
        if value is not None and "/" in value:  # else it is a name
            changes[name] = absolute(value, base)
    if settings.venv:
        changes["venv"] = absolute(settings.venv, base)
    if settings.container is not None and settings.container.endswith(IMAGE_FILES):
        changes["container"] = absolute(settings.container, base)
    if settings.boot is not None and settings.code is None:
        changes["boot"] = absolute(settings.boot, base)
    if settings.ssh.hosts_file is not None:
        file = absolute(settings.ssh.hosts_file, base)
        changes["ssh"] = settings.ssh.model_copy(update={"hosts_file": file})
    for name in ("inputs", "outputs"):
        if channels := getattr(settings, name):
            changes[name] = {channel: given(path, base) for channel, path in channels.items()}
    return settings.model_copy(update=changes)

"""From layers of settings to the job: everything is checked here, before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_adapter.cli.components import make_component
from slurm_adapter.config.jobfile import (
    Settings,
    merge,
    read_config_files,
    read_job_file,
    settings_from_options,
)
from slurm_adapter.contracts.elastic import read_elastic
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.flavor import Flavor, read_flavor
from slurm_adapter.job.job import CONTRACTS, Boot, Channel, Command, Container, Job, Program
from slurm_adapter.network.overrides import from_options
from slurm_adapter.node.job_files import (
    check_requirements,
    find_pre_start,
    locate_boot,
    locate_code,
    working_directory,
)
from slurm_adapter.node.step.options import (
    interpreter,
    job_folder,
    parse_channels,
    parse_environment,
)
from slurm_adapter.paths import IMAGE_FILES, absolute, given, on_node

if TYPE_CHECKING:
    from collections.abc import Mapping


def settings_of(
    common: dict[str, Any],
    sbatch: list[str] | None = None,
    own: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the layer of settings that the command line's options make.

    Args:
        common: the options of all launching commands, by parameter.
        sbatch: what is told to sbatch by name.
        own: the command's own options that are keys of a job file, too; None where not given.
    """
    script, arguments = common["script"], list(common["arguments"] or [])
    if common["command"] is not None and script is not None:
        script, arguments = None, [script, *arguments]
    env, keep = parse_environment(common["env"] or [])
    base = working_directory()
    inputs = parse_channels(common["input"] or [], "--input", base)
    outputs = parse_channels(common["output"] or [], "--output", base)
    network = from_options(
        common["network"], common["master_suffix"], common["network_option"] or []
    )
    plain = [
        "name",
        "code",
        "nodes",
        "gpus_per_node",
        "flavor",
        "contract",
        "elastic",
        "max_restarts",
        "ranks_by",
        "python",
        "port",
        "channels",
        "job_folder",
        "view",
        "cache",
        "command",
    ]
    options: dict[str, Any] = {name: common[name] for name in plain}
    options |= {
        "boot": script,
        "args": arguments if script is not None or arguments else None,
        "env": env or None,
        "keep": list(keep) or None,
        "inputs": {channel.name: channel.path for channel in inputs} or None,
        "outputs": {channel.name: channel.path for channel in outputs} or None,
        "install_requirements": common["install_requirements"] or None,
        "network": network or None,
        "slurm": _sbatch_options(sbatch or []) or None,
        **(own or {}),
    }
    return settings_from_options(options)


def _sbatch_options(texts: list[str]) -> dict[str, str | bool]:
    options: dict[str, str | bool] = {}
    for text in texts:
        name, equals, value = text.removeprefix("--").partition("=")
        options[name] = value if equals else True
    return options


def job_from_layers(options: Settings, job_file: str | None) -> Job:
    """Return the job; options win over the job file, which wins over the user's config file.

    Raises:
        BadValueError: for the first thing that cannot be meant.
    """
    return job_from_settings(settings_from_layers(options, job_file), working_directory())


def settings_from_layers(
    options: Settings, job_file: str | None, *, elsewhere: bool = False
) -> Settings:
    """Return all that the user said: options over the job file over the config file.

    Args:
        options: what the command line says.
        job_file: the path after --job.
        elsewhere: whether the job's places lie on other machines.

    Raises:
        BadValueError: for a file that cannot be read, or says what cannot be meant.
    """
    layers = read_config_files(os.environ, elsewhere=elsewhere)
    if job_file is not None:
        layers.append(read_job_file(Path(job_file), elsewhere=elsewhere))
    return merge([*layers, options])


def job_from_settings(settings: Settings, base: str) -> Job:
    """Return the job that settings describe; relative paths are meant from `base`."""
    program, code, stem = _program(settings, base)
    flavor = read_flavor(settings.flavor) if settings.flavor is not None else None
    nodes = 1 if settings.nodes is None else settings.nodes
    if flavor is not None and flavor.most_nodes is not None and nodes > flavor.most_nodes:
        raise BadValueError(
            f"the flavor {settings.flavor} is for at most {flavor.most_nodes}"
            f" node{'s' if flavor.most_nodes > 1 else ''}, not {nodes}",
            f"Give --nodes {flavor.most_nodes} or another flavor.",
        )
    name = stem if settings.name is None else settings.name
    optional = {
        "contract": settings.contract,
        "elastic": read_elastic(settings.elastic) if settings.elastic is not None else None,
        "max_restarts": settings.max_restarts,
        "ranks_by": settings.ranks_by,
        "python": interpreter(settings.python, base) if settings.python else None,
        "gpu_option": settings.gpu_option,
        "gpus_per_node": _gpus(settings, flavor),
        **(_of_flavor(flavor) if flavor is not None else {}),
    }
    job = Job(
        program=program,
        code=code,
        folder=job_folder(name, settings.job_folder, base),
        name=name,
        args=tuple(settings.args or ()),
        nodes=nodes,
        env=settings.env,
        keep=tuple(settings.keep),
        inputs=_channels(settings.inputs, base),
        outputs=_channels(settings.outputs, base),
        channels_as=settings.channels,
        port=settings.port,
        warn=settings.warn,
        retries=settings.retries or 0,
        on_timeout=settings.on_timeout,
        network=settings.network,
        slurm={name: value or None for name, value in settings.slurm.items()},
        components=tuple(map(make_component, settings.parts)),
        view=settings.view,
        cache=settings.cache and on_node(settings.cache, base),
        pre_start=find_pre_start(program, settings.contract or CONTRACTS[0]),
        install_requirements=settings.install_requirements,
        exclusive=settings.exclusive,
        requeue=settings.requeue,
        modules=tuple(settings.modules),
        venv=_environment(settings.venv, base, named=False),
        conda=_environment(settings.conda, base, named=True),
        prologue=tuple(settings.prologue),
        container=_container(settings, base),
        **{name: value for name, value in optional.items() if value is not None},
    )
    check_requirements(job)
    return job


def _program(settings: Settings, base: str) -> tuple[Program, str, str]:
    """Return (program, code directory, the name a job gets where none is given)."""
    code = locate_code(settings.code, base) if settings.code is not None else None
    if settings.boot is not None:
        boot, code = locate_boot(settings.boot, code, base)
        return Boot(boot), code, Path(boot).stem
    if settings.command is not None:
        if not settings.command.strip():
            raise BadValueError("--command is empty", "Give what /bin/sh should run.")
        return Command(settings.command), code or base, "job"
    raise BadValueError(
        "nothing to run was given",
        "Name a boot file with its arguments, as in `train.py --epochs 5`, or give --job FILE.",
    )


def _environment(value: str | None, base: str, *, named: bool) -> str | None:
    """Return where an environment lies, or its name where it may be `named`; empty stays so."""
    if not value or (named and "/" not in value):
        return value
    return absolute(value, base)


def _container(settings: Settings, base: str) -> Container | None:
    """Return the image to run in; what looks like a file of it is made absolute."""
    if settings.container is None:
        for name in ("container_runtime", "container_mounts", "container_options"):
            if getattr(settings, name):
                raise BadValueError(
                    f"{name} says something of a container, and none is given",
                    "Name the image with --container IMAGE.",
                )
        return None
    image = settings.container
    if image.endswith(IMAGE_FILES) or image.startswith(("/", "./", "../")):
        image = absolute(image, base)
    return Container(
        image,
        settings.container_runtime,
        tuple(settings.container_mounts),
        tuple(settings.container_options),
    )


def _gpus(settings: Settings, flavor: Flavor | None) -> int | None:
    if settings.gpus_per_node is not None or flavor is None:
        return settings.gpus_per_node
    return flavor.cards


def _of_flavor(flavor: Flavor) -> dict[str, Any]:
    return {
        "accelerator": flavor.accelerator or None,
        "cpus_per_task": flavor.cpus,
        "memory_mib": flavor.memory_mib,
    }


def _channels(channels: Mapping[str, str], base: str) -> tuple[Channel, ...]:
    return tuple(Channel(name, given(path, base)) for name, path in channels.items())

"""From layers of options to the job: everything is checked here, before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_adapter.cli.components import flavor_for, make_component
from slurm_adapter.config.jobfile import merge, read_config_files, read_job_file
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import Container, Job
from slurm_adapter.job.remote_paths import at_login_host, logs_at_login_host, rebased
from slurm_adapter.node.job_files import working_directory
from slurm_adapter.node.step.options import make_job
from slurm_adapter.record import replace

if TYPE_CHECKING:
    from slurm_adapter.cli.options import Given
    from slurm_adapter.job.option import Option
    from slurm_adapter.job.options import JobOptions


def job_from_layers(given: Given) -> Job:
    """Return the job; options win over the job file, which wins over the user's config file.

    Raises:
        BadValueError: for the first thing that cannot be meant.
    """
    return job_from_options(options_from_layers(given), working_directory())


def options_from_layers(given: Given, *, at_login: bool = False) -> JobOptions:
    """Return all that the user said: words over variables over the job file over config files.

    Args:
        given: what was said where the command was typed.
        at_login: whether the job's own paths lie on other machines.

    Raises:
        BadValueError: for a file that cannot be read, or says what cannot be meant.
    """
    words, environment = given.words, given.environment
    if at_login:
        words, environment = at_login_host(words, _word), at_login_host(environment, _variable)
    said = merge([files_of(given, at_login=at_login), environment, words])
    if at_login and said.slurm:
        said = replace(said, slurm=logs_at_login_host(said.slurm))
    return said


def files_of(given: Given, *, at_login: bool = False) -> JobOptions:
    """Return what the job file says over the user's config file over the site's."""
    layers = read_config_files(os.environ, at_login=at_login)
    if given.job_file is not None:
        layers.append(read_job_file(Path(given.job_file), at_login=at_login))
    return merge(layers)


def _word(option: Option, item: str) -> str:
    return f"{option.long} {item}=" if item else option.long


def _variable(option: Option, item: str) -> str:
    del item
    return option.variable


def job_from_options(said: JobOptions, base: str) -> Job:
    """Return the job that options describe; relative paths are meant from `base`."""
    if said.boot is None and said.command is not None and not said.command.strip():
        raise BadValueError("--command is empty", "Give what /bin/sh should run.")
    if said.boot is None and said.command is None:
        raise BadValueError(
            "nothing to run was given",
            "Name a boot file with its arguments, as in `train.py --epochs 5`, or give --job FILE.",
        )
    said = rebased(said, base)
    nodes = 1 if said.nodes is None else said.nodes
    more = {
        "nodes": nodes,
        "components": tuple(map(make_component, said.components or ())),
        "slurm": said.slurm or {},
        "warn": said.warn,
        "retries": said.retries or 0,
        "on_timeout": said.on_timeout,
        "exclusive": bool(said.exclusive),
        "requeue": bool(said.requeue),
        "modules": said.modules or (),
        "venv": said.venv,
        "conda": said.conda,
        "prologue": said.prologue or (),
        "container": _container(said),
        **_cards(said, nodes),
    }
    if said.gpu_option is not None:
        more["gpu_option"] = said.gpu_option
    return make_job(said, base, more)


def _container(said: JobOptions) -> Container | None:
    """Return the image to run in."""
    if said.container is None:
        for name in ("container_runtime", "container_mounts", "container_options"):
            if getattr(said, name):
                raise BadValueError(
                    f"{name} says something of a container, and none is given",
                    "Name the image with --container IMAGE.",
                )
        return None
    return Container(
        said.container,
        said.container_runtime,
        said.container_mounts or (),
        said.container_options or (),
    )


def _cards(said: JobOptions, nodes: int) -> dict[str, Any]:
    """Return what each node is to have, as fields of a job."""
    if said.flavor is None:
        return {"gpus_per_node": said.gpus_per_node}
    flavor = flavor_for(said.flavor, nodes, "--nodes ")
    return {
        "gpus_per_node": flavor.cards if said.gpus_per_node is None else said.gpus_per_node,
        "accelerator": flavor.accelerator or "gpu",
        "cpus_per_task": flavor.cpus,
        "memory_mib": flavor.memory_mib,
    }

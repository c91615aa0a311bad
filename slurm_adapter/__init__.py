"""Start PyTorch training jobs on Slurm, over SSH or here; ModelArts scripts run unchanged.

The names below are the library: what the command line does, a program can do. They are loaded
when first used, because a rank must start in milliseconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slurm_adapter.cluster import Cluster, Node, Run
    from slurm_adapter.cluster.hostlist import expand_hostlist, fold_hostlist
    from slurm_adapter.cluster.slurm import Step, read_step
    from slurm_adapter.config.hostfile import read_hosts
    from slurm_adapter.errors import AdapterError
    from slurm_adapter.job.component import HetComponent
    from slurm_adapter.job.flavor import Flavor, read_flavor
    from slurm_adapter.job.job import Argv, Boot, Channel, Command, Container, Job
    from slurm_adapter.launch.batch.submit import make_script, submit
    from slurm_adapter.launch.handle import JobHandle, JobState, LogLine, StopNotConfirmedError
    from slurm_adapter.launch.jobs import find_job
    from slurm_adapter.launch.local_job import launch_local
    from slurm_adapter.launch.observer import Observer
    from slurm_adapter.launch.ssh.launch import launch_ssh
    from slurm_adapter.plan import Plan, make_plan
    from slurm_adapter.record import replace

__version__ = "0.1.0"

_HOMES = {
    "cluster": ("Cluster", "Node", "Run"),
    "cluster.hostlist": ("expand_hostlist", "fold_hostlist"),
    "cluster.slurm": ("Step", "read_step"),
    "errors": ("AdapterError",),
    "job.flavor": ("Flavor", "read_flavor"),
    "config.hostfile": ("read_hosts",),
    "job.job": ("Argv", "Boot", "Channel", "Command", "Container", "Job"),
    "job.component": ("HetComponent",),
    "launch.batch.submit": ("make_script", "submit"),
    "launch.handle": ("JobHandle", "JobState", "LogLine", "StopNotConfirmedError"),
    "launch.jobs": ("find_job",),
    "launch.local_job": ("launch_local",),
    "launch.observer": ("Observer",),
    "launch.ssh.launch": ("launch_ssh",),
    "plan": ("Plan", "make_plan"),
    "record": ("replace",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AdapterError",
    "Argv",
    "Boot",
    "Channel",
    "Cluster",
    "Command",
    "Container",
    "Flavor",
    "HetComponent",
    "Job",
    "JobHandle",
    "JobState",
    "LogLine",
    "Node",
    "Observer",
    "Plan",
    "Run",
    "Step",
    "StopNotConfirmedError",
    "__version__",
    "expand_hostlist",
    "find_job",
    "fold_hostlist",
    "launch_local",
    "launch_ssh",
    "make_plan",
    "make_script",
    "read_flavor",
    "read_hosts",
    "read_step",
    "replace",
    "submit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

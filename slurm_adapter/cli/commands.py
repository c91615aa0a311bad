"""The commands as they are declared: names, options, help. What they do is loaded when called."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from slurm_adapter.cli import (
    options_sbatch,  # noqa: TC001 - typer looks
    options_ssh,  # noqa: TC001 - likewise
)
from slurm_adapter.cli.options import seconds, with_common_options
from slurm_adapter.show.lines import has_colour

_OURS_FIRST = {"allow_interspersed_args": False}
_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}

_Grace = Annotated[
    float,
    typer.Option(
        "--grace",
        metavar="SECONDS",
        parser=seconds,
        help="From SIGTERM to SIGKILL when ending ranks.",
    ),
]
_Probe = Annotated[
    bool, typer.Option("--probe", help="With --dry-run: connect and look, start nothing.")
]
_JobId = Annotated[
    str, typer.Argument(metavar="JOB", help="Its name in the list that `jobs` prints.")
]
_Clean = Annotated[
    bool, typer.Option("--clean", help="Remove the snapshots of jobs that have ended.")
]
_All = Annotated[bool, typer.Option("--all", help="Your other jobs of Slurm, too.")]
_Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")]
_Words = Annotated[list[str] | None, typer.Argument(metavar="[OPTIONS] -- [COMMAND]...")]


def sbatch(
    common: dict[str, Any],
    *,
    sbatch: options_sbatch.Sbatch = None,
    parts: options_sbatch.Part = None,
    gpu_option: options_sbatch.GpuOption = None,
    exclusive: options_sbatch.Exclusive = False,
    requeue: options_sbatch.Requeue = False,
    modules: options_sbatch.Module = None,
    venv: options_sbatch.Venv = None,
    conda: options_sbatch.Conda = None,
    prologue: options_sbatch.Prologue = None,
    container: options_sbatch.Container = None,
    container_runtime: options_sbatch.ContainerRuntime = None,
    container_mount: options_sbatch.ContainerMount = None,
    container_option: options_sbatch.ContainerOption = None,
    script_file: options_sbatch.ScriptFile = None,
    parsable: options_sbatch.Parsable = False,
    preview_nodes: options_sbatch.Preview = None,
    warn: options_sbatch.Warn = None,
    retries: options_sbatch.Retries = None,
    on_timeout: options_sbatch.OnTimeout = None,
    snapshot: options_sbatch.Snapshot = False,
    login: options_sbatch.Login = None,
    probe: _Probe = False,
    follow: options_sbatch.Stay = False,
    wait: options_sbatch.Wait = False,
) -> int:
    """Write the sbatch script and submit it."""
    from slurm_adapter.cli.components import read_components
    from slurm_adapter.cli.sbatch import run_sbatch

    own = {
        "parts": read_components(parts) if parts else None,
        "gpu_option": gpu_option,
        "exclusive": exclusive or None,
        "requeue": requeue or None,
        "modules": modules or None,
        "venv": venv,
        "conda": conda,
        "prologue": prologue or None,
        "container": container,
        "container_runtime": container_runtime,
        "container_mounts": container_mount or None,
        "container_options": container_option or None,
        "warn": warn,
        "retries": retries,
        "on_timeout": on_timeout,
        "login": login,
    }
    return run_sbatch(
        common,
        options=sbatch or [],
        script_file=script_file,
        parsable=parsable,
        preview_nodes=preview_nodes,
        snapshot=snapshot,
        probe=probe,
        stay="follow" if follow else "wait" if wait else "",
        own=own,
    )


def ssh(
    common: dict[str, Any],
    *,
    hosts: options_ssh.Hosts = None,
    hosts_file: options_ssh.HostsFile = None,
    exclude: options_ssh.Exclude = None,
    min_nodes: options_ssh.MinNodes = None,
    grace: _Grace = 10.0,
    link_timeout: options_ssh.Link = 30.0,
    connect_timeout: options_ssh.Connect = 60.0,
    logs: options_ssh.Logs = "all",
    sync: options_ssh.Sync = False,
    detach: options_ssh.Detach = False,
    probe: _Probe = False,
) -> int:
    """Start the job over SSH, on the hosts of a list."""
    from slurm_adapter.cli.ssh import SshOptions, run_ssh

    options = SshOptions(
        hosts=hosts,
        hosts_file=hosts_file,
        exclude=exclude,
        min_nodes=min_nodes,
        grace_s=grace,
        link_s=link_timeout,
        connect_s=connect_timeout,
        logs=logs,
        sync=sync,
        detach=detach,
        probe=probe,
    )
    return run_ssh(common, options)


def local(common: dict[str, Any], *, grace: _Grace = 10.0) -> int:
    """Start the job here, N nodes pretended."""
    from slurm_adapter.cli.local import run_local

    return run_local(common, grace_s=grace)


def jobs(*, everybody: _All = False, clean: _Clean = False) -> int:
    """List the jobs started from here, by Slurm and over SSH."""
    if clean:
        from slurm_adapter.cli.slurm_jobs import remove_snapshots

        return remove_snapshots()
    from slurm_adapter.cli.jobs import list_jobs

    return list_jobs(everybody=everybody)


def logs(job: _JobId, *, follow: _Follow = False) -> int:
    """Print what a job's ranks have written; -f goes on until it ends."""
    from slurm_adapter.cli.jobs import show_logs

    return show_logs(job, stay=follow)


def stop(job: _JobId) -> int:
    """End a job on all its nodes."""
    from slurm_adapter.cli.jobs import stop_job

    return stop_job(job)


def execute(words: _Words = None) -> int:
    """Inside a step: set up this rank, then become COMMAND."""
    from slurm_adapter.node.step.main import main

    return main(["exec", *(words or [])])


def env(words: _Words = None) -> int:
    """Inside a step: show the variables and why."""
    from slurm_adapter.node.step.main import main

    return main(["env", *(words or [])])


def program(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Start PyTorch training jobs on Slurm, over SSH or here; ModelArts scripts run unchanged."""
    del version  # answered before any of this is loaded


def build_app() -> typer.Typer:
    """Return the application; rich draws its help at a terminal only."""
    app = typer.Typer(
        name="slurm-adapter",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if has_colour(sys.stdout) else None,
    )
    app.callback(invoke_without_command=False)(program)
    app.command("sbatch", context_settings=_OURS_FIRST)(with_common_options(sbatch))
    app.command("ssh", context_settings=_OURS_FIRST)(with_common_options(ssh))
    app.command("local", context_settings=_OURS_FIRST)(with_common_options(local))
    app.command("jobs")(jobs)
    app.command("logs")(logs)
    app.command("stop")(stop)
    app.command("exec", context_settings=_PASSED_ON)(execute)
    app.command("env", context_settings=_PASSED_ON)(env)
    return app

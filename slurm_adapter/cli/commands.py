"""The commands as they are declared: names, options, help. What they do is loaded when called."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from slurm_adapter.cli.options import with_options
from slurm_adapter.job.options import (
    JobOptions,
    JobsOptions,
    NamedJobOptions,
    OutputOptions,
    RunOptions,
    SbatchOptions,
    SshOptions,
)
from slurm_adapter.show.lines import has_colour

if TYPE_CHECKING:
    from slurm_adapter.cli.options import Given

_OURS_FIRST = {"allow_interspersed_args": False}
_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}

_Words = Annotated[list[str] | None, typer.Argument(metavar="[OPTIONS] -- [COMMAND]...")]


@with_options("sbatch", JobOptions, RunOptions, SbatchOptions, OutputOptions)
def sbatch(given: Given, run: RunOptions, own: SbatchOptions, output: OutputOptions) -> int:
    """Write the sbatch script and submit it."""
    from slurm_adapter.cli.sbatch import run_sbatch

    return run_sbatch(given, run, own, output)


@with_options("ssh", JobOptions, RunOptions, SshOptions, OutputOptions)
def ssh(given: Given, run: RunOptions, own: SshOptions, output: OutputOptions) -> int:
    """Start the job over SSH, on the hosts of a list."""
    from slurm_adapter.cli.ssh import run_ssh

    return run_ssh(given, run, own, output)


@with_options("local", JobOptions, RunOptions, OutputOptions)
def local(given: Given, run: RunOptions, output: OutputOptions) -> int:
    """Start the job here, N nodes simulated."""
    from slurm_adapter.cli.local import run_local

    return run_local(given, run, output)


@with_options("jobs", JobsOptions)
def jobs(own: JobsOptions) -> int:
    """List the jobs started from here, by Slurm and over SSH."""
    if own.clean:
        from slurm_adapter.cli.jobs import remove_snapshots

        return remove_snapshots()
    from slurm_adapter.cli.jobs import list_jobs

    return list_jobs(everybody=own.all)


@with_options("logs", NamedJobOptions, OutputOptions)
def logs(own: NamedJobOptions, output: OutputOptions) -> int:
    """Print what a job's ranks have written; -f goes on until it ends."""
    from slurm_adapter.cli.jobs import show_logs

    return show_logs(own.job, stay=own.follow, raw=output.raw)


@with_options("stop", NamedJobOptions)
def stop(own: NamedJobOptions) -> int:
    """End a job on all its nodes."""
    from slurm_adapter.cli.jobs import stop_job

    return stop_job(own.job)


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
    for command in (sbatch, ssh, local):
        app.command(command.__name__, context_settings=_OURS_FIRST)(command)
    for command in (jobs, logs, stop):
        app.command(command.__name__)(command)
    app.command("exec", context_settings=_PASSED_ON)(execute)
    app.command("env", context_settings=_PASSED_ON)(env)
    return app

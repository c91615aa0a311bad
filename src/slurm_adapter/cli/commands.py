"""The commands as they are declared: names, options, help. What they do is loaded when called."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from slurm_adapter.cli.options import seconds, whole_number, with_common_options
from slurm_adapter.job import CONTAINER_RUNTIMES, GPU_OPTIONS
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
_Sbatch = Annotated[
    list[str] | None,
    typer.Option(
        "--sbatch", metavar="NAME[=VALUE]", help="Any long sbatch option by name. Repeatable."
    ),
]
_Part = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        metavar="WORDS",
        help="Further nodes of another kind: nodes=N gpus-per-node=N flavor=TEXT, and any long"
        " sbatch option. Repeatable.",
    ),
]
_GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-option",
        metavar="|".join(GPU_OPTIONS),
        help="How Slurm is asked for GPUs (default: gpus-per-node).",
        envvar="SLURM_ADAPTER_GPU_OPTION",
        show_envvar=False,
    ),
]
_Exclusive = Annotated[bool, typer.Option("--exclusive", help="Ask for whole nodes.")]
_Requeue = Annotated[
    bool, typer.Option("--requeue", help="Let Slurm start the job again after a node failed.")
]
_Module = Annotated[
    list[str] | None,
    typer.Option("--module", metavar="NAME", help="Load a module in the script. Repeatable."),
]
_Venv = Annotated[
    str | None,
    typer.Option("--venv", metavar="DIR", help="Activate a virtual environment in the script."),
]
_Conda = Annotated[
    str | None,
    typer.Option("--conda", metavar="ENV", help="Activate a conda environment: name or path."),
]
_Prologue = Annotated[
    list[str] | None,
    typer.Option(
        "--prologue", metavar="TEXT", help="Lines of bash to run before the ranks. Repeatable."
    ),
]
_Container = Annotated[
    str | None,
    typer.Option(
        "--container",
        metavar="IMAGE",
        help="Run the ranks in an image: a file, or a name its runtime fetches it by.",
        envvar="SLURM_ADAPTER_CONTAINER",
        show_envvar=False,
    ),
]
_ContainerRuntime = Annotated[
    str | None,
    typer.Option(
        "--container-runtime",
        metavar="|".join(CONTAINER_RUNTIMES),
        help="What runs it (default: what this machine has).",
        envvar="SLURM_ADAPTER_CONTAINER_RUNTIME",
        show_envvar=False,
    ),
]
_ContainerMount = Annotated[
    list[str] | None,
    typer.Option(
        "--container-mount",
        metavar="SRC[:DST[:ro]]",
        help="Mount more than the job's own directories. Repeatable.",
    ),
]
_ContainerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--container-option", metavar="OPTION", help="One more word for the runtime. Repeatable."
    ),
]
_ScriptFile = Annotated[
    str | None,
    typer.Option("--script", metavar="FILE", help="Only write the script (-: to stdout)."),
]
_Parsable = Annotated[bool, typer.Option("--parsable", help="Print the job id alone.")]
_Preview = Annotated[
    str | None,
    typer.Option("--preview-nodes", metavar="LIST", help="Node names to show in a dry run."),
]
_Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "-H", metavar="LIST", help="Hosts, as in gpu01,gpu[02-04]:8; @GROUP of the host file."
    ),
]
_HostsFile = Annotated[
    str | None,
    typer.Option("--hosts", metavar="FILE", help="Host file: a line for each host, or TOML."),
]
_Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="LIST", help="Hosts to leave out.")
]
_MinNodes = Annotated[
    int | None,
    typer.Option(
        "--min-nodes",
        metavar="N",
        parser=whole_number,
        help="Start also where some hosts cannot be reached, on N at least.",
    ),
]
_Link = Annotated[
    float,
    typer.Option(
        "--link-timeout",
        metavar="SECONDS",
        parser=seconds,
        help="Silence after which a host is lost, and to a host the head.",
    ),
]
_Connect = Annotated[
    float,
    typer.Option(
        "--connect-timeout",
        metavar="SECONDS",
        parser=seconds,
        help="For all attempts to connect to a host, and for its first answer.",
    ),
]
_Logs = Annotated[
    str,
    typer.Option(
        "--logs",
        metavar="all|first|none|rank=N",
        help="Whose output is shown (rank=0,4-7 too); the job's record has all.",
    ),
]
_Sync = Annotated[
    bool, typer.Option("--sync", help="Copy the code to the hosts, into the job's folder.")
]
_Detach = Annotated[
    bool, typer.Option("--detach", help="Return when all ranks run, and print the job's id.")
]
_Probe = Annotated[
    bool, typer.Option("--probe", help="With --dry-run: connect and look, start nothing.")
]
_JobId = Annotated[
    str, typer.Argument(metavar="JOB", help="Its name in the list that `jobs` prints.")
]
_Warn = Annotated[
    str | None,
    typer.Option(
        "--warn",
        metavar="[SIGNAL@]SECONDS",
        help="What every rank gets so long before the time limit (USR2).",
    ),
]
_Retries = Annotated[
    int | None,
    typer.Option(
        "--retries",
        metavar="N",
        parser=whole_number,
        help="Start ranks that failed again, so often, in the same allocation.",
    ),
]
_OnTimeout = Annotated[
    str | None,
    typer.Option(
        "--on-timeout",
        metavar="requeue[:N]",
        help="Go on in up to N more jobs where one runs into its time limit (3).",
    ),
]
_Snapshot = Annotated[
    bool,
    typer.Option("--snapshot", help="Run a copy of the code as it is now, in the job's folder."),
]
_Clean = Annotated[
    bool, typer.Option("--clean", help="Remove the snapshots of jobs that have ended.")
]
_All = Annotated[bool, typer.Option("--all", help="Your other jobs of Slurm, too.")]
_Login = Annotated[
    str | None,
    typer.Option(
        "--login",
        metavar="[USER@]HOST",
        help="Submit through a login node, over SSH; the code is copied there.",
        envvar="SLURM_ADAPTER_LOGIN",
        show_envvar=False,
    ),
]
_Stay = Annotated[
    bool, typer.Option("--follow", help="Stay until the job ends; its output, its exit status.")
]
_Wait = Annotated[bool, typer.Option("--wait", help="Stay until the job ends, without output.")]
_Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")]
_Words = Annotated[list[str] | None, typer.Argument(metavar="[OPTIONS] -- [COMMAND]...")]


def sbatch(
    common: dict[str, Any],
    *,
    sbatch: _Sbatch = None,
    parts: _Part = None,
    gpu_option: _GpuOption = None,
    exclusive: _Exclusive = False,
    requeue: _Requeue = False,
    modules: _Module = None,
    venv: _Venv = None,
    conda: _Conda = None,
    prologue: _Prologue = None,
    container: _Container = None,
    container_runtime: _ContainerRuntime = None,
    container_mount: _ContainerMount = None,
    container_option: _ContainerOption = None,
    script_file: _ScriptFile = None,
    parsable: _Parsable = False,
    preview_nodes: _Preview = None,
    warn: _Warn = None,
    retries: _Retries = None,
    on_timeout: _OnTimeout = None,
    snapshot: _Snapshot = False,
    login: _Login = None,
    probe: _Probe = False,
    follow: _Stay = False,
    wait: _Wait = False,
) -> int:
    """Write the sbatch script and submit it."""
    from slurm_adapter.cli.parts import read_parts  # noqa: PLC0415
    from slurm_adapter.cli.sbatch import run_sbatch  # noqa: PLC0415

    own = {
        "parts": read_parts(parts) if parts else None,
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
    hosts: _Hosts = None,
    hosts_file: _HostsFile = None,
    exclude: _Exclude = None,
    min_nodes: _MinNodes = None,
    grace: _Grace = 10.0,
    link_timeout: _Link = 30.0,
    connect_timeout: _Connect = 60.0,
    logs: _Logs = "all",
    sync: _Sync = False,
    detach: _Detach = False,
    probe: _Probe = False,
) -> int:
    """Start the job over SSH, on the hosts of a list."""
    from slurm_adapter.cli.ssh import SshOptions, run_ssh  # noqa: PLC0415

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
    from slurm_adapter.cli.local import run_local  # noqa: PLC0415

    return run_local(common, grace_s=grace)


def jobs(*, everybody: _All = False, clean: _Clean = False) -> int:
    """List the jobs started from here, by Slurm and over SSH."""
    if clean:
        from slurm_adapter.cli.batch import remove_snapshots  # noqa: PLC0415

        return remove_snapshots()
    from slurm_adapter.cli.jobs import list_jobs  # noqa: PLC0415

    return list_jobs(everybody=everybody)


def logs(job: _JobId, *, follow: _Follow = False) -> int:
    """Print what a job's ranks have written; -f goes on until it ends."""
    from slurm_adapter.cli.jobs import show_logs  # noqa: PLC0415

    return show_logs(job, stay=follow)


def stop(job: _JobId) -> int:
    """End a job on all its nodes."""
    from slurm_adapter.cli.jobs import stop_job  # noqa: PLC0415

    return stop_job(job)


def execute(words: _Words = None) -> int:
    """Inside a step: set up this rank, then become COMMAND."""
    from slurm_adapter.node.main import main  # noqa: PLC0415

    return main(["exec", *(words or [])])


def env(words: _Words = None) -> int:
    """Inside a step: show the variables and why."""
    from slurm_adapter.node.main import main  # noqa: PLC0415

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

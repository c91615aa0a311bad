"""The options of `sbatch` alone, as typer takes them."""

from typing import Annotated

import typer

from slurm_adapter.cli.options import whole_number
from slurm_adapter.job.job import CONTAINER_RUNTIMES, GPU_OPTIONS

Sbatch = Annotated[
    list[str] | None,
    typer.Option(
        "--sbatch", metavar="NAME[=VALUE]", help="Any long sbatch option by name. Repeatable."
    ),
]
Part = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        metavar="WORDS",
        help="Further nodes of another kind: nodes=N gpus-per-node=N flavor=TEXT, and any long"
        " sbatch option. Repeatable.",
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-option",
        metavar="|".join(GPU_OPTIONS),
        help="How Slurm is asked for GPUs (default: gpus-per-node).",
        envvar="SLURM_ADAPTER_GPU_OPTION",
        show_envvar=False,
    ),
]
Exclusive = Annotated[bool, typer.Option("--exclusive", help="Ask for whole nodes.")]
Requeue = Annotated[
    bool, typer.Option("--requeue", help="Let Slurm start the job again after a node failed.")
]
Module = Annotated[
    list[str] | None,
    typer.Option("--module", metavar="NAME", help="Load a module in the script. Repeatable."),
]
Venv = Annotated[
    str | None,
    typer.Option("--venv", metavar="DIR", help="Activate a virtual environment in the script."),
]
Conda = Annotated[
    str | None,
    typer.Option("--conda", metavar="ENV", help="Activate a conda environment: name or path."),
]
Prologue = Annotated[
    list[str] | None,
    typer.Option(
        "--prologue", metavar="TEXT", help="Lines of bash to run before the ranks. Repeatable."
    ),
]
Container = Annotated[
    str | None,
    typer.Option(
        "--container",
        metavar="IMAGE",
        help="Run the ranks in an image: a file, or a name its runtime fetches it by.",
        envvar="SLURM_ADAPTER_CONTAINER",
        show_envvar=False,
    ),
]
ContainerRuntime = Annotated[
    str | None,
    typer.Option(
        "--container-runtime",
        metavar="|".join(CONTAINER_RUNTIMES),
        help="What runs it (default: what this machine has).",
        envvar="SLURM_ADAPTER_CONTAINER_RUNTIME",
        show_envvar=False,
    ),
]
ContainerMount = Annotated[
    list[str] | None,
    typer.Option(
        "--container-mount",
        metavar="SRC[:DST[:ro]]",
        help="Mount more than the job's own directories. Repeatable.",
    ),
]
ContainerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--container-option", metavar="OPTION", help="One more word for the runtime. Repeatable."
    ),
]
ScriptFile = Annotated[
    str | None,
    typer.Option("--script", metavar="FILE", help="Only write the script (-: to stdout)."),
]
Parsable = Annotated[bool, typer.Option("--parsable", help="Print the job id alone.")]
Preview = Annotated[
    str | None,
    typer.Option("--preview-nodes", metavar="LIST", help="Node names to show in a dry run."),
]
Warn = Annotated[
    str | None,
    typer.Option(
        "--warn",
        metavar="[SIGNAL@]SECONDS",
        help="What every rank gets so long before the time limit (USR2).",
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries",
        metavar="N",
        parser=whole_number,
        help="Start ranks that failed again, so often, in the same allocation.",
    ),
]
OnTimeout = Annotated[
    str | None,
    typer.Option(
        "--on-timeout",
        metavar="requeue[:N]",
        help="Go on in up to N more jobs where one runs into its time limit (3).",
    ),
]
Snapshot = Annotated[
    bool,
    typer.Option("--snapshot", help="Run a copy of the code as it is now, in the job's folder."),
]
Login = Annotated[
    str | None,
    typer.Option(
        "--login",
        metavar="[USER@]HOST",
        help="Submit through a login node, over SSH; the code is copied there.",
        envvar="SLURM_ADAPTER_LOGIN",
        show_envvar=False,
    ),
]
Stay = Annotated[
    bool, typer.Option("--follow", help="Stay until the job ends; its output, its exit status.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until the job ends, without output.")]

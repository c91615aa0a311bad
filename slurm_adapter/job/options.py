"""The table of options: each one declared here, once.

A field is the value as it is meant, None where nothing was said; see `job.option` for what its
declaration says. `JobOptions` is one layer of what a user says of a job: words of a command line,
variables, a file. The other classes have what a single command is told.
"""

from __future__ import annotations

from slurm_adapter.job.option import (
    ARGUMENTS,
    CHANNELS,
    CHOICE,
    COMPONENTS,
    COUNT,
    COUNTS,
    FLAG,
    IMAGE,
    LIST,
    MOUNTS,
    NAMES,
    NETWORK,
    PATH_HERE,
    PATH_ON_NODE,
    PATH_THERE,
    PROGRAM,
    SBATCH,
    SECONDS,
    TEXT,
    VARIABLES,
    option,
    options,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CONTRACTS = ("modelarts", "torchrun", "env")
DELIVERIES = ("option", "variable")
VIEWS = ("full", "hosts", "off")
GPU_OPTIONS = ("gpus-per-node", "gres", "none")
STARTERS = ("slurm", "node")
CONTAINER_RUNTIMES = ("pyxis", "apptainer", "singularity")
DRY_RUN_FORMATS = ("rich", "plain", "json")
ENV_FORMATS = ("table", "shell", "dotenv", "json")

SBATCH_ALONE = ("sbatch",)
SSH_ALONE = ("ssh",)
LAUNCHERS = ("sbatch", "ssh", "local")
NODE = ("exec", "env")


@options(keys=True)
class ComponentOptions:
    """Further nodes of another kind: a component of a heterogeneous job of Slurm."""

    nodes: int | None = option("Nodes (default: 1).", kind=COUNT)
    gpus_per_node: int | None = option("GPUs on each of them.", kind=COUNT)
    flavor: str | None = option("What each of them has, in place of `gpus_per_node`.", kind=TEXT)
    slurm: Mapping[str, str | None] | None = option("Any long sbatch option by name.", kind=SBATCH)


@options(commands=LAUNCHERS, keys=True)
class JobOptions:
    """One layer of what a user may say of a job."""

    job_file: str | None = option(
        "Job file (TOML).", "--job", kind=PATH_HERE, metavar="FILE", variable=True, key=""
    )
    boot: str | None = option(
        "Boot file (.py). What follows it belongs to it.",
        "--boot",
        kind=TEXT,  # where it lies, the code directory decides
        argument="SCRIPT",
        metavar="FILE",
        node=NODE,
        job_field="program",
        example='"train.py"',
    )
    args: tuple[str, ...] | None = option(
        "The script's own.", kind=ARGUMENTS, argument="ARGUMENTS", example='["--epochs", "5"]'
    )
    nodes: int | None = option("Nodes.", "-N", "--nodes", kind=COUNT, variable=True)
    gpus_per_node: int | None = option(
        "GPUs on each node.", "--gpus-per-node", kind=COUNT, variable=True, example="8"
    )
    flavor: str | None = option(
        "What a node has: a ModelArts flavor's text or id.",
        "--flavor",
        kind=TEXT,
        metavar="TEXT",
        variable=True,
        example='"GPU: 8*NVIDIA-V100"',
    )
    code: str | None = option(
        "Code directory (default: the script's).",
        "--code",
        kind=PATH_HERE,
        metavar="DIR",
        variable=True,
        node=NODE,
        example='"./gpu-train"',
    )
    contract: str | None = option(
        "How the script learns its place.",
        "--contract",
        kind=CHOICE,
        choices=CONTRACTS,
        variable=True,
        node=NODE,
    )
    elastic: str | None = option(
        "torchrun contract: go on with MIN nodes of MAX, all of the job's.",
        "--elastic",
        kind=TEXT,
        metavar="MIN:MAX",
        variable=True,
        node=NODE,
        example='"1:3"',
    )
    max_restarts: int | None = option(
        "torchrun contract: start ranks again after so many failures.",
        "--max-restarts",
        kind=COUNT,
        variable=True,
        node=NODE,
        example="3",
    )
    ranks_by: str | None = option(
        "env contract under Slurm: who starts a rank for each GPU (default: slurm).",
        "--ranks-by",
        kind=CHOICE,
        choices=STARTERS,
        variable=True,
        node=NODE,
        example='"node"',
    )
    env: Mapping[str, str] | None = option(
        "Set a variable, or keep one that would be taken out. Repeatable.",
        "--env",
        kind=VARIABLES,
        metavar="NAME[=VALUE]",
        node=NODE,
        example='[env] with lines such as WANDB_MODE = "offline"',
    )
    keep: tuple[str, ...] | None = option(
        "Variables to keep that would be taken out.", kind=NAMES, example='["WANDB_API_KEY"]'
    )
    inputs: Mapping[str, str] | None = option(
        "An input channel. Repeatable.",
        "--input",
        kind=CHANNELS,
        metavar="NAME=PATH",
        node=NODE,
        example='[inputs] with lines such as data_url = "/datasets/cifar10"',
    )
    outputs: Mapping[str, str] | None = option(
        "An output channel. Repeatable.",
        "--output",
        kind=CHANNELS,
        metavar="NAME=PATH",
        node=NODE,
        example='[outputs] with lines such as train_url = "/results/train"',
    )
    channels: str | None = option(
        "How the script gets its channels.",
        "--channels",
        kind=CHOICE,
        choices=DELIVERIES,
        variable=True,
        node=NODE,
        job_field="channels_as",
    )
    port: int | None = option(
        "Rendezvous port.", "--port", kind=COUNT, variable=True, node=NODE, example="29400"
    )
    network_choice: str | None = option(
        "The network that the nodes meet in (default: as the kernel sends it).",
        "--network",
        kind=TEXT,
        metavar="SUBNET|IFNAME",
        variable=True,
        node=NODE,
        key="",
        into="network",
    )
    master_suffix: str | None = option(
        "What the nodes' names end in on that network.",
        "--master-suffix",
        kind=TEXT,
        metavar="SUFFIX",
        variable=True,
        node=NODE,
        key="",
        into="network",
    )
    network_options: tuple[str, ...] | None = option(
        "A key of [network], such as traffic_class=106. Repeatable.",
        "--network-option",
        kind=LIST,
        metavar="KEY=VALUE",
        node=NODE,
        key="",
        into="network",
    )
    network: Mapping[str, Any] | None = option(
        "What is known of the network: [its keys](network.md#what-you-and-the-site-can-say).",
        kind=NETWORK,
        example='[network] with lines such as subnet = "10.20.0.0/16"',
    )
    name: str | None = option(
        "The job's name (default: the script's).",
        "--name",
        kind=TEXT,
        metavar="NAME",
        variable=True,
        node=NODE,
        example='"train"',
    )
    job_folder: str | None = option(
        "The job's own (default: slurm-adapter/NAME).",
        "--job-folder",
        kind=PATH_THERE,
        metavar="DIR",
        variable=True,
        node=NODE,
        job_field="folder",
    )
    python: str | None = option(
        "Interpreter (default: the job's `python`).",
        "--python",
        kind=PROGRAM,
        metavar="PROGRAM",
        variable=True,
        node=NODE,
        implied="python",
    )
    command: str | None = option(
        "Run this with /bin/sh -c in place of a script; nothing is appended.",
        "--command",
        kind=TEXT,
        metavar="TEXT",
        node=NODE,
        job_field="program",
    )
    view: str | None = option(
        "A rank's surroundings (default: by contract).",
        "--view",
        kind=CHOICE,
        choices=VIEWS,
        variable=True,
        node=NODE,
        example='"hosts"',
    )
    cache: str | None = option(
        "A directory of each node to show as /cache (default: one in the job's folder).",
        "--cache",
        kind=PATH_ON_NODE,
        metavar="DIR",
        variable=True,
        node=NODE,
        example='"/local/scratch"',
    )
    install_requirements: bool | None = option(
        "Install the code's pip-requirements.txt for this run.",
        "--install-requirements",
        kind=FLAG,
        node=NODE,
    )
    slurm: Mapping[str, str | None] | None = option(
        "Any long sbatch option by name. Repeatable.",
        "--sbatch",
        kind=SBATCH,
        metavar="NAME[=VALUE]",
        commands=SBATCH_ALONE,
        example='[slurm] with lines such as partition = "train"; a flag is true or left out',
    )
    components: tuple[ComponentOptions, ...] | None = option(
        "Further nodes of another kind: nodes=N gpus-per-node=N flavor=TEXT, and any long"
        " sbatch option. Repeatable.",
        "--part",
        kind=COMPONENTS,
        metavar="WORDS",
        commands=SBATCH_ALONE,
        key="parts",
        example="[[parts]] with lines such as nodes = 1 and gpus_per_node = 2",
    )
    gpu_option: str | None = option(
        "How Slurm is asked for GPUs (default: gpus-per-node).",
        "--gpu-option",
        kind=CHOICE,
        choices=GPU_OPTIONS,
        variable=True,
        commands=SBATCH_ALONE,
        example='"gres"',
    )
    exclusive: bool | None = option(
        "Ask for whole nodes.", "--exclusive", kind=FLAG, commands=SBATCH_ALONE
    )
    requeue: bool | None = option(
        "Let Slurm start the job again after a node failed.",
        "--requeue",
        kind=FLAG,
        commands=SBATCH_ALONE,
    )
    modules: tuple[str, ...] | None = option(
        "Load a module in the script. Repeatable.",
        "--module",
        kind=LIST,
        metavar="NAME",
        commands=SBATCH_ALONE,
        example='["gcc/12", "cuda/12.4"]',
    )
    venv: str | None = option(
        "Activate a virtual environment in the script.",
        "--venv",
        kind=PATH_THERE,
        metavar="DIR",
        commands=SBATCH_ALONE,
        example='"/home/ada/venv"',
    )
    conda: str | None = option(
        "Activate a conda environment: name or path.",
        "--conda",
        kind=PROGRAM,
        metavar="ENV",
        commands=SBATCH_ALONE,
        example='"train"',
    )
    prologue: tuple[str, ...] | None = option(
        "Lines of bash to run before the ranks. Repeatable.",
        "--prologue",
        kind=LIST,
        metavar="TEXT",
        commands=SBATCH_ALONE,
        example='["ulimit -n 65536"]',
    )
    container: str | None = option(
        "Run the ranks in an image: a file, or a name its runtime fetches it by.",
        "--container",
        kind=IMAGE,
        metavar="IMAGE",
        variable=True,
        commands=SBATCH_ALONE,
        example='"/images/pytorch.sif"',
    )
    container_runtime: str | None = option(
        "What runs it (default: what this machine has).",
        "--container-runtime",
        kind=CHOICE,
        choices=CONTAINER_RUNTIMES,
        variable=True,
        commands=SBATCH_ALONE,
        example='"apptainer"',
    )
    container_mounts: tuple[str, ...] | None = option(
        "Mount more than the job's own directories. Repeatable.",
        "--container-mount",
        kind=MOUNTS,
        metavar="SRC[:DST[:ro]]",
        commands=SBATCH_ALONE,
        example='["/datasets", "/scratch/ada:/scratch:ro"]',
    )
    container_options: tuple[str, ...] | None = option(
        "One more word for the runtime. Repeatable.",
        "--container-option",
        kind=LIST,
        metavar="OPTION",
        commands=SBATCH_ALONE,
        example='["--rocm"]',
    )
    warn: str | None = option(
        "What every rank gets so long before the time limit (USR2).",
        "--warn",
        kind=TEXT,
        metavar="[SIGNAL@]SECONDS",
        commands=SBATCH_ALONE,
        example='"USR2@120"',
    )
    retries: int | None = option(
        "Start ranks that failed again, so often, in the same allocation.",
        "--retries",
        kind=COUNT,
        commands=SBATCH_ALONE,
    )
    on_timeout: str | None = option(
        "Go on in up to N more jobs where one runs into its time limit (3).",
        "--on-timeout",
        kind=TEXT,
        metavar="requeue[:N]",
        commands=SBATCH_ALONE,
        example='"requeue:5"',
    )
    login: str | None = option(
        "Submit through a login node, over SSH; the code is copied there.",
        "--login",
        kind=TEXT,
        metavar="[USER@]HOST",
        variable=True,
        commands=SBATCH_ALONE,
        example='"ada@login1"',
    )
    hosts: tuple[str, ...] | None = option(
        "Hosts, as in gpu01,gpu[02-04]:8; @GROUP of the host file.",
        "-H",
        kind=LIST,
        metavar="LIST",
        variable="HOSTS",
        commands=SSH_ALONE,
        key="ssh.hosts",
        example='[ssh] with lines such as hosts = ["gpu01 slots=8", "gpu[02-04]"]',
    )
    hosts_file: str | None = option(
        "Host file: a line for each host, or TOML.",
        "--hosts",
        kind=PATH_HERE,
        metavar="FILE",
        variable="HOSTS_FILE",
        commands=SSH_ALONE,
        key="ssh.hosts_file",
    )
    exclude: tuple[str, ...] | None = option(
        "Hosts to leave out.",
        "--exclude",
        kind=LIST,
        metavar="LIST",
        variable=True,
        commands=SSH_ALONE,
        key="ssh.exclude",
    )


@options(commands=LAUNCHERS)
class RunOptions:
    """What launching commands are told beside the job."""

    dry_run: bool = option(
        "Show what would happen, and do nothing.", "--dry-run", kind=FLAG, default=False
    )
    format: str = option(
        "Form of the dry run.",
        "--format",
        kind=CHOICE,
        choices=DRY_RUN_FORMATS,
        default=DRY_RUN_FORMATS[0],
        variable=True,
    )
    verbose: bool = option("Say more on stderr.", "-v", "--verbose", kind=FLAG, default=False)
    quiet: bool = option("Say only errors on stderr.", "-q", "--quiet", kind=FLAG, default=False)
    probe: bool = option(
        "With --dry-run: connect and look, start nothing.",
        "--probe",
        kind=FLAG,
        default=False,
        commands=("sbatch", "ssh"),
    )
    grace_s: float = option(
        "From SIGTERM to SIGKILL when ending ranks.",
        "--grace",
        kind=SECONDS,
        default=10.0,
        commands=("ssh", "local"),
    )


@options(commands=SBATCH_ALONE)
class SbatchOptions:
    """What `sbatch` is told of a submission."""

    script: str | None = option(
        "Only write the script (-: to stdout).", "--script", kind=PATH_HERE, metavar="FILE"
    )
    parsable: bool = option("Print the job id alone.", "--parsable", kind=FLAG, default=False)
    preview_nodes: str | None = option(
        "Node names to show in a dry run.", "--preview-nodes", kind=TEXT, metavar="LIST"
    )
    snapshot: bool = option(
        "Run a copy of the code as it is now, in the job's folder.",
        "--snapshot",
        kind=FLAG,
        default=False,
    )
    follow: bool = option(
        "Stay until the job ends; its output, its exit status.",
        "--follow",
        kind=FLAG,
        default=False,
    )
    wait: bool = option(
        "Stay until the job ends, without output.", "--wait", kind=FLAG, default=False
    )


@options(commands=SSH_ALONE)
class SshOptions:
    """What `ssh` is told of a start."""

    min_nodes: int | None = option(
        "Start also where some hosts cannot be reached, on N at least.", "--min-nodes", kind=COUNT
    )
    link_s: float = option(
        "Silence after which a host is lost, and to a host the head.",
        "--link-timeout",
        kind=SECONDS,
        default=30.0,
    )
    connect_s: float = option(
        "For all attempts to connect to a host, and for its first answer.",
        "--connect-timeout",
        kind=SECONDS,
        default=60.0,
    )
    logs: str = option(
        "Whose output is shown (rank=0,4-7 too); the job's record has all.",
        "--logs",
        kind=TEXT,
        metavar="all|first|none|rank=N",
        default="all",
    )
    sync: bool = option(
        "Copy the code to the hosts, into the job's folder.", "--sync", kind=FLAG, default=False
    )
    detach: bool = option(
        "Return when all ranks run, and print the job's id.", "--detach", kind=FLAG, default=False
    )


@options(commands=(*LAUNCHERS, "logs"))
class OutputOptions:
    """What commands are told that show what ranks print."""

    raw: bool = option(
        "Output byte for byte at a terminal, too; no panel then.",
        "--raw",
        kind=FLAG,
        default=False,
    )


@options(commands=("jobs",))
class JobsOptions:
    """What `jobs` is told."""

    all: bool = option("Your other jobs of Slurm, too.", "--all", kind=FLAG, default=False)
    clean: bool = option(
        "Remove the snapshots of jobs that have ended.", "--clean", kind=FLAG, default=False
    )


@options(commands=("logs", "stop"))
class NamedJobOptions:
    """What commands are told of a job that was started before."""

    job: str = option(
        "Its name in the list that `jobs` prints.", kind=TEXT, argument="JOB", required=True
    )
    follow: bool = option(
        "Go on until the job ends.", "-f", "--follow", kind=FLAG, default=False, commands=("logs",)
    )


@options(node=("exec",))
class StepOptions:
    """What `exec` and `env` are told of the step that they are in."""

    gpus_by_component: tuple[int, ...] = option(
        "Overrules what Slurm says; of a heterogeneous job one for each component.",
        "--gpus-per-node",
        kind=COUNTS,
        metavar="N[,N]",
        default=(),
        node=NODE,
    )
    in_container: bool = option(
        "In an image: what it sets itself is not taken for yours.",
        "--in-container",
        kind=FLAG,
        default=False,
        node=NODE,
    )
    log: bool = option(
        "Write the output into the job's log folder.", "--log", kind=FLAG, default=False
    )
    format: str = option(
        "Form of the variables (default: table).",
        "--format",
        kind=CHOICE,
        choices=ENV_FORMATS,
        default=ENV_FORMATS[0],
        node=("env",),
    )


CLASSES = (
    JobOptions,
    RunOptions,
    SbatchOptions,
    SshOptions,
    OutputOptions,
    JobsOptions,
    NamedJobOptions,
    StepOptions,
)
"""All of them."""

"""The job: what to run, independent of where. Absolute paths, no I/O, nothing looked up."""

from __future__ import annotations

import os
from types import MappingProxyType

from slurm_adapter.errors import BadValueError, printable
from slurm_adapter.job.options import (
    CONTRACTS,
    DELIVERIES,
    GPU_OPTIONS,
    STARTERS,
    VIEWS,
    JobOptions,
)
from slurm_adapter.record import checked_record, replace
from slurm_adapter.setting import check_one_line, check_variable_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from slurm_adapter.job.component import HetComponent
    from slurm_adapter.job.option import Option

ACCELERATORS = ("gpu", "npu")
PORTS = range(1024, 65536)
_MOST_NODES = 100_000
_LONGEST_NAME = 200
# Linux refuses an execve with a longer string (MAX_ARG_STRLEN: 32 pages of 4 KiB).
LONGEST_STRING = 131_072
_EMPTY: Mapping[str, Any] = MappingProxyType({})


@checked_record
class Boot:
    """A Python file, run by the job's interpreter with what the contract appends."""

    path: str
    """Absolute; inside the job's code directory."""


@checked_record
class Command:
    """A boot command as on ModelArts custom images: text for `/bin/sh -c`, nothing appended."""

    text: str


@checked_record
class Argv:
    """A command given word by word (`exec -- COMMAND...`), nothing appended."""

    words: tuple[str, ...]


Program = Boot | Command | Argv


@checked_record
class Channel:
    """A named input or output: `data_url` and the local path that the script gets for it."""

    name: str
    path: str


@checked_record
class Container:
    """The image in which a job's ranks run, and how they get into it."""

    image: str
    """A file, absolute, or what the runtime fetches images by."""
    runtime: str | None = None
    """One of `CONTAINER_RUNTIMES`; None: what the machine that submits has."""
    mounts: tuple[str, ...] = ()
    """SOURCE[:DESTINATION[:ro]] each, beside the job's own directories."""
    options: tuple[str, ...] = ()
    """Further options of the runtime, a word each."""


@checked_record
class Job:
    """What to run and what it needs.

    Raises `BadValueError` when made with values that cannot be meant, so that every launcher
    refuses the same things before anything has started.
    """

    program: Program
    """What is run: a `Boot`, a `Command` or an `Argv`."""
    code: str
    """The code directory, absolute."""
    folder: str
    """The job's own folder (logs, the written script), absolute."""
    name: str = "job"
    """What logs and Slurm call it."""
    args: tuple[str, ...] = ()
    """The user's own arguments for the script, untouched."""
    nodes: int = 1
    """How many machines run it."""
    gpus_per_node: int | None = None
    """None: whatever the node turns out to have."""
    gpus_by_component: tuple[int, ...] = ()
    """Inside a step of a heterogeneous job: the same for the nodes of each of its components."""
    accelerator: str = "gpu"
    """`gpu` or `npu`: what Slurm calls the cards."""
    cpus_per_task: int | None = None
    """CPUs for each task that Slurm starts; None: as many as Slurm gives."""
    memory_mib: int | None = None
    """Memory for each node, in MiB."""
    components: tuple[HetComponent, ...] = ()
    """Further nodes of other kinds; what is said above is for the first `nodes`."""
    contract: str = "modelarts"
    """How the script learns its place: `modelarts`, `torchrun` or `env`."""
    elastic: tuple[int, int] | None = None
    """The fewest and the most nodes that torchrun's ranks go on with; None: all, in order."""
    max_restarts: int | None = None
    """How often torchrun starts the ranks again after a failure; None: as it does by itself."""
    ranks_by: str | None = None
    """Who starts a rank for each GPU under Slurm: `slurm`, a task each, or the `node`, where one
    task has them all; None: `slurm`."""
    env: Mapping[str, str] = _EMPTY
    """Variables set for every rank."""
    keep: tuple[str, ...] = ()
    """Names taken over from the environment as they are, even where a contract removes them."""
    inputs: tuple[Channel, ...] = ()
    """Where the script finds its data, by name."""
    outputs: tuple[Channel, ...] = ()
    """Where it leaves its results, likewise."""
    channels_as: str | None = None
    """How the script learns its channels: as `--NAME=PATH` or as environment variables NAME
    (ModelArts' API has both, `access_method`). None: options for a boot file, else variables."""
    python: str = "python"
    """The interpreter: a path, or a name looked up in the job's PATH."""
    port: int | None = None
    """The rendezvous port; None: one is found."""
    view: str | None = None
    """The view a rank gets: `full`, `hosts` or `off`; None: what its contract is used to,
    or less where a node does not allow it."""
    cache: str | None = None
    """A directory of each node to show as /cache; variables in it are put in there. None: one in
    the job's folder."""
    pre_start: str | None = None
    """A shell script read before the boot file starts, absolute; inside the code directory."""
    install_requirements: bool = False
    """Whether the packages of the code's `pip-requirements.txt` are installed for this run."""
    warn: str | None = None
    """SIGNAL@SECONDS: what every rank gets so long before the job's time limit."""
    retries: int = 0
    """How often failed ranks are started again in the same allocation."""
    on_timeout: str | None = None
    """`requeue:N`: how many more jobs may go on where one runs into its limit."""
    network: Mapping[str, Any] = _EMPTY
    """What the user and the site say of the network, as `network.overrides` checks it."""
    slurm: Mapping[str, str | None] = _EMPTY
    """Long sbatch options by name; None for a flag without a value."""
    gpu_option: str = "gpus-per-node"
    """How Slurm is asked for the GPUs: `gpus-per-node`, `gres`, or `none` where a site wants it in
    no way, or in a way of its own."""
    exclusive: bool = False
    """Whether Slurm is asked for whole nodes."""
    requeue: bool = False
    """Whether Slurm may start the job again after a node has failed."""
    modules: tuple[str, ...] = ()
    """Modules that the batch script loads, by name."""
    venv: str | None = None
    """A virtual environment that the batch script activates, absolute."""
    conda: str | None = None
    """A conda environment that the batch script activates: its name, or an absolute path."""
    prologue: tuple[str, ...] = ()
    """The user's own lines of bash, which the batch script runs before the ranks start."""
    container: Container | None = None
    """The image in which the ranks of a Slurm job run; None: in none."""
    options: JobOptions = JobOptions()
    """What was said by options that ranks are told of, too, and that have no field here."""

    def __post_init__(self) -> None:
        check_job_name(self.name)
        if not 1 <= self.nodes <= _MOST_NODES:
            raise BadValueError(
                f"a job on {self.nodes} nodes cannot be started",
                f"Give a number from 1 to {_MOST_NODES:,}, as in --nodes 2.",
            )
        if self.gpus_per_node is not None and self.gpus_per_node < 0:
            raise BadValueError(
                f"{self.gpus_per_node} GPUs per node cannot be asked for",
                "Give 0 or more, as in --gpus-per-node 8.",
            )
        if self.port is not None:
            read_port(str(self.port), "port")
        if "MASTER_PORT" in self.env:
            read_port(self.env["MASTER_PORT"], "MASTER_PORT")
        for name in (*self.env, *self.keep):
            check_variable_name(name)
        _check_channels((*self.inputs, *self.outputs), self.delivery)
        if self.channels_as == "option" and not isinstance(self.program, Boot):
            raise BadValueError(
                "inputs and outputs cannot be options of a command: nothing is appended to it",
                "Use --channels variable, or give a boot file.",
            )
        _check_strings(
            (
                *self.words,
                *self.env.values(),
                *(channel.path for channel in (*self.inputs, *self.outputs)),
            )
        )
        _check_choice("contract", self.contract, CONTRACTS)
        _check_choice("accelerator", self.accelerator, ACCELERATORS)
        _check_choice("way to ask for GPUs", self.gpu_option, GPU_OPTIONS)
        if self.channels_as is not None:
            _check_choice("way to deliver channels", self.channels_as, DELIVERIES)
        if self.view is not None:
            _check_choice("view", self.view, VIEWS)
        if self.ranks_by is not None:
            _check_choice("starter of ranks", self.ranks_by, STARTERS)
        _check_contract(self)

    @property
    def all_nodes(self) -> int:
        """How many nodes there are in all components."""
        return self.nodes + sum(one.nodes for one in self.components)

    @property
    def node_starts_ranks(self) -> bool:
        """Whether one task on each node starts the ranks of that node."""
        return self.ranks_by == "node"

    @property
    def requirements(self) -> str:
        """The file that lists the packages a job's code needs, as ModelArts names it."""
        return os.path.join(self.code, "pip-requirements.txt")

    @property
    def words(self) -> tuple[str, ...]:
        """The user's own words: boot file or command, and arguments."""
        return (*_program_words(self.program), *self.args)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    @property
    def delivery(self) -> str:
        """How the script learns its channels."""
        return self.channels_as or ("option" if isinstance(self.program, Boot) else "variable")

    @property
    def log_folder(self) -> str:
        """Where the job's logs go, absolute."""
        return os.path.join(self.folder, "log")

    @property
    def file_stem(self) -> str:
        """The name as a file name."""
        return file_stem(self.name)

    def value_of(self, name: str, environment: Mapping[str, str]) -> str:
        """Return a variable as the job sets it, else as it is inherited; empty where neither."""
        return self.env.get(name) or environment.get(name, "")

    def wanted_port(self, environment: Mapping[str, str]) -> tuple[int, str] | None:
        """Return (port, who says so) where the user chose one: by option, else by MASTER_PORT."""
        if self.port is not None:
            return self.port, "given by you"
        text = self.value_of("MASTER_PORT", environment)
        if text:
            return read_port(text, "MASTER_PORT"), "MASTER_PORT in your environment"
        return None

    def check_kept(self, environment: Mapping[str, str]) -> None:
        """Raise `BadValueError` where a variable to be taken over is not there."""
        for name in self.keep:
            if name not in environment:
                raise BadValueError(
                    f"--env {name} takes over a variable that is not set",
                    f"Set it before, or give its value: --env {name}=VALUE.",
                )

    def said_by(self, option: Option) -> Any:
        """Return what an option would say to make this job what it is."""
        field = field_of(option)
        return getattr(self, field) if field else getattr(self.options, option.name)

    def with_nodes(self, nodes: int, gpus_per_node: int | None) -> Job:
        """Return this job sized as the step it finds itself in."""
        return replace(self, nodes=nodes, gpus_per_node=gpus_per_node)


def field_of(option: Option) -> str:
    """Return the field of a job that has what an option means; empty: none has."""
    name = option.job_field or option.name
    return name if name in Job.__match_args__ else ""


def file_stem(name: str) -> str:
    r"""Return a job's name as a file name: `/` leads elsewhere, `%` and `\` are sbatch's own."""
    return name.translate(str.maketrans("/%\\", "___"))


def read_port(text: str, source: str) -> int:
    """Return a rendezvous port, or raise `BadValueError` naming where the text comes from."""
    if text.isascii() and text.isdigit() and int(text) in PORTS:
        return int(text)
    raise BadValueError(
        f"{source}: {printable(text)} cannot be the rendezvous port",
        f"Give a number from {PORTS.start} to {PORTS.stop - 1}, as in --port 29400.",
    )


def check_job_name(name: str) -> str:
    """Return a job's name, or raise `BadValueError` for one that no log file could carry."""
    check_one_line("the job's name", name)
    if not name.strip(". ") or ".." in name or name.startswith(("/", "-")):
        raise BadValueError(
            f"{name!r} cannot be a job's name",
            "Give a name without '..' that starts with neither '/' nor '-', as in --name train.",
        )
    if len(os.fsencode(name)) > _LONGEST_NAME:
        raise BadValueError(
            f"a job's name of {len(os.fsencode(name))} bytes is too long for its log file",
            f"Give one of at most {_LONGEST_NAME} bytes with --name.",
        )
    return name


def _check_channels(channels: Iterable[Channel], delivery: str) -> None:
    seen: set[str] = set()
    for channel in channels:
        plain = channel.name.replace("-", "_")
        if not plain.isascii() or not plain.isidentifier():
            raise BadValueError(
                f"{channel.name!r} cannot be the name of an input or output",
                "Use letters, digits, - and _, as in --input data_url=/datasets/cifar10.",
            )
        if delivery == "variable":
            check_variable_name(channel.name)
        if channel.name in seen:
            raise BadValueError(
                f"the input or output {channel.name} is given twice", "Give each name once."
            )
        seen.add(channel.name)


def _program_words(program: Program) -> tuple[str, ...]:
    match program:
        case Boot(path):
            return (path,)
        case Command(text):
            return (text,)
        case Argv(words):
            return words


def _check_contract(job: Job) -> None:
    """Refuse what only another contract has a meaning for, and numbers that have none."""
    for option, value, contract in (
        ("--elastic", job.elastic, "torchrun"),
        ("--max-restarts", job.max_restarts, "torchrun"),
        ("--ranks-by", job.ranks_by, "env"),
    ):
        if value is not None and job.contract != contract:
            raise BadValueError(
                f"{option} means something to the {contract} contract alone, and this job's is"
                f" {job.contract}",
                f"Give --contract {contract} with it, or leave it out.",
            )
    if job.elastic is not None and not 1 <= job.elastic[0] <= job.elastic[1]:
        raise BadValueError(
            f"--elastic {job.elastic[0]}:{job.elastic[1]} is no range of nodes",
            "Give the fewest and the most, as in --elastic 1:3.",
        )
    if job.max_restarts is not None and job.max_restarts < 0:
        raise BadValueError(
            f"the ranks cannot be started again {job.max_restarts} times",
            "Give 0 or more, as in --max-restarts 3.",
        )
    if job.components:
        from slurm_adapter.job.component import check_components

        check_components(job.components, job.nodes, job.contract, job.elastic)


def _check_strings(values: Iterable[str]) -> None:
    for value in values:
        if "\0" in value:
            raise BadValueError(
                f"{value!r} holds a NUL byte, which no argument or variable can",
                "Take it out of the value.",
            )
        if len(os.fsencode(value)) >= LONGEST_STRING:
            raise BadValueError(
                f"a value of {len(value):,} characters is too long: Linux allows one argument or"
                f" variable 128 KiB ({value[:20]!r}...)",
                "Put it into a file and give the file's name.",
            )


def _check_choice(what: str, name: str, choices: tuple[str, ...]) -> None:
    if name not in choices:
        raise BadValueError(f"there is no {what} {name!r}", f"Choose one of: {', '.join(choices)}.")

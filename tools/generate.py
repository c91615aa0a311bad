"""Write what is generated: the scripts in sbatch/ and the marked blocks of pages in docs/.

`make generated` runs it; a test checks that nothing would change.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from rooms import SMALL, drawing
from slurm_adapter import Boot, Cluster, HetComponent, Job, Node, Run, make_plan
from slurm_adapter.cli.commands import build_app
from slurm_adapter.cli.options import options_for
from slurm_adapter.config.jobfile import TABLES
from slurm_adapter.job.job import Channel, Container
from slurm_adapter.job.option import COMPONENTS, FLAG, SECONDS, Option, options_of
from slurm_adapter.job.options import CLASSES, LAUNCHERS, ComponentOptions, JobOptions
from slurm_adapter.launch.script.sbatch import make_script
from slurm_adapter.launch.ssh.start import CROSSING, OF_THIS_MACHINE
from slurm_adapter.node.step.options import step_options
from slurm_adapter.plan import Plan
from slurm_adapter.record import replace
from slurm_adapter.setting import SECRET_WORDS

PROJECT = Path(__file__).parents[1]
PAGES = ("command-line", "contract", "ssh", "development")
ADAPTER = ["/opt/slurm-adapter/bin/slurm-adapter"]
BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

ONE_NODE = Job(
    program=Boot("/home/ada/gpu-train/train.py"),
    code="/home/ada/gpu-train",
    folder="/home/ada/slurm-adapter/gpu-train",
    name="gpu-train",
    args=("--epochs", "5"),
    gpus_per_node=8,
    cpus_per_task=72,
    slurm={"time": "12:00:00"},
)
THREE_NODES = Job(
    program=Boot("/home/ada/gpu-train/train.py"),
    code="/home/ada/gpu-train",
    folder="/home/ada/slurm-adapter/three nodes",
    name="three nodes",
    args=("--epochs", "5", "--note", "it's $5; ok"),
    nodes=3,
    gpus_per_node=4,
    cpus_per_task=32,
    env={"WANDB_MODE": "offline", "WANDB_API_KEY": "never written"},
    inputs=(Channel("data_url", "/datasets/cifar10"),),
    outputs=(Channel("train_url", "/results/gpu-train"),),
    slurm={"partition": "train", "time": "2-00:00:00", "requeue": None},
)
TORCHRUN = Job(
    program=Boot("/home/ada/gpu-train/train.py"),
    code="/home/ada/gpu-train",
    folder="/home/ada/slurm-adapter/gpu-train",
    name="gpu-train",
    args=("--epochs", "5"),
    nodes=3,
    gpus_per_node=4,
    cpus_per_task=32,
    contract="torchrun",
    slurm={"time": "12:00:00"},
)
HETEROGENEOUS = Job(
    program=Boot("/home/ada/gpu-train/train.py"),
    code="/home/ada/gpu-train",
    folder="/home/ada/slurm-adapter/gpu-train",
    name="gpu-train",
    args=("--epochs", "5"),
    nodes=2,
    gpus_per_node=4,
    cpus_per_task=32,
    memory_mib=244_140,
    contract="env",
    slurm={"partition": "a100", "time": "12:00:00"},
    components=(
        HetComponent(
            gpus_per_node=2,
            cpus_per_task=20,
            memory_mib=61_035,
            slurm={"partition": "v100", "constraint": "nvlink"},
        ),
    ),
)
# One file for each thing that a script may hold beside, and one for all that go together.
GRES = replace(ONE_NODE, gpu_option="gres")
WHOLE_NODES = replace(ONE_NODE, nodes=2, exclusive=True, requeue=True)
MODULES = replace(ONE_NODE, modules=("gcc/12", "cuda/12.4"))
VENV = replace(ONE_NODE, venv="/home/ada/my venv")
CONDA = replace(ONE_NODE, conda="train")
PROLOGUE = replace(ONE_NODE, prologue=("ulimit -n 65536", 'export TMPDIR="/local/$SLURM_JOB_ID"'))
LIFE = replace(
    THREE_NODES, name="long", warn="USR2@300", retries=2, on_timeout="requeue:5", slurm={}
)
NETWORK = replace(
    ONE_NODE,
    nodes=2,
    name="network",
    network={"subnet": "10.20.0.0/16", "storage_hcas": ("mlx5_2",), "traffic_class": 106},
)
APPTAINER = replace(
    THREE_NODES,
    container=Container("/images/torch.sif", "apptainer", ("/scratch:/scratch:ro",)),
)
PYXIS = replace(
    ONE_NODE, container=Container("nvcr.io#nvidia/pytorch:24.05-py3", "pyxis", ("/datasets",))
)
ALL = replace(
    THREE_NODES,
    gpu_option="gres",
    exclusive=True,
    requeue=True,
    modules=MODULES.modules,
    conda="/shared/conda envs/train",
    prologue=PROLOGUE.prologue,
    warn=LIFE.warn,
    retries=LIFE.retries,
    on_timeout=LIFE.on_timeout,
    network=NETWORK.network,
    slurm={"partition": "train", "time": "2-00:00:00"},
)
SCRIPTS = {
    "one-node": ONE_NODE,
    "three-nodes": THREE_NODES,
    "torchrun": TORCHRUN,
    "heterogeneous": HETEROGENEOUS,
    "gres": GRES,
    "whole-nodes": WHOLE_NODES,
    "modules": MODULES,
    "venv": VENV,
    "conda": CONDA,
    "prologue": PROLOGUE,
    "life": LIFE,
    "network": NETWORK,
    "apptainer": APPTAINER,
    "pyxis": PYXIS,
    "all-together": ALL,
}


def main() -> int:
    """Write all generated files; return 0."""
    for path, text in generated().items():
        path.write_text(text)
    return 0


def generated() -> dict[Path, str]:
    """Return the text of every file that is generated, wholly or in marked blocks."""
    files = {PROJECT / "sbatch" / f"{name}.sbatch": _script(job) for name, job in SCRIPTS.items()}
    for name in ("README.md", *(f"docs/{page}.md" for page in PAGES)):
        page = PROJECT / name
        files[page] = BLOCK.sub(_block, page.read_text())
    return files


def _script(job: Job) -> str:
    return make_script(job, ADAPTER, "/home/ada").text


def _block(match: re.Match[str]) -> str:
    return f"{match[1]}{_BLOCKS[match[2]]()}{match[3]}"


def commands() -> dict[str, Any]:
    """Return the commands as click has them, by name."""
    return dict(typer.main.get_command(build_app()).commands)  # type: ignore[attr-defined]


def _commands() -> str:
    """Return a row for each command: how it is called, and what it does."""
    rows = ["| command | what it does |", "| --- | --- |"]
    for name, command in commands().items():
        words = [name]
        if any(param.param_type_name == "option" for param in command.params):
            words.append("[OPTIONS]")
        words += [_called(param) for param in command.params if param.param_type_name == "argument"]
        rows.append(f"| `{' '.join(words)}` | {command.help} |")
    return "\n".join(rows) + "\n"


def _called(argument: Any) -> str:
    if argument.metavar.startswith("["):  # says all of it already
        return str(argument.metavar)
    name = argument.metavar if argument.required else f"[{argument.metavar}]"
    return name + ("..." if argument.nargs == -1 else "")


def _common_options() -> str:
    return _rows([one for one in options_for("sbatch", *CLASSES) if one.commands == LAUNCHERS])


def _own_options(command: str) -> str:
    return _rows([one for one in options_for(command, *CLASSES) if one.commands != LAUNCHERS])


def _step_options(action: str) -> str:
    own = step_options(action)
    if action == "env":
        own = {name: one for name, one in own.items() if name not in step_options("exec")}
    return _rows(list(own.values()), in_step=True)


def _rows(options: Sequence[Option], *, in_step: bool = False) -> str:
    """Return a row for each option; in a step there are neither files nor variables."""
    columns = ["option", "meaning"]
    columns += ["key in a job file"] if not in_step and any(one.key for one in options) else []
    columns += ["variable"] if not in_step and any(one.variable for one in options) else []
    cells = [[_cells(one, in_step=in_step)[name] for name in columns] for one in options]
    rows = [columns, ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _file_keys() -> str:
    """Return a row for each key that no option of a command line says by itself."""
    rows = [
        ("key", "meaning"),
        ("---", "---"),
        *((_key(one), one.help) for one in options_of(JobOptions) if not one.long),
        *((f"`[[parts]] {one.key}`", one.help) for one in options_of(ComponentOptions)),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(option: Option, *, in_step: bool) -> dict[str, str]:
    spelled = option.argument
    if in_step or not spelled:
        value = "" if option.kind == FLAG else f" {option.metavar}"
        spelled = f"{', '.join(option.flags)}{value}".replace("|", "\\|")
    default = f" Default: {option.default:g}." if option.kind == SECONDS else ""
    return {
        "option": f"`{spelled}`",
        "meaning": f"{option.help}{default}",
        "key in a job file": _key(option),
        "variable": f"`{option.variable}`" if option.variable else "",
    }


def _key(option: Option) -> str:
    if option.into:
        return f"`[{option.into}]`"
    table, _, key = option.key.rpartition(".")
    if option.kind in TABLES:
        return f"`[[{option.key}]]`" if option.kind == COMPONENTS else f"`[{option.key}]`"
    return f"`[{table}] {key}`" if table else f"`{key}`" if key else ""


def _crossing() -> str:
    taken, kept = (", ".join(f"`{name}`" for name in one) for one in (CROSSING, OF_THIS_MACHINE))
    secrets = ", ".join(f"`*{word}*`" for word in SECRET_WORDS)
    return (
        f"* {taken},\n"
        f"* but nothing that describes this machine: {kept},\n"
        f"* nor what looks like a secret: {secrets}.\n"
    )


def _three_nodes(job: Job = THREE_NODES) -> Plan:
    nodes = [
        Node(
            f"gpu{n:02d}",
            f"10.20.0.{n}",
            gpus=4,
            gpus_reason="Slurm's count for this node",
            view="full" if job.contract == "modelarts" else "hosts",
        )
        for n in (1, 2, 3)
    ]
    run = Run("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", 14120, "from job 4120 and step 0")
    return make_plan(job, Cluster(tuple(nodes), "step 4120.0"), run)


def _variables() -> str:
    rank = _three_nodes().rank(1, 1, 0)
    rows = ["| variable | value on node 1 | reason |", "| --- | --- | --- |"]
    rows += [
        f"| `{item.name}` | {_code(item.shown)} | {_cell(item.reason)} |"
        for item in rank.settings
        if item.reason != "set by you"
    ]
    return "\n".join(rows) + "\n"


def _arguments(job: Job = THREE_NODES) -> str:
    words = " ".join(word.value for word in _three_nodes(job).rank(1, 1, 0).argv if word.reason)
    return f"    {words} [your arguments]\n"


def _removed(job: Job = THREE_NODES) -> str:
    reasons: dict[str, list[str]] = {}
    for removal in _three_nodes(job).contract.removals:
        reasons.setdefault(removal.reason, []).append(f"`{removal.pattern}`")
    return "".join(f"* {', '.join(names)}: {reason}.\n" for reason, names in reasons.items())


def _code(text: str) -> str:
    return f"`{text}`" if text else "(empty)"


def _cell(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;")


_BLOCKS = {
    "commands": _commands,
    "common-options": _common_options,
    "sbatch-options": lambda: _own_options("sbatch"),
    "ssh-options": lambda: _own_options("ssh"),
    "local-options": lambda: _own_options("local"),
    "jobs-options": lambda: _own_options("jobs"),
    "file-keys": _file_keys,
    "exec-options": lambda: _step_options("exec"),
    "env-options": lambda: _step_options("env"),
    "logs-options": lambda: _own_options("logs"),
    "ssh-crossing": _crossing,
    "variables": _variables,
    "arguments": _arguments,
    "removed": _removed,
    "torchrun-command": lambda: _arguments(TORCHRUN),
    "torchrun-removed": lambda: _removed(TORCHRUN),
    "rooms": lambda: drawing(without=SMALL),
    "node-rooms": lambda: drawing("slurm_adapter.node"),
}


if __name__ == "__main__":
    sys.exit(main())

"""Write what is generated: the scripts in sbatch/ and the marked blocks of pages in docs/.

`make generated` runs it; a test checks that nothing would change.
"""

import re
import sys
from pathlib import Path

import typer

from slurm_adapter import Boot, Cluster, Job, Node, Run, make_plan
from slurm_adapter.cli.commands import build_app
from slurm_adapter.job import Channel
from slurm_adapter.launch.sbatch import make_script
from slurm_adapter.plan import Plan

PROJECT = Path(__file__).parents[1]
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
    slurm={"partition": "train", "time": "2-00:00:00", "requeue": None, "open-mode": "append"},
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


def main() -> int:
    """Write all generated files; return 0."""
    for path, text in generated().items():
        path.write_text(text)
    return 0


def generated() -> dict[Path, str]:
    """Return the text of every file that is generated, wholly or in marked blocks."""
    files = {
        PROJECT / "sbatch" / "one-node.sbatch": _script(ONE_NODE),
        PROJECT / "sbatch" / "three-nodes.sbatch": _script(THREE_NODES),
        PROJECT / "sbatch" / "torchrun.sbatch": _script(TORCHRUN),
    }
    for name in ("command-line.md", "contract.md"):
        page = PROJECT / "docs" / name
        files[page] = BLOCK.sub(_block, page.read_text())
    return files


def _script(job: Job) -> str:
    return make_script(job, ADAPTER, "/home/ada").text


def _block(match: re.Match[str]) -> str:
    return f"{match[1]}{_BLOCKS[match[2]]()}{match[3]}"


def _options(command_name: str) -> str:
    command = typer.main.get_command(build_app()).commands[command_name]  # type: ignore[attr-defined]
    rows = ["| option | meaning | variable |", "| --- | --- | --- |"]
    for option in command.params:
        if option.param_type_name == "argument":
            continue
        names = ", ".join(sorted(option.opts, key=len))
        value = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
        spelled = f"{names}{value}".replace("|", "\\|")
        variable = f"`{option.envvar}`" if option.envvar else ""
        rows.append(f"| `{spelled}` | {option.help} | {variable} |")
    return "\n".join(rows) + "\n"


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
    "sbatch-options": lambda: _options("sbatch"),
    "local-options": lambda: _options("local"),
    "variables": _variables,
    "arguments": _arguments,
    "removed": _removed,
    "torchrun-command": lambda: _arguments(TORCHRUN),
    "torchrun-removed": lambda: _removed(TORCHRUN),
}


if __name__ == "__main__":
    sys.exit(main())

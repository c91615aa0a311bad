"""Counts as Slurm and the drivers write them: tasks per node, GPU requests, device lists."""

from __future__ import annotations

from slurm_adapter.cluster.hostlist import MOST_HOSTS
from slurm_adapter.errors import StepError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def parse_tasks_per_node(text: str, variable: str = "SLURM_TASKS_PER_NODE") -> tuple[int, ...]:
    """Return one number per node from Slurm's run lengths: `2(x3),1` is (2, 2, 2, 1) (SL-05)."""
    tasks: list[int] = []
    for part in text.split(","):
        count, repeated, rest = part.partition("(x")
        times = rest[:-1] if repeated and rest.endswith(")") else "" if repeated else "1"
        if not (is_number(count) and is_number(times) and int(count) and int(times)):
            raise StepError(
                f"{variable}={text!r} cannot be read at {part!r}",
                "Slurm writes one number per node or NUMBER(xNODES), as in 2(x3),1.",
            )
        if len(tasks) + int(times) > MOST_HOSTS:
            raise StepError(
                f"{variable}={text!r} describes more than {MOST_HOSTS:,} nodes",
                "Check it for a digit too many.",
            )
        tasks += [int(count)] * int(times)
    return tuple(tasks)


def is_number(text: str) -> bool:
    """Say whether a text is a number as Slurm writes them: ASCII digits, 32 bits."""
    return text.isascii() and text.isdigit() and len(text) <= 9  # noqa: PLR2004


def gpus_on_node(environment: Mapping[str, str]) -> int | None:
    """Return the step's GPUs on this node, None where nothing says (SL-10)."""
    found = gpu_count(environment)
    return None if found is None else found[0]


def gpu_count(environment: Mapping[str, str]) -> tuple[int, str] | None:
    """Return (the step's GPUs on this node, the variable that says so).

    SLURM_GPUS_ON_NODE is the count itself, SLURM_STEP_GPUS the list. Where neither is set but
    the job has a list, Slurm counts GPUs here and gave the step none. The request per node only
    stands in where Slurm itself counts nothing.
    """
    text = environment.get("SLURM_GPUS_ON_NODE")
    if text:
        return count_gpus(text, "SLURM_GPUS_ON_NODE"), "SLURM_GPUS_ON_NODE"
    text = environment.get("SLURM_STEP_GPUS")
    if text:
        return len(device_list(text)), "SLURM_STEP_GPUS"
    if environment.get("SLURM_JOB_GPUS"):
        return 0, "SLURM_STEP_GPUS, which the job has and the step has not"
    text = environment.get("SLURM_GPUS_PER_NODE")
    if text:
        return count_gpus(text, "SLURM_GPUS_PER_NODE"), "SLURM_GPUS_PER_NODE"
    return None


def count_gpus(text: str, variable: str) -> int:
    """Return the sum of a GPU request: `4`, `a100:4`, `a100:2,v100:2` (SL-10)."""
    total = 0
    for part in text.split(","):
        count = part.rpartition(":")[2]
        if not (count.isascii() and count.isdigit()):
            raise StepError(
                f"{variable}={text!r} cannot be read at {part!r}",
                "Slurm writes COUNT or TYPE:COUNT, as in a100:4; --gpus-per-node overrules it.",
            )
        total += int(count)
    return total


def visible_devices(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return (variable, number of devices) that a driver's variable lets this process see.

    The entries may be numbers, UUIDs (`GPU-...`) or MIG instances: they are counted, not read.
    """
    for name in VISIBLE_DEVICES:
        if name in environment:
            return name, len(device_list(environment[name]))
    return None


def device_list(text: str) -> list[str]:
    """Return the devices of a list; `0-3` is a range in Slurm's lists, NoDevFiles means none."""
    devices: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit():
            devices += map(str, range(int(first), int(last) + 1))
        elif part and part not in ("NoDevFiles", "-1"):
            devices.append(part)
    return devices

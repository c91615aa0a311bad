"""One call that starts torch.distributed in a script, whoever started the script, and has it end.

The only module that imports torch. It needs nothing else of the project at run time but the
reading of a Slurm step, so a script may use it under torchrun or in a bare `srun` as well.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from slurm_adapter.rank_context import find_rank_context, multiply

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True)
class Group:
    """What a script needs to know once the process group is there."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device
    """The device of this process; already the current one."""
    backend: str


def init_process_group(
    backend: str | None = None,
    *,
    timeout: timedelta | None = None,
    local_rank: int = 0,
    local_world_size: int = 1,
) -> Group:
    """Start the default process group and select this process's device.

    Rank, world size and rendezvous come from whatever is there, in this order: RANK, WORLD_SIZE
    and MASTER_ADDR (torchrun, the `env` contract); ModelArts' variables (the `modelarts`
    contract, ModelArts itself); the Slurm step; else this process is alone.

    A group of Gloo ends with the script, whether or not that has called
    `torch.distributed.destroy_process_group()`: see `_end`.

    Args:
        backend: default: `nccl` on CUDA devices, `hccl` on NPUs, else `gloo`.
        timeout: as for `torch.distributed.init_process_group`.
        local_rank: number of this process among those that the script itself started on its
            node, e.g. by `torch.multiprocessing.spawn`.
        local_world_size: how many those are.

    Raises:
        AdapterError: where the variables contradict each other, with the remedy.
    """
    place = find_rank_context(os.environ, sys.argv)
    if local_world_size > 1 or local_rank:
        place = multiply(place, local_rank, local_world_size)
    kind, count = _accelerator()
    device = choose_device(kind, count, place.local_rank)
    chosen = backend or {"cuda": "nccl", "npu": "hccl"}.get(device.type, "gloo")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif device.type == "npu":
        _npu().set_device(device)
    # torch 2.1 refuses None as a time-out.
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    # The functions of this module keep the group that is there when it is first imported as a
    # default value, for good. DistributedDataParallel imports it, so it has to be here before.
    import_module("torch.distributed.nn")
    dist.init_process_group(
        chosen,
        init_method=place.init_method,
        rank=place.rank,
        world_size=place.world_size,
        **options,
    )
    if "gloo" in chosen:
        atexit.register(_end, [dist.group.WORLD])
    return Group(
        place.rank, place.world_size, place.local_rank, place.local_world_size, device, chosen
    )


def _end(held: list[Any]) -> None:
    """End a group of Gloo, and with it its threads, while the interpreter is still alive.

    A thread of Gloo may be the last to let go of a tensor, for which it needs the interpreter's
    lock. One that asks for it when the interpreter is being taken down is ended by Python in the
    midst of a destructor, and for C++ that is a reason to abort: SIGABRT after a training that
    went well (torch 2.13; pytorch#190489). `destroy_process_group()` ends the threads only where
    nothing else holds the group, as a DistributedDataParallel does.

    The group is held from its start until here. Else the model could be the last to hold it, and
    that waits for the threads with the lock in its hand: for ever, if one of them needs it.
    """
    for thing in gc.get_objects():
        # isinstance() would ask the thing itself, and some proxies object to that.
        if DistributedDataParallel in type(thing).__mro__:
            for name in ("reducer", "logger", "process_group"):
                vars(thing).pop(name, None)
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()
    held.clear()


def choose_device(kind: str, count: int, local_rank: int) -> torch.device:
    """Return the device of a process: LOCAL_RANK modulo the devices it can see (SL-11).

    Where each task sees only its own GPU that is device 0, whatever its local rank.
    """
    return torch.device(kind, local_rank % count) if count else torch.device("cpu")


def _accelerator() -> tuple[str, int]:
    if torch.cuda.is_available():
        return "cuda", torch.cuda.device_count()
    npu = _npu()
    if npu is not None and npu.is_available():
        return "npu", npu.device_count()
    return "cpu", 0


def _npu() -> Any:
    """Return Ascend's module, which its plug-in adds to torch."""
    return getattr(torch, "npu", None)

"""Rank 0's thread of Gloo is late to let go of a tensor: it does so while the process ends.

    late_release.py GATE [destroy]      GATE: a FIFO, by which rank 0 lets rank 1 go on

Python runs `__del__` in the thread that lets go last. The second is for the script to come to its
end; were it too short, less would be seen and nothing fail. A busy machine makes it as late.
"""

import atexit
import os
import sys
import time
import weakref
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from slurm_adapter.torch import init_process_group


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


class Late(torch.Tensor):
    def __del__(self) -> None:
        time.sleep(1)
        say("rank 0 let go")


def report() -> None:
    say(f"rank {rank}'s group {'is there' if group() else 'has ended'}")


# What is registered first is run last.
atexit.register(report)
rank = init_process_group().rank
group = weakref.ref(dist.group.WORLD)
model = DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
if rank == 0:
    tensor = torch.ones(3).as_subclass(Late)
    work = dist.all_reduce(tensor, async_op=True)
    del tensor, work
    Path(sys.argv[1]).write_text("")
else:
    Path(sys.argv[1]).read_text()
    dist.all_reduce(torch.ones(3))
total = torch.ones(3)
dist.all_reduce(total)
if "destroy" in sys.argv:
    dist.destroy_process_group()
    del model

"""A new script: one call, whoever starts it."""

import sys

import torch
import torch.distributed as dist

from slurm_adapter.torch import init_process_group

group = init_process_group()
total = torch.tensor([float(group.rank + 1)], device=group.device)
dist.all_reduce(total)
sys.stdout.write(
    f"rank {group.rank} of {group.world_size}, local {group.local_rank} of"
    f" {group.local_world_size}, {group.backend} on {group.device}: {total.item()}\n"
)
sys.stdout.flush()
dist.destroy_process_group()

"""What T3 runs under torchrun: the group from the environment, an all-reduce."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
sys.stdout.write(f"sum {total.item()} in process {dist.get_rank()} of {dist.get_world_size()}\n")
sys.stdout.flush()
dist.destroy_process_group()
sys.exit(total.item() != float(os.environ["EXPECT"]))

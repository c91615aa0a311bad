"""T1: the three options unchanged to init_process_group; world = nodes, one process per node."""

import argparse
import sys

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--init_method")
parser.add_argument("--rank", type=int)
parser.add_argument("--world_size", type=int)
parser.add_argument("--expect", type=float)
given = parser.parse_args()

dist.init_process_group(
    "gloo", init_method=given.init_method, rank=given.rank, world_size=given.world_size
)
total = torch.tensor([float(given.rank + 1)])
dist.all_reduce(total)
sys.stdout.write(f"sum {total.item()} on node {given.rank} of {given.world_size}\n")
dist.destroy_process_group()
sys.exit(total.item() != given.expect)

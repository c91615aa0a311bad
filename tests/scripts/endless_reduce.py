"""ModelArts' usual script, for ever: all-reduce after all-reduce, until somebody ends it."""

import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--init_method")
parser.add_argument("--rank", type=int)
parser.add_argument("--world_size", type=int)
options = parser.parse_args()
dist.init_process_group(
    "gloo", init_method=options.init_method, rank=options.rank, world_size=options.world_size
)
total = torch.ones(1000)
dist.all_reduce(total)
print("up", flush=True)  # noqa: T201
while True:
    dist.all_reduce(total)

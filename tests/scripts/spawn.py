"""T2: nodes times local processes by mp.spawn, as most ModelArts scripts do."""

import argparse
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(local: int, processes: int, given: argparse.Namespace) -> None:
    rank, world = given.rank * processes + local, given.world_size * processes
    dist.init_process_group("gloo", init_method=given.init_method, rank=rank, world_size=world)
    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)
    sys.stdout.write(f"sum {total.item()} in process {rank} of {world}\n")
    sys.stdout.flush()
    dist.destroy_process_group()
    if total.item() != given.expect:
        sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--init_method")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world_size", type=int)
    parser.add_argument("--expect", type=float)
    mp.spawn(run, args=(2, parser.parse_args()), nprocs=2)

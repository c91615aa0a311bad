"""A training script as written for ModelArts training jobs: it runs here unchanged.

The platform starts it once per node and appends `--init_method`, `--rank` (the node's index) and
`--world_size` (the number of nodes). As such scripts do, it multiplies them by the processes of
a node and starts those itself. It trains a small model on data it makes up, on GPUs where there
are any, else on the CPU.
"""

import argparse
import gc
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: see run()
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RADIUS = 0.8


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    # Given by the platform: values of nodes, not of processes.
    parser.add_argument("--init_method", default="tcp://127.0.0.1:6666")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world_size", type=int, default=1)
    # The job's own.
    parser.add_argument("--processes", type=int, default=0, help="per node; 0: one for each GPU")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--train_url", default="", help="folder for the trained model")
    arguments, _ = parser.parse_known_args()
    return arguments


def made_up_data(samples: int = 2048) -> TensorDataset:
    """Points in the plane and whether they lie inside a circle."""
    points = torch.rand(samples, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    return TensorDataset(points, (points.square().sum(1, keepdim=True) < RADIUS**2).float())


def say(text: str) -> None:
    """Write a line at once: several processes of a node share its output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(local_rank: int, processes: int, arguments: argparse.Namespace) -> None:
    """One process: it joins the others, trains with them, and leaves."""
    rank = arguments.rank * processes + local_rank
    world_size = arguments.world_size * processes
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", local_rank % gpus) if gpus else torch.device("cpu")
    dist.init_process_group(
        "nccl" if gpus else "gloo",
        init_method=arguments.init_method,
        rank=rank,
        world_size=world_size,
    )
    say(f"rank {rank} of {world_size} on {os.environ['MA_CURRENT_INSTANCE_NAME']}, {device}")
    train(device, arguments)
    # Gloo's threads have to end before Python does: one that lets go of a tensor later aborts the
    # process (torch 2.13). They end here if nothing holds the group any more. The model does, so
    # it went with train(), before the group; and torch.distributed.nn, which the model imports,
    # does if it is first imported when the group is there, so that is done above.
    gc.collect()
    dist.destroy_process_group()


def train(device: torch.device, arguments: argparse.Namespace) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    model = DistributedDataParallel(model, [device] if device.type == "cuda" else None)
    data = made_up_data()
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loss_of = nn.BCEWithLogitsLoss()
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device=device)
        for points, inside in DataLoader(data, batch_size=64, sampler=sampler):
            loss = loss_of(model(points.to(device)), inside.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([loss.detach(), torch.ones_like(loss)])
        dist.all_reduce(total)
        if rank == 0:
            say(f"epoch {epoch + 1}: loss {total[0] / total[1]:.4f}")
    if rank == 0 and arguments.train_url:
        os.makedirs(arguments.train_url, exist_ok=True)  # noqa: PTH103
        torch.save(model.module.state_dict(), os.path.join(arguments.train_url, "model.pt"))  # noqa: PTH118


def main() -> None:
    arguments = read_arguments()
    processes = arguments.processes or torch.cuda.device_count() or 1
    mp.spawn(run, args=(processes, arguments), nprocs=processes)


if __name__ == "__main__":
    main()

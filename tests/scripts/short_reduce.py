"""An all-reduce with Gloo by `env://` that gives up after some seconds."""

import datetime as dt
import os
import sys

import torch
import torch.distributed as dist

limit = dt.timedelta(seconds=float(sys.argv[1]))
dist.init_process_group("gloo", timeout=limit)
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
sys.stdout.write(f"sum {total.item()} by {interface}\n")
dist.destroy_process_group()

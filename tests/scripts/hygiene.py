"""T6: fails where a variable is set that does not exist on ModelArts."""

import os
import sys

FORBIDDEN = (
    "MASTER_ADDR",
    "RANK",
    "WORLD_SIZE",
    "NNODES",
    "NODE_RANK",
    "SLURM_NTASKS",
    "SLURM_PROCID",
)
found = [name for name in FORBIDDEN if name in os.environ]
sys.stdout.write(f"found {found}\n")
sys.exit(1 if found else 0)

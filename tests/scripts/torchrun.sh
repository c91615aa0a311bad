#!/bin/bash
# T3: torch.distributed.run from the MA_ and VC_ variables alone.
set -euo pipefail
master=${VC_WORKER_HOSTS%%,*}
python -m torch.distributed.run \
    --nnodes="$MA_NUM_HOSTS" --node_rank="$VC_TASK_INDEX" --nproc_per_node=2 \
    --master_addr="$master" --master_port=6060 \
    "$(dirname "$0")/reduce.py"

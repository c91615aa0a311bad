"""`python -m slurm_adapter.node`: the node side without the head's command line."""

import sys

from slurm_adapter.node.step.main import main

sys.exit(main())

"""`ssh --sync`: a copy of the code directory on every host before anything starts.

`code` finds what belongs to the code, `run` takes all hosts through the steps of `hostcopy`, which
speaks through `receiver` with `node.receive` there; `delta` lets rsync send parts of large files.
"""

from slurm_adapter.remote.code.copy import HostCopy, Target
from slurm_adapter.remote.code.files import Code, find_code
from slurm_adapter.remote.code.sync import Synced, sync

__all__ = ["Code", "HostCopy", "Synced", "Target", "find_code", "sync"]

"""`ssh --sync`: a copy of the code directory on every host before anything starts.

`files` finds what belongs to the code, `sync` takes all hosts through the steps of `copy`, each of
which is a request to the host's agent.
"""

from slurm_adapter.remote.code.copy import HostCopy
from slurm_adapter.remote.code.files import Code, find_code
from slurm_adapter.remote.code.sync import Synced, sync

__all__ = ["Code", "HostCopy", "Synced", "find_code", "sync"]

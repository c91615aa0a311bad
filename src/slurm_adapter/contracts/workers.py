"""The names that ModelArts gives to the nodes of a job, and those of their log files.

On ModelArts a job is a Volcano job: pod `<job>-worker-<i>` in the subdomain `<job>` (Volcano's
`svc` plug-in), hence `ma-job-<uuid>-worker-0.ma-job-<uuid>` for the node of rank 0.
"""

from __future__ import annotations

from functools import cached_property

from slurm_adapter.job import LONGEST_STRING
from slurm_adapter.record import record

TASK_NAME = "worker"
_PREFIX = "ma-job-"
# Fewer digits of a UUID than this do not tell one job from another.
_FEWEST_DIGITS = 8


@record
class Workers:
    """The nodes of one run by ModelArts' names, counted from 0."""

    job_name: str
    """MA_VJ_NAME."""
    count: int

    def instance(self, index: int) -> str:
        """Return a node's short name, which is its host name too."""
        return f"{self.job_name}-{TASK_NAME}-{index}"

    def dotted(self, index: int) -> str:
        """Return the name under which scripts reach a node."""
        return f"{self.instance(index)}.{self.job_name}"

    @cached_property
    def host_list(self) -> str:
        """All dotted names in rank order, separated by commas: VC_WORKER_HOSTS."""
        return ",".join(map(self.dotted, range(self.count)))

    @property
    def shortened(self) -> bool:
        """Whether the job's name lacks digits so that VC_WORKER_HOSTS fits."""
        return len(self.job_name) != len(_PREFIX) + 36 and "<" not in self.job_name

    def log_name(self, index: int) -> str:
        """Return the name of a node's log file, as ModelArts' console has it."""
        return f"modelarts-job-{self.job_name.removeprefix(_PREFIX)}-{TASK_NAME}-{index}.log"

    def last_line(self, index: int, status: int | None) -> str:
        """Return the line that ends a node's log; the status is None where nothing tells it."""
        code = "return code not known" if status is None else f"return code {status}"
        return f"slurm-adapter: {TASK_NAME}-{index} ended, {code}\n"


def name_workers(uuid: str | None, count: int) -> Workers:
    """Return the names for a run; a placeholder stands for a UUID that is not known yet.

    VC_WORKER_HOSTS must fit into one variable, 128 KiB: above 1,300 nodes the job's name is
    shortened as far as needed, to 8 digits of the UUID (2,900 nodes). Where that is not enough
    the name stays whole and the variable is left out.
    """
    if uuid is None:
        return Workers(f"{_PREFIX}<uuid>", count)
    room = (LONGEST_STRING - len("VC_WORKER_HOSTS=") - 1) // count
    # JOB-worker-INDEX.JOB and a comma
    length = (room - len(f"-{TASK_NAME}-.,") - len(str(count - 1))) // 2 - len(_PREFIX)
    if _FEWEST_DIGITS <= length < len(uuid):
        uuid = uuid[:length].rstrip("-")
    return Workers(f"{_PREFIX}{uuid}", count)

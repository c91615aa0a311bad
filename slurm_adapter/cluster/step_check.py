"""Why a process is no task of a step, though it may look like one, and what to type (SL-07, SL-08).

Loaded only where that is to be said; `slurm.read_step` decides.
"""

from __future__ import annotations

from slurm_adapter.cluster.counts import is_number
from slurm_adapter.errors import AdapterError, NotAStepError, StepError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def refusal(environment: Mapping[str, str], stale: str) -> AdapterError:
    """Return the error for an environment that is not a task's (never by the job's name: SL-08).

    Args:
        environment: the SLURM_* variables.
        stale: a step variable that the job's own contradicts, with that; empty where none does.
    """
    job_id = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    if not job_id:
        return NotAStepError(
            "this process was not started by Slurm: SLURM_JOB_ID is not set",
            srun_line(2),
        )
    if not job_id.isdecimal():
        return StepError(
            f"SLURM_JOB_ID={job_id!r} is not a number",
            "Start it again with srun; do not set SLURM_* variables by hand.",
        )
    step_id = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")
    where = "a batch script" if "SLURM_PROCID" in environment else "the shell of an allocation"
    if not step_id and "SLURM_ADAPTER_INIT_METHOD" in environment:
        return NotAStepError(
            f"this is inside a rank that slurm-adapter has set up (job {job_id}): its step's"
            " variables were taken out",
            srun_line(_job_nodes(environment)),
        )
    if not step_id:
        return NotAStepError(
            f"this is {where} (job {job_id}), not a task of a step: it would be one process"
            f" of {environment.get('SLURM_NTASKS', 'several')}, the others never started",
            _srun_line_of(environment),
        )
    if not is_number(step_id):
        return NotAStepError(
            f"this is the interactive or batch shell of job {job_id}, not a task of a step",
            srun_line(_job_nodes(environment)),
        )
    return NotAStepError(
        f"this is {where} (job {job_id}) with variables left over from a step further out"
        + (f" ({stale})" if stale else ""),
        srun_line(_job_nodes(environment)),
    )


def srun_line(nodes: int) -> str:
    """Return the srun line that starts one task on each node, whatever the job asked for.

    (`--ntasks-per-node` is ignored in a job that has more tasks.)
    """
    return (
        f"srun --nodes={nodes} --ntasks={nodes} --kill-on-bad-exit=1"
        " slurm-adapter exec --boot train.py"
    )


def _srun_line_of(environment: Mapping[str, str]) -> str:
    """Return the same for the job of a batch script or of an allocation's shell."""
    if "SLURM_HET_SIZE" in environment:
        from slurm_adapter.cluster.step_components import components

        if found := components(environment):
            groups = ",".join(str(one.number) for one in found)
            return (
                f"srun --het-group={groups} --kill-on-bad-exit=1 slurm-adapter exec --boot train.py"
            )
    return srun_line(_job_nodes(environment))


def _job_nodes(environment: Mapping[str, str]) -> int:
    text = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES", "")
    return int(text) if is_number(text) and int(text) else 1

"""Telling a task of a step from the shells that look like one (SL-07, SL-08)."""

from __future__ import annotations

from slurm_adapter.cluster.counts import is_number
from slurm_adapter.cluster.hostlist import expand_hostlist
from slurm_adapter.errors import NotAStepError, StepError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Step ids from here up are Slurm's own: batch script, extern, interactive shell of salloc.
_FIRST_RESERVED_STEP = 0xFFFFFFF0


def check_is_step(environment: Mapping[str, str]) -> None:
    """Tell a task from all that looks like one (SL-07, SL-08: never by the job's name)."""
    job_id = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    if job_id and not job_id.isdecimal():
        raise StepError(
            f"SLURM_JOB_ID={job_id!r} is not a number",
            "Start it again with srun; do not set SLURM_* variables by hand.",
        )
    if not job_id:
        raise NotAStepError(
            "this process was not started by Slurm: SLURM_JOB_ID is not set",
            srun_line(2),
        )
    step_id = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")
    where = "a batch script" if "SLURM_PROCID" in environment else "the shell of an allocation"
    if not step_id and "SLURM_ADAPTER_INIT_METHOD" in environment:
        raise NotAStepError(
            f"this is inside a rank that slurm-adapter has set up (job {job_id}): its step's"
            " variables were taken out",
            srun_line(_job_nodes(environment)),
        )
    if not step_id:
        raise NotAStepError(
            f"this is {where} (job {job_id}), not a task of a step: it would be one process"
            f" of {environment.get('SLURM_NTASKS', 'several')}, the others never started",
            _srun_line_of(environment),
        )
    if not is_number(step_id) or int(step_id) >= _FIRST_RESERVED_STEP:
        raise NotAStepError(
            f"this is the interactive or batch shell of job {job_id}, not a task of a step",
            srun_line(_job_nodes(environment)),
        )
    stale = _stale_variable(environment)
    if stale or "SLURM_PROCID" not in environment:
        raise NotAStepError(
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


def _stale_variable(environment: Mapping[str, str]) -> str:
    """Return a step variable that a newer job contradicts, or nothing.

    srun writes each of these pairs alike; sbatch and salloc rewrite only the first of a pair,
    so a difference means that the step belongs to the job this one was submitted from.
    """
    for job_name, step_name in (
        ("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"),
        ("SLURM_NNODES", "SLURM_STEP_NUM_NODES"),
        ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"),
    ):
        job_value, step_value = environment.get(job_name), environment.get(step_name)
        if job_value and step_value and job_value != step_value:
            return f"{step_name}={step_value}, but {job_name}={job_value}"
    step_nodes = environment.get("SLURM_STEP_NODELIST")
    job_nodes = environment.get("SLURM_JOB_NODELIST")
    if step_nodes and job_nodes and step_nodes != job_nodes:
        outside = set(expand_hostlist(step_nodes)) - set(expand_hostlist(job_nodes))
        if outside:
            return f"SLURM_STEP_NODELIST={step_nodes} is not part of {job_nodes}"
    return ""

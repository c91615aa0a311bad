"""Floor 2: how a script learns its place. One file for each contract, the same small interface."""

from __future__ import annotations

from slurm_adapter.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.contracts.contract import Contract
    from slurm_adapter.job.job import Job


def get_contract(name: str) -> Contract:
    """Return the contract of this name (imported only now: starting a rank costs milliseconds)."""
    if name == "env":
        from slurm_adapter.contracts.env import EnvContract

        return EnvContract()
    if name == "torchrun":
        from slurm_adapter.contracts.torchrun import TorchrunContract

        return TorchrunContract()
    from slurm_adapter.contracts.modelarts import ModelArtsContract

    return ModelArtsContract()


def contract_of(job: Job) -> Contract:
    """Return the contract of a job."""
    if job.node_starts_ranks:
        from slurm_adapter.contracts.env import EnvByNodeContract

        return EnvByNodeContract()
    return get_contract(job.contract)


def wanted_view(job: Job, tasks: int) -> str:
    """Return the view to try first, with `tasks` ranks on a node that share none."""
    return job.view or contract_of(job).default_view(tasks)


def with_exported_master(job: Job, environment: Mapping[str, str]) -> Job:
    """Keep a MASTER_ADDR that the user exported, where the contract knows that name (MA-08)."""
    wanted = environment.get("MASTER_ADDR")
    welcome = contract_of(job).tells_master or "MASTER_ADDR" in job.keep
    if wanted and welcome and "MASTER_ADDR" not in job.env:
        return replace(job, env={**job.env, "MASTER_ADDR": wanted})
    return job

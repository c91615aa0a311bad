"""Floor 2: how a script learns its place. One file for each contract, the same small interface."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.contracts.contract import Contract
    from slurm_adapter.job import Job


def get_contract(name: str) -> Contract:
    """Return the contract of this name (imported only now: starting a rank costs milliseconds)."""
    if name == "env":
        from slurm_adapter.contracts.env import EnvContract  # noqa: PLC0415

        return EnvContract()
    if name == "torchrun":
        from slurm_adapter.contracts.torchrun import TorchrunContract  # noqa: PLC0415

        return TorchrunContract()
    from slurm_adapter.contracts.modelarts import ModelArtsContract  # noqa: PLC0415

    return ModelArtsContract()


def wanted_view(job: Job, tasks: int) -> str:
    """Return the surroundings to try first, with `tasks` ranks on a node that share none."""
    return job.view or get_contract(job.contract).default_view(tasks)

"""Floor 2: how a script learns its place. One file for each contract, the same small interface."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.contracts.contract import Contract


def get_contract(name: str) -> Contract:
    """Return the contract of this name (imported only now: starting a rank costs milliseconds)."""
    if name == "env":
        from slurm_adapter.contracts.env import EnvContract  # noqa: PLC0415

        return EnvContract()
    from slurm_adapter.contracts.modelarts import ModelArtsContract  # noqa: PLC0415

    return ModelArtsContract()

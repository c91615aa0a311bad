"""How a script learns its place. One file for each contract, the same small interface."""

from __future__ import annotations

from slurm_adapter.job.job import Argv, Boot, Command
from slurm_adapter.record import replace
from slurm_adapter.setting import Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurm_adapter.contracts.contract import Contract
    from slurm_adapter.contracts.place import RankPlace
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


def command_line(place: RankPlace, contract: Contract) -> Iterator[Word]:
    """Yield a rank's whole command line, each word with its reason."""
    if place.job.pre_start is not None and isinstance(place.job.program, Boot):
        yield from _pre_start(place.layout.in_code(place.job.pre_start))
    yield from contract.command(place, _program(place, contract))


def _program(place: RankPlace, contract: Contract) -> Iterator[Word]:
    """Yield boot file or command, with all arguments."""
    job, layout = place.job, place.layout
    match job.program:
        case Boot(path):
            yield Word(layout.in_code(path), "the boot file")
            yield from contract.arguments(place)
            if job.delivery == "option":
                for channel in job.channels:
                    why = layout.why("a channel, as an option", channel.path)
                    yield Word(f"--{channel.name}={layout.channel(channel)}", why)
        case Command(text):
            yield Word("/bin/sh", "runs the boot command")
            yield Word("-c", "runs the boot command")
            yield Word(text)
            if job.args:
                yield Word("sh", "$0 of the boot command")
        case Argv(words):
            yield from map(Word, words)
    yield from map(Word, job.args)


# Read, not run: ModelArts' scripts of this name set variables for the boot file. What it does to
# the directory and to the arguments does not reach the boot file; no shell stays.
_PRE_START = (
    '_ma_command=("$@"); _ma_directory=$PWD; set --; . "$0"; cd "$_ma_directory" || exit;'
    ' exec "${_ma_command[@]}"'
)


def _pre_start(path: str) -> Iterator[Word]:
    yield Word("bash", "reads ma-pre-start.sh, then becomes the interpreter")
    yield Word("-c", "reads ma-pre-start.sh")
    yield Word(_PRE_START)
    yield Word(path, "stands beside the boot file")

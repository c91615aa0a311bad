"""Where a process stands in its job, as its variables tell it, whoever set them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.cluster.slurm import read_step
from slurm_adapter.contracts.place import tcp_url
from slurm_adapter.errors import BadValueError
from slurm_adapter.node.facts.ports import any_free_port
from slurm_adapter.paths import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# ModelArts' own default port of worker 0, where the platform itself starts a script.
_LOOPBACK = "127.0.0.1"
_MODELARTS_PORT = 6666


@dataclass(frozen=True)
class RankContext:
    """Where this process stands in its job."""

    rank: int
    """Global rank, from 0."""
    world_size: int
    local_rank: int
    local_world_size: int
    """Processes of the job on this node."""
    init_method: str
    """`tcp://HOST:PORT`."""
    source: str
    """Who said so: `variables`, `modelarts`, `slurm` or `alone`."""
    own_port: bool = False
    """Whether the port is this process's own choice, of which no other knows."""


def find_rank_context(environment: Mapping[str, str], argv: Sequence[str]) -> RankContext:
    """Return this process's place, as its variables (and `--init_method` on argv) tell it."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _from_variables(environment)
    if environment.get("MA_VJ_NAME"):
        return _from_modelarts(environment, argv)
    if environment.get("SLURM_JOB_ID"):
        return _from_slurm(environment)
    return RankContext(0, 1, 0, 1, _alone_method(), "alone", own_port=True)


def multiply(place: RankContext, local_rank: int, local_world_size: int) -> RankContext:
    """Return the place of one of several processes that a script started on its node."""
    if not 0 <= local_rank < local_world_size:
        raise BadValueError(
            f"local_rank={local_rank} is not one of {local_world_size} processes",
            "Give local_rank from 0 to local_world_size - 1.",
        )
    if place.local_world_size != 1:
        raise BadValueError(
            f"{place.local_world_size} processes were started on this node already"
            f" (by {place.source}); the script would start {local_world_size} more in each",
            "Start the script once per node, or leave local_rank and local_world_size out.",
        )
    return RankContext(
        rank=place.rank * local_world_size + local_rank,
        world_size=place.world_size * local_world_size,
        local_rank=local_rank,
        local_world_size=local_world_size,
        # The others cannot know a port that this process found free.
        init_method=tcp_url(_LOOPBACK, str(_MODELARTS_PORT))
        if place.own_port
        else place.init_method,
        source=place.source,
    )


def _from_variables(environment: Mapping[str, str]) -> RankContext:
    rank = _number(environment, "RANK")
    world_size = _number(environment, "WORLD_SIZE")
    local_rank = _number(environment, "LOCAL_RANK", rank if world_size == 1 else None)
    local_size = _number(environment, "LOCAL_WORLD_SIZE", 1)
    if environment.get("MASTER_ADDR") and environment.get("MASTER_PORT"):
        # env:// lets torchrun's own store be used, which a second one would collide with.
        return RankContext(rank, world_size, local_rank, local_size, "env://", "variables")
    if world_size == 1:
        method = _alone_method()
        return RankContext(0, 1, local_rank, local_size, method, "variables", own_port=True)
    raise BadValueError(
        f"RANK={rank} and WORLD_SIZE={world_size} are set, MASTER_ADDR and MASTER_PORT are not",
        "Start the script with slurm-adapter or torchrun, which set all four.",
    )


def _from_modelarts(environment: Mapping[str, str], argv: Sequence[str]) -> RankContext:
    nodes = _number(environment, "MA_NUM_HOSTS", 1)
    # The index has no meaning on one node (MD-03).
    index = _number(environment, "VC_TASK_INDEX") if nodes > 1 else 0
    method = _init_method(argv) or environment.get("SLURM_ADAPTER_INIT_METHOD")
    if method is None and nodes == 1:
        return RankContext(index, nodes, 0, 1, _alone_method(), "modelarts", own_port=True)
    if method is None:
        master = environment.get("VC_WORKER_HOSTS", "").split(",")[0]
        if not master:
            raise BadValueError(
                f"MA_NUM_HOSTS={nodes}, but VC_WORKER_HOSTS names no node",
                "Set VC_WORKER_HOSTS to all nodes, the first being rank 0's.",
            )
        method = tcp_url(master, str(_MODELARTS_PORT))
    return RankContext(index, nodes, 0, 1, method, "modelarts")


def _from_slurm(environment: Mapping[str, str]) -> RankContext:
    step = read_step(environment, read_text)
    port = environment.get("MASTER_PORT") or str(step.port)
    method = tcp_url(environment.get("MASTER_ADDR") or step.master, port)
    return RankContext(
        step.rank, step.world_size, step.local_rank, step.local_size, method, "slurm"
    )


def _init_method(argv: Sequence[str]) -> str | None:
    for position, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == "--init_method":
            return value if equals else next(iter(argv[position + 1 :]), None)
    return None


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit()):
        raise BadValueError(
            f"{name} is not set" if text is None else f"{name}={text!r} is not a number",
            "Start the script with slurm-adapter, torchrun or srun, which set it.",
        )
    return int(text)


def _alone_method() -> str:
    # One that the kernel chooses: of the first free one others may think so, too.
    return tcp_url(_LOOPBACK, str(any_free_port(_LOOPBACK)))

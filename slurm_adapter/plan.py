"""Job and cluster become a plan: for each rank its node, environment, argv and directory.

Pure: no I/O, no clock, no randomness. The dry run prints the very object that launchers consume.
"""

from __future__ import annotations

from itertools import accumulate

from slurm_adapter.cluster.cluster import Run
from slurm_adapter.contracts import contract_of
from slurm_adapter.contracts.place import Place, Workers, name_workers
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import Argv, Boot, Command
from slurm_adapter.record import as_dict, cached_property, record, replace
from slurm_adapter.setting import Removal, Setting, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from slurm_adapter.cluster.cluster import Cluster, Node
    from slurm_adapter.contracts.contract import Contract
    from slurm_adapter.job.job import Job

SCHEMA = 1
"""Number of the JSON document's form; grows when a reader would have to change."""


@record
class RankPlan:
    """What one rank gets; every value carries its reason."""

    rank: int
    node_index: int
    node: Node
    local_rank: int
    argv: tuple[Word, ...]
    cwd: Word
    """The working directory; empty: the one the launcher was started in."""
    settings: tuple[Setting, ...]
    removals: tuple[Removal, ...]
    kept: frozenset[str]
    """Names that the user wants as they are, whatever a removal says."""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the rank's whole environment, made from what it would inherit."""
        environment = dict(inherited)
        for name in self.removed_from(inherited):
            del environment[name]
        environment.update((setting.name, setting.value) for setting in self.settings)
        return environment

    def removed_from(self, inherited: Mapping[str, str]) -> list[str]:
        """Return the inherited names that this rank does not get, sorted."""
        exact = {removal.pattern for removal in self.removals}
        starts = tuple(pattern[:-1] for pattern in exact if pattern.endswith("*"))
        return sorted(
            name
            for name in inherited
            if (name in exact or name.startswith(starts)) and name not in self.kept
        )

    @property
    def told(self) -> list[str]:
        """Everything in which the rank may be told of a directory."""
        return [self.cwd.value, *(item.value for item in self.settings)]

    @property
    def words(self) -> list[str]:
        """The command line as plain words."""
        return [word.value for word in self.argv]

    def differing(self, first: RankPlan) -> list[Setting]:
        """Return the settings that another rank, usually the first, does not have alike."""
        same = {(item.name, item.value) for item in first.settings}
        return [item for item in self.settings if (item.name, item.value) not in same]

    def to_json(self, first: RankPlan) -> dict[str, Any]:
        """Return as JSON data what this rank has other than the first, secrets masked."""
        document: dict[str, Any] = {"rank": self.rank, "local_rank": self.local_rank}
        if self.rank == first.rank or self.words != first.words:
            document["argv"] = [as_dict(word) for word in self.argv]
        return {
            **document,
            "environment": [_to_json(setting) for setting in self.differing(first)],
        }


@record
class Plan:
    """All ranks of a job on a cluster. Ranks are worked out when asked for: 80,000 are cheap."""

    job: Job
    cluster: Cluster
    run: Run
    contract: Contract
    warnings: tuple[str, ...] = ()

    @cached_property
    def ranks_per_node(self) -> tuple[int, ...]:
        """How many ranks each node has, in node order."""
        return tuple(map(self.contract.ranks_on, self.cluster.nodes))

    @cached_property
    def first_ranks(self) -> tuple[int, ...]:
        """The first global rank of each node: the sum of what stands before it (SL-05)."""
        return tuple(accumulate(self.ranks_per_node, initial=0))[:-1]

    @cached_property
    def world_size(self) -> int:
        """The number of ranks."""
        return sum(self.ranks_per_node)

    @cached_property
    def script_ranks(self) -> tuple[range | None, ...]:
        """The ranks that scripts see on each node, those that torchrun starts there included.

        None where that depends on GPUs that nothing has counted yet, and where torchrun deals the
        numbers out as its nodes come (MA-07).
        """
        if self.job.elastic is not None:
            return (None,) * len(self.cluster.nodes)
        found: list[range | None] = []
        first: int | None = 0
        for node, started in zip(self.cluster.nodes, self.ranks_per_node, strict=True):
            each = self.contract.fan_out(node)
            if first is None or each is None:
                first = None
                found.append(None)
            else:
                found.append(range(first, first + started * each))
                first += started * each
        return tuple(found)

    @property
    def script_world_size(self) -> int | None:
        """The world size that scripts see, None where it is not known, or may change."""
        last = self.script_ranks[-1]
        return None if last is None else last.stop

    @cached_property
    def workers(self) -> Workers:
        """The nodes by ModelArts' names."""
        return name_workers(self.run.uuid, len(self.cluster.nodes))

    @cached_property
    def first_rank(self) -> RankPlan:
        """The plan of the first rank of the first node, which stands for what all have alike."""
        return self.rank(0, 0, 0)

    def node_ranks(self, node_index: int) -> Iterator[RankPlan]:
        """Yield the ranks of one node."""
        first = self.first_ranks[node_index]
        for local_rank in range(self.ranks_per_node[node_index]):
            yield self.rank(first + local_rank, node_index, local_rank)

    def ranks(self) -> Iterator[RankPlan]:
        """Yield all ranks in order, nodes filled one after the other."""
        for node_index in range(len(self.cluster.nodes)):
            yield from self.node_ranks(node_index)

    def rank(self, rank: int, node_index: int, local_rank: int) -> RankPlan:
        """Return the plan of a rank whose place is known (Slurm may deal ranks out cyclically)."""
        place = Place(
            job=self.job,
            cluster=self.cluster,
            run=self.run,
            rank=rank,
            world_size=self.world_size,
            local_rank=local_rank,
            local_size=self.ranks_per_node[node_index],
            node_index=node_index,
            workers=self.workers,
            by_worker_name=self.contract.names_workers
            and self.cluster.nodes[node_index].view != "off",
        )
        return RankPlan(
            rank=rank,
            node_index=node_index,
            node=place.node,
            local_rank=local_rank,
            argv=tuple(_argv(place, self.contract)),
            cwd=_cwd(place),
            settings=tuple(_settings(place, self.contract)),
            removals=self.contract.removals,
            kept=frozenset((*self.job.keep, *self.job.env)),
        )

    def with_view(self, level: str) -> Plan:
        """Return this plan with the surroundings that a node turned out to give."""
        if all(node.view == level for node in self.cluster.nodes):
            return self
        nodes = tuple(replace(node, view=level) for node in self.cluster.nodes)
        cluster = replace(self.cluster, nodes=nodes)
        return replace(self, cluster=cluster, warnings=_warnings(self.job, cluster, self.contract))

    def with_settings(self, node_index: int, settings: tuple[Setting, ...]) -> Plan:
        """Return this plan with variables of a node, which take account of the user's own."""
        if not settings:
            return self
        nodes = list(self.cluster.nodes)
        node = nodes[node_index]
        nodes[node_index] = replace(node, settings=(*node.settings, *settings))
        return replace(
            self,
            job=self.job.without(item.name for item in settings),
            cluster=replace(self.cluster, nodes=tuple(nodes)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON data, secrets masked; `schema` tells its form.

        `environment` is the first rank's, as is its `argv`; each other rank lists only what it
        has other than that. Where torchrun starts the ranks, an entry of `ranks` is a torchrun,
        and `starts` holds its ranks' numbers.
        """
        first = self.first_rank
        return {
            "schema": SCHEMA,
            "name": self.job.name,
            "contract": self.contract.name,
            "source": self.cluster.source,
            "known": self.cluster.known,
            "world_size": self.script_world_size,
            "warnings": list(self.warnings),
            "cwd": as_dict(first.cwd),
            "environment": [_to_json(setting) for setting in first.settings],
            "removed": [as_dict(removal) for removal in self.contract.removals],
            "nodes": [
                {
                    "name": node.name,
                    "address": node.address,
                    "gpus": node.gpus,
                    "view": node.view,
                    "ranks": [
                        {**rank.to_json(first), **self._started(index)}
                        for rank in self.node_ranks(index)
                    ],
                }
                for index, node in enumerate(self.cluster.nodes)
            ],
        }

    def _started(self, node_index: int) -> dict[str, Any]:
        """Return what an entry of the JSON document has more where it is no rank itself."""
        if self.contract.starts == "rank":
            return {}
        ranks = self.script_ranks[node_index]
        return {"starts": None if ranks is None else list(ranks)}


def _to_json(setting: Setting) -> dict[str, Any]:
    return {**as_dict(setting), "value": setting.shown}


def make_plan(job: Job, cluster: Cluster, run: Run | None = None) -> Plan:
    """Return the plan of a job on a cluster.

    Args:
        job: what to run.
        cluster: the nodes, in rank order.
        run: identity and port of this run; without it the plan shows placeholders for them.

    Raises:
        AdapterError: where the job cannot run on this cluster under its contract.
    """
    if len(cluster.nodes) != job.all_nodes:
        raise BadValueError(
            f"the job wants {job.all_nodes} nodes, {cluster.source} has {len(cluster.nodes)}",
            "Give the same number in both places.",
        )
    run = run or Run()
    contract = contract_of(job)
    _check_master(job, cluster)
    return Plan(job, cluster, run, contract, _warnings(job, cluster, contract))


def _warnings(job: Job, cluster: Cluster, contract: Contract) -> tuple[str, ...]:
    """Return what to warn of; raise where the job cannot run there."""
    found = contract.check(job, cluster)
    if job.cache is None or cluster.nodes[0].view == "full":
        return found
    return (*found, f"{job.cache} is not shown as /cache: only a full view has it")


def _check_master(job: Job, cluster: Cluster) -> None:
    """Refuse a MASTER_ADDR that names another node than rank 0's (MA-08)."""
    wanted = job.env.get("MASTER_ADDR")
    if wanted is None or not cluster.known:
        return
    master = cluster.nodes[0]
    others = {
        name for node in cluster.nodes if node != master for name in (node.name, node.address)
    }
    if wanted in others:
        raise BadValueError(
            f"MASTER_ADDR={wanted}, but rank 0 runs on {master.name}",
            f"Leave MASTER_ADDR out, or set it to {master.name}.",
        )


def _argv(place: Place, contract: Contract) -> Iterator[Word]:
    if place.job.pre_start is not None and isinstance(place.job.program, Boot):
        yield from _pre_start(place.layout.in_code(place.job.pre_start))
    yield from contract.command(place, _program(place, contract))


def _program(place: Place, contract: Contract) -> Iterator[Word]:
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


def _cwd(place: Place) -> Word:
    layout = place.layout
    match place.job.program:
        case Boot():
            return Word(layout.code, layout.why("the code directory", place.job.code))
        case Command():
            return Word(layout.home, "MA_HOME, as ModelArts runs boot commands")
        case Argv():
            return Word("", "the directory you are in")


def _settings(place: Place, contract: Contract) -> Iterable[Setting]:
    """Collect a rank's variables: the contract's, the launcher's, channels, the user's on top."""
    job = place.job
    settings = {item.name: item for item in (*place.run.settings, *place.node.settings)}
    settings.update((setting.name, setting) for setting in contract.settings(place))
    settings["SLURM_ADAPTER_INIT_METHOD"] = Setting(
        "SLURM_ADAPTER_INIT_METHOD",
        place.init_method,
        "read by slurm_adapter.torch.init_process_group()",
        place.known,
    )
    if job.delivery == "variable":
        for channel in job.channels:
            why = place.layout.why("a channel", channel.path)
            settings[channel.name] = Setting(channel.name, place.layout.channel(channel), why)
    for name in job.keep:
        settings.pop(name, None)
    for name, value in job.env.items():
        settings[name] = Setting(name, value, "set by you")
    for name, value in place.node.env.items():
        settings[name] = Setting(name, value, "set for this host")
    return settings.values()

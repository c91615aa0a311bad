"""Job and cluster become a plan: for each rank its node, environment, argv and directory.

Pure: no I/O, no clock, no randomness. The dry run prints the very object that launchers consume,
and each node gets its part of it: what only the node can know is a hole there, and nothing else.
"""

from __future__ import annotations

from itertools import accumulate

from slurm_adapter.cluster import Run
from slurm_adapter.contracts import command_line, contract_of
from slurm_adapter.contracts.place import RankPlace, Workers, name_workers, working_directory
from slurm_adapter.errors import BadValueError
from slurm_adapter.record import as_dict, cached_property, record, replace
from slurm_adapter.setting import Removal, Setting, Word, extended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from slurm_adapter.cluster import Cluster, Node
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
        environment.update((item.name, item.filled(inherited).value) for item in self.settings)
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
    def referenced_directories(self) -> list[str]:
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
        if self.cwd != first.cwd:
            document["cwd"] = as_dict(self.cwd)
        document["environment"] = [_to_json(setting) for setting in self.differing(first)]
        names = {item.name for item in self.settings}
        if lacking := [item.name for item in first.settings if item.name not in names]:
            document["lacks"] = lacking
        return document


@record
class NodePlan:
    """A node's part of a plan: all that is needed to start its ranks, with nothing to work out.

    Only holes in values are left to the node: `RankPlan.environment` fills them.
    """

    job: Job
    """What runs: its directories, its requirements, what the user asked for."""
    index: int
    node: Node
    """This one; its `view` is the level that values count on."""
    hosts: tuple[tuple[str, str | None], ...]
    """(name, address) of every node, in rank order; empty where ranks get no hosts file."""
    addressed: bool
    """Whether nodes reach each other by these addresses rather than by name."""
    workers: Workers
    names_workers: bool
    """Whether scripts reach nodes by ModelArts' names where those resolve."""
    ranks: tuple[RankPlan, ...]

    @property
    def folder(self) -> str:
        """What is for this node of this run alone, in the job's folder."""
        return self.workers.node_folder(self.job.folder, self.index)

    @property
    def holes(self) -> list[str]:
        """The variables whose values the node puts in."""
        holes = [item.hole for item in self.node.overriding if item.hole is not None]
        return list(dict.fromkeys(hole.variable for hole in holes))


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
        place = RankPlace(
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
            argv=tuple(command_line(place, self.contract)),
            cwd=working_directory(place),
            settings=tuple(_settings(place, self.contract)),
            removals=self.contract.removals,
            kept=frozenset((*self.job.keep, *self.job.env)),
        )

    @cached_property
    def hosts(self) -> tuple[tuple[str, str | None], ...]:
        """(name, address) of every node, in rank order."""
        return tuple((node.name, node.address) for node in self.cluster.nodes)

    def node(self, index: int, ranks: Iterable[RankPlan] | None = None) -> NodePlan:
        """Return a node's part of this plan, with all its ranks unless told which."""
        node = self.cluster.nodes[index]
        return NodePlan(
            job=self.job,
            index=index,
            node=node,
            hosts=() if node.view == "off" else self.hosts,
            addressed=self.cluster.addressed,
            workers=self.workers,
            names_workers=self.contract.names_workers,
            ranks=tuple(self.node_ranks(index) if ranks is None else ranks),
        )

    def with_view(self, level: str) -> Plan:
        """Return this plan with the same view on all nodes."""
        if all(node.view == level for node in self.cluster.nodes):
            return self
        nodes = tuple(replace(node, view=level) for node in self.cluster.nodes)
        cluster = replace(self.cluster, nodes=nodes)
        return replace(self, cluster=cluster, warnings=_warnings(self.job, cluster, self.contract))

    def with_node_view(self, node_index: int, level: str, wrapper: str = "") -> Plan:
        """Return this plan with the view that a node turned out to give.

        Args:
            node_index: the node.
            level: as `Node.view` has it.
            wrapper: the library by which names resolve there, empty where none is needed.
        """
        node = self.cluster.nodes[node_index]
        plan = self if node.view == level else self._with_view_of(node_index, level)
        if not wrapper:
            return plan
        why = "workers' names by nss_wrapper"
        hosts = self.workers.wrapper_hosts(self.job.folder, node_index)
        names = extended("LD_PRELOAD", why, before=(wrapper,))
        own = (names, Setting("NSS_WRAPPER_HOSTS", hosts, why))
        return plan.with_settings({node_index: own})

    def with_settings(self, of_nodes: Mapping[int, Iterable[Setting]]) -> Plan:
        """Return this plan with variables of nodes, by index, that win over all others.

        A hole is filled with what is planned, or else was set by the user, as far as there is any.
        """
        nodes = list(self.cluster.nodes)
        for index, settings in of_nodes.items():
            overriding = _overriding(self.job, nodes[index], settings)
            nodes[index] = replace(nodes[index], overriding=overriding)
        return replace(self, cluster=replace(self.cluster, nodes=tuple(nodes)))

    def filled(self, node_index: int, inherited: Mapping[str, str]) -> Plan:
        """Return this plan with a node's holes filled; ranks would inherit these variables."""
        own = self.cluster.nodes[node_index].overriding
        if all(item.hole is None for item in own):
            return self
        return self.with_settings({node_index: [item.filled(inherited) for item in own]})

    def _with_view_of(self, index: int, level: str) -> Plan:
        nodes = list(self.cluster.nodes)
        nodes[index] = replace(nodes[index], view=level)
        cluster = replace(self.cluster, nodes=tuple(nodes))
        before = _warnings(self.job, self.cluster, self.contract)
        others = (one for one in self.warnings if one not in before)
        warnings = (*_warnings(self.job, cluster, self.contract), *others)
        return replace(self, cluster=cluster, warnings=warnings)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON data, secrets masked; `schema` tells its form.

        `environment` is the first rank's, as are its `argv` and `cwd`; each other rank lists only
        what it has other than that, and under `lacks` what it has not. A value with a hole has
        `hole`, the variable whose value only the node knows, and `why`. Where torchrun starts the
        ranks, an entry of `ranks` is a torchrun, and `starts` holds its ranks' numbers.
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
    document = {
        "name": setting.name,
        "value": setting.shown,
        "reason": setting.reason,
        "known": setting.known,
    }
    if setting.hole is not None:
        document |= {"hole": setting.hole.variable, "why": setting.hole.why}
    return document


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


def _overriding(job: Job, node: Node, settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """Return a node's overriding variables with more of them, put around what is there."""
    planned = {item.name: item for item in node.overriding}
    users = {**job.env, **node.env}
    for item in settings:
        inner = planned.get(item.name)
        if inner is None and users.get(item.name):
            inner = Setting(item.name, users[item.name], "")
        planned[item.name] = item if inner is None else item.put_around(inner)
    return tuple(planned.values())


def _check_master(job: Job, cluster: Cluster) -> None:
    """Refuse a MASTER_ADDR that names another node than rank 0's (MA-08)."""
    of_nodes = (node.env for node in cluster.nodes if node.env)
    wanted = [one["MASTER_ADDR"] for one in (job.env, *of_nodes) if "MASTER_ADDR" in one]
    if not wanted or not cluster.known:
        return
    master = cluster.nodes[0]
    others = {
        name for node in cluster.nodes if node != master for name in (node.name, node.address)
    }
    for one in wanted:
        if one in others:
            raise BadValueError(
                f"MASTER_ADDR={one}, but rank 0 runs on {master.name}",
                f"Leave MASTER_ADDR out, or set it to {master.name}.",
            )


def _settings(place: RankPlace, contract: Contract) -> Iterable[Setting]:
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
    settings.update((item.name, item) for item in place.node.overriding)
    return settings.values()

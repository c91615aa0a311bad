"""What a dry run shows: the plan the launchers would consume, and what they would do with it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_adapter.cluster.hostlist import fold_hostlist
from slurm_adapter.errors import printable
from slurm_adapter.job.layout import VOLCANO, Layout, mount_point
from slurm_adapter.network.addresses import HOSTS
from slurm_adapter.record import as_dict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_adapter.job.job import Job
    from slurm_adapter.launch.script.sbatch import Script
    from slurm_adapter.network.table import Row
    from slurm_adapter.plan import Plan, RankPlan
    from slurm_adapter.setting import Setting

SCHEMA = 1
# Beyond this many nodes (or ranks on a node) the first ones and the last stand for all.
_SHOWN = 4


@dataclass(frozen=True)
class SlurmAnswer:
    """What `sbatch --test-only` said."""

    accepts: bool
    says: str


@dataclass(frozen=True)
class DryRun:
    """A plan, the files that would be written, and what Slurm says to it."""

    plan: Plan
    files: tuple[str, ...]
    """What would be made, absolute paths; folders end in `/`."""
    script: Script | None = None
    slurm: SlurmAnswer | None = None
    warnings: tuple[str, ...] = ()
    network: tuple[Row, ...] = ()
    """How each node reaches the others, where nodes have been looked at."""
    copied: str = ""
    """What would be copied to a login node, for people; empty: nothing."""
    over_ssh: bool = False
    """Whether the nodes are reached with ssh: commands to paste then are, too."""

    def to_json(self) -> str:
        """Return everything as one JSON document, secrets masked."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "plan": self.plan.to_json(),
            "view": [{"seen": seen, "shows": shows} for seen, shows in seen_around(self.plan)],
            "files": list(self.files),
            "warnings": list(self.warnings),
        }
        if self.copied:
            document["copied"] = self.copied
        if self.plan.job.container is not None:
            document["container"] = as_dict(self.plan.job.container)
        if self.network:
            document["network"] = [as_dict(row) for row in self.network]
        if self.script is not None:
            document["script"] = self.script.text
            document["directives"] = [
                {"name": item.name, "value": item.value, "reason": item.reason}
                for item in self.script.directives
            ]
            if self.script.components:
                document["parts"] = [
                    [
                        {"name": item.name, "value": item.value, "reason": item.reason}
                        for item in component
                    ]
                    for component in self.script.components
                ]
        if self.slurm is not None:
            document["slurm"] = {"accepts": self.slurm.accepts, "says": self.slurm.says}
        text = json.dumps(document, indent=2, ensure_ascii=False)
        return re.sub(r"[^\n -~]", _seen, text)


def _seen(found: re.Match[str]) -> str:
    """Return a letter of a JSON text, escaped where nobody would see it."""
    return found[0] if printable(found[0]) == found[0] else json.dumps(found[0])[1:-1]


def network_notes(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return (title, line) for what stands below the network's table: alike nodes in one line.

    Which GPUs are near an HCA; which interfaces and HCAs are not used, and why.
    """
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        notes = [("near", *note) for note in row.near]
        for note in (*notes, *(("not used", *note) for note in row.unused)):
            nodes.setdefault(note, []).append(row.node)
    return [
        (title, f"{name}: {why}" + ("" if len(on) == len(rows) else f"  (on {fold_hostlist(on)})"))
        for (title, name, why), on in nodes.items()
    ]


def headline(plan: Plan) -> str:
    """Return one line about the whole plan."""
    nodes, ranks = len(plan.cluster.nodes), plan.script_world_size
    counted = "a rank for each GPU" if ranks is None else f"{ranks} rank{'s' if ranks > 1 else ''}"
    container = plan.job.container
    image = f", in {container.image} by {container.runtime}" if container is not None else ""
    return (
        f"{plan.job.name}: {nodes} node{'s' if nodes > 1 else ''}{_kinds(plan.job)}, {counted},"
        f" contract {plan.contract.name}{image}"
    )


def _kinds(job: Job) -> str:
    """Return how many nodes there are of each kind, where there is more than one."""
    if not job.components:
        return ""
    kinds = [f"{nodes} with {_gpus(gpus)}" for nodes, gpus in _sizes(job)]
    return f" ({', '.join(kinds)})"


def _sizes(job: Job) -> list[tuple[int, int | None]]:
    """Return (nodes, GPUs of each) for each component of a job."""
    first = job.nodes, job.gpus_per_node
    return [first, *((one.nodes, one.gpus_per_node) for one in job.components)]


def _gpus(count: int | None) -> str:
    return "GPUs" if count is None else f"{count} GPU{'' if count == 1 else 's'}"


def node_line(plan: Plan, index: int) -> str:
    """Return one line about a node."""
    node = plan.cluster.nodes[index]
    parts = [f"node {index}", node.name]
    if node.address is not None:
        parts.append(node.address)
    if node.gpus is not None:
        parts.append(_gpus(node.gpus))
    return "  ".join(parts)


def reason_of(setting: Setting) -> str:
    """Return why a variable has its value, and what only its node can put in."""
    return setting.reason if setting.hole is None else f"{setting.reason}; {setting.hole.why}"


def started_line(plan: Plan, rank: RankPlan) -> str:
    """Return what is started, by name and number, with the ranks that it starts in its turn."""
    name = f"{plan.contract.starts} {rank.rank}"
    if plan.contract.starts == "rank":
        return name
    ranks = plan.script_ranks[rank.node_index]
    if ranks is None:
        return f"{name}  starts a rank for each GPU"
    if len(ranks) == 1:
        return f"{name}  starts rank {ranks[0]}"
    return f"{name}  starts {len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"


def seen_around(plan: Plan) -> list[tuple[str, str]]:
    """Return (what, what it shows) for the view that ranks get; empty without any."""
    view = plan.cluster.nodes[0].view
    rows = [(HOSTS, "the machine's own lines, and every worker's name with one address")]
    if view == "full":
        rows.append(("host name", plan.workers.instance(0).removesuffix("0") + "<index>"))
        rows += [(seen, real) for real, seen in _mounts(plan)]
        rows.append((VOLCANO, "worker.host, VC_WORKER_HOSTS, VC_WORKER_NUM"))
    return [] if view == "off" else rows


def made_on_nodes(plan: Plan) -> list[str]:
    """Return the directories that nodes make where they are not there, absolute, `/` at the end."""
    job = plan.job
    made = [channel.path for channel in job.outputs]
    if plan.cluster.nodes[0].view == "full":
        points = [mount_point(job, seen) for _, seen in _mounts(plan)]
        made += dict.fromkeys(point for point in points if point is not None)
    elif plan.contract.names_workers:
        made.append(Layout(job, full=False).mount)
    if job.install_requirements or (job.cache is None and plan.cluster.nodes[0].view == "full"):
        made.append(f"{job.folder}/run")  # and taken away at the end
    return [f"{folder}/" for folder in made]


def _mounts(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return what a full view shows on any node."""
    own = f"{plan.workers.run_folder(plan.job.folder)}/worker-<index>/cache"
    return Layout(plan.job, full=True).mounts(plan.job.cache or own)


def shown_indices(count: int) -> list[int | None]:
    """Return the indices to show of `count` alike things; None stands for all left out there."""
    if count <= _SHOWN:
        return list(range(count))
    return [0, 1, None, count - 1]


def shown_nodes(plan: Plan) -> list[tuple[int, int]]:
    """Return (index, 0) for each node to show, (index, how many) for those left out from there on.

    Only nodes of one component are alike.
    """
    shown: list[tuple[int, int]] = []
    first = 0
    parts = [nodes for nodes, _ in _sizes(plan.job)] if plan.job.components else []
    for count in parts or [len(plan.cluster.nodes)]:
        for position, index in enumerate(shown_indices(count)):
            one = (position, count - _SHOWN + 1) if index is None else (index, 0)
            shown.append((first + one[0], one[1]))
        first += count
    return shown


def explained_words(rank: RankPlan) -> list[tuple[str, str]]:
    """Return (words, reason) for what stands on a rank's command line and is not the user's own.

    An option and its value stand together.
    """
    rows: list[tuple[str, str]] = []
    option = None
    for word, following in zip(rank.argv, (*rank.argv[1:], None), strict=True):
        if option is not None:
            rows.append((f"{option.value} {word.value}", f"{option.reason}: {word.reason}"))
            option = None
        elif word.reason and following is not None and _takes_value(word.value, following.value):
            option = word
        elif word.reason:
            rows.append((word.value, word.reason))
    return rows


def _takes_value(word: str, following: str) -> bool:
    option = word.startswith("--") and word != "--" and "=" not in word
    return option and not following.startswith("--")

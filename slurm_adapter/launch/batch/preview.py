"""What is known of a job before Slurm has chosen nodes: for plans that are shown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_adapter.cluster import Cluster, Node, Run
from slurm_adapter.cluster.hostlist import expand_hostlist
from slurm_adapter.contracts import wanted_view
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch.script.directives import tasks_per_node
from slurm_adapter.launch.script.het_job import jobs_of_components
from slurm_adapter.network.choose import not_known_yet
from slurm_adapter.setting import unbuffered

if TYPE_CHECKING:
    from slurm_adapter.job.job import Job


def preview(job: Job, names: str | None) -> Cluster:
    """Return the nodes as far as they are known before Slurm has chosen any.

    Args:
        job: what to run.
        names: a node list to show in place of those to come; None: placeholders.

    Raises:
        BadValueError: it names more nodes than the job wants, or fewer.
    """
    count = job.all_nodes
    if names is None:
        shown = [f"<node {index}>" for index in range(count)]
    else:
        shown = expand_hostlist(names)
        if len(shown) != count:
            raise BadValueError(
                f"--preview-nodes {names} names {len(shown)} nodes, the job wants {count}",
                f"Give {count} names" + ("." if job.components else f", or --nodes {len(shown)}."),
            )
    settings = not_known_yet(os.environ) if count > 1 else ()
    kinds = [one for one in jobs_of_components(job) for _ in range(one.nodes)]
    nodes = []
    for name, kind in zip(shown, kinds, strict=True):
        tasks = tasks_per_node(kind)
        nodes.append(
            Node(
                name,
                gpus=kind.gpus_per_node,
                gpus_reason="asked for" if kind.gpus_per_node is not None else "",
                tasks=None if job.node_starts_ranks else tasks,
                settings=settings,
                view=wanted_view(job, tasks),
            )
        )
    return Cluster(tuple(nodes), "the job", known=names is not None)


def preview_run(job: Job) -> Run:
    """Return what is known of the run before it starts: the port, where it is the user's."""
    settings = unbuffered(os.environ)
    wanted = job.wanted_port(os.environ)
    return Run(settings=settings) if wanted is None else Run(None, *wanted, settings=settings)

"""Which surroundings a node's rank gets: what its contract is used to, or the best below that.

Never less than was asked for in so many words, and never less without saying what is missing,
why, and how to get it.
"""

from __future__ import annotations

import os
import re
from functools import cached_property

from slurm_adapter.errors import AdapterError, ClusterUnfitError
from slurm_adapter.layout import CACHE, HOME, INPUTS, VOLCANO, Layout
from slurm_adapter.node import hosts, tree, view
from slurm_adapter.node.facts import HOSTS, read_hosts_file, read_text
from slurm_adapter.node.obstacle import explain
from slurm_adapter.node.program import working_directory
from slurm_adapter.node.root import Files
from slurm_adapter.record import record, replace
from slurm_adapter.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.contracts.place import Workers
    from slurm_adapter.job import Job
    from slurm_adapter.plan import Plan

_WRAPPERS = ("libnss_wrapper.so", "libnss_wrapper.so.0")
# Variables that hold directories a rank is sure to look into.
_SEARCHED = (
    "HOME",
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "TMPDIR",
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_HOME_ENTRY = re.compile("/home/([^/:\0]+)")


@record
class Surroundings:
    """What a node gives to its rank."""

    level: str
    """`full`, `hosts` or `off`, as `Node.view` has it."""
    entry: view.Entry | None = None
    """To be entered by the process that becomes the rank; None where there is nothing to enter."""
    settings: tuple[Setting, ...] = ()
    """Variables that belong to it."""
    warning: str = ""

    def close(self) -> None:
        """Let go of what was prepared; a process that entered it keeps it."""
        if self.entry is not None:
            self.entry.close()


@record
class _Node:
    """The node whose rank is to be surrounded."""

    plan: Plan
    index: int
    environment: Mapping[str, str]
    only_try: bool

    @property
    def name(self) -> str:
        """The node's own name."""
        return self.plan.cluster.nodes[self.index].name

    @property
    def instance(self) -> str:
        """Its name on ModelArts."""
        return self.plan.workers.instance(self.index)

    @property
    def folder(self) -> str:
        """What is for this node of this run alone, in the job's folder."""
        return self.plan.workers.node_folder(self.plan.job.folder, self.index)

    @property
    def level(self) -> str:
        """What to try first: what the user asked for, or what the contract is used to."""
        return self.plan.cluster.nodes[self.index].view

    @cached_property
    def named(self) -> tuple[str, ...]:
        """Every text in which this job names directories that it will use."""
        job = self.plan.job
        channels = (channel.path for channel in job.channels)
        places = (working_directory(), job.code, job.folder, job.cache or "", *channels)
        searched = (self.environment.get(name, "") for name in _SEARCHED)
        return (*places, job.python, *job.words, *job.env.values(), *searched)

    @property
    def asked(self) -> str | None:
        """What the user asked for."""
        return self.plan.job.view


def surround(
    plan: Plan, node_index: int, environment: Mapping[str, str], *, only_try: bool = False
) -> Surroundings:
    """Prepare the surroundings of one node's ranks; `Node.view` says what to try first.

    Args:
        plan: the job on its cluster.
        node_index: the node of it that this is.
        environment: what the ranks would inherit.
        only_try: make no folder; what is returned tells what the node would give.

    Raises:
        ClusterUnfitError: where what the user asked for by name is not possible here, where
            nodes' names do not resolve, or where a directory of the job is not there.
    """
    node = _Node(plan, node_index, environment, only_try)
    try:
        known = _addresses(node)
    except AdapterError as error:
        if node.asked is None and not plan.contract.names_workers:
            return Surroundings("off", warning=_warning(node, "off", error.found, ""))
        raise
    _open_up(node)
    why, remedy = "", ""
    for level in ("full", "hosts") if node.level == "full" else ("hosts",):
        try:
            entry = view.prepare(_view(node, level, _hosts_text(node, known, level)))
        except view.RefusedError as refused:
            why, remedy = explain(refused)
        else:
            return Surroundings(level, entry, warning=_warning(node, level, why, remedy))
        if node.asked == "full":
            break
    return _without_namespaces(node, _hosts_text(node, known, "hosts"), why, remedy)


def _open_up(node: _Node) -> None:
    """Have directories mounted that are mounted on demand, as far as the job names them.

    Inside the view that works later, too, but only where mounts of the machine are shared.
    """
    for text in node.named:
        for part in text.replace("=", ":").split(":"):
            if part.startswith("/"):
                os.access(f"{part}/.", os.F_OK)


def _addresses(node: _Node) -> dict[str, str]:
    """Return the address of each node by the node's name, in rank order."""
    nodes = node.plan.cluster.nodes
    names = [one.name for one in nodes]
    if node.plan.cluster.addressed:
        return {one.name: str(one.address) for one in nodes}
    # One's own name may lead to loopback on the machine itself; the address toward the others
    # is known.
    own = {node.name: nodes[node.index].address or ""}
    found = hosts.resolve_all(names, {**read_hosts_file(read_text(HOSTS)), **own})
    hosts.check_addresses(names, found)
    return dict(zip(names, found, strict=True))


def _hosts_text(node: _Node, addresses: Mapping[str, str], level: str) -> str:
    """Return the hosts file; under a full view an address leads back to its worker's name."""
    site, plan = read_text(HOSTS), node.plan
    known = read_hosts_file(site)
    listed = plan.cluster.addressed
    names = ["" if listed or name in known else name for name in addresses]
    return hosts.hosts_text(
        site, plan.workers, list(addresses.values()), names, workers_first=level == "full"
    )


def _view(node: _Node, level: str, text: str) -> view.View:
    texts = {HOSTS: text}
    switch = hosts.files_first(read_text(hosts.SWITCH))
    if switch is not None:
        texts[hosts.SWITCH] = switch
    if level == "hosts":
        return view.View(Files(texts))
    _check_home(node.environment)
    job = _with_cache(node.plan.job, node.environment)
    has_cache = os.path.isdir(CACHE)  # noqa: PTH112 - pathlib costs start-up time
    cache = job.cache or f"{node.folder}/cache"
    mounts = [
        (real, seen)
        for real, seen in Layout(job, full=True).mounts(cache)
        if seen != CACHE or job.cache is not None or not has_cache
    ]
    if not node.only_try:
        tree.make(job, mounts)
    named = _HOME_ENTRY.findall("\0".join((*node.named, *node.environment.values())))
    files = Files(
        texts={**texts, **_volcano(node.plan.workers)},
        folders=(HOME, VOLCANO, *(() if has_cache else (CACHE,))),
        binds=() if node.only_try else tuple(mounts),
        fresh=(INPUTS,),
        homes=frozenset(named) - {".", ".."},
    )
    return view.View(files, node.instance)


def _with_cache(job: Job, environment: Mapping[str, str]) -> Job:
    """Put in the variables of a node's cache."""
    if job.cache is None:
        return job

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environment.get(name):
            raise ClusterUnfitError(
                f"--cache {job.cache}: {name} is not set on {os.uname().nodename}",
                "Give a path that every node has, or variables that are set there.",
            )
        return environment[name]

    return replace(job, cache=_VARIABLE.sub(value, job.cache))


def _volcano(workers: Workers) -> dict[str, str]:
    """Return the files of Volcano's `svc` plug-in for the job's one role."""
    names = [workers.dotted(index) for index in range(workers.count)]
    return {
        f"{VOLCANO}/worker.host": "".join(f"{name}\n" for name in names),
        f"{VOLCANO}/VC_WORKER_HOSTS": ",".join(names),
        f"{VOLCANO}/VC_WORKER_NUM": str(len(names)),
    }


def _check_home(environment: Mapping[str, str]) -> None:
    """Leave a user alone whose own home would be covered."""
    if f"{environment.get('HOME', '')}/".startswith(f"{HOME}/"):
        raise view.RefusedError(0, f"{HOME} is your own home directory here")


def _without_namespaces(node: _Node, text: str, why: str, remedy: str) -> Surroundings:
    """Give names by nss_wrapper where it is installed; else the nodes' own names must do."""
    wrapper = None if node.asked == "full" else _find_wrapper()
    if node.asked is not None and wrapper is None:
        raise ClusterUnfitError(
            f"{node.name} cannot give --view {node.asked}: {why}",
            f"{remedy} Without --view the job runs with less, and says what.".strip(),
        )
    if wrapper is None:
        return Surroundings("off", warning=_warning(node, "off", why, remedy))
    job = node.plan.job
    path = f"{node.folder}/hosts"
    if not node.only_try:
        tree.write_text(job, path, hosts.for_wrapper(text))
    preload = job.env.get("LD_PRELOAD") or node.environment.get("LD_PRELOAD")
    reason = "workers' names by nss_wrapper"
    settings = (
        Setting("LD_PRELOAD", f"{wrapper}:{preload}" if preload else wrapper, reason),
        Setting("NSS_WRAPPER_HOSTS", path, reason),
    )
    warning = _warning(node, "wrapper", why, remedy)
    return Surroundings("hosts", settings=settings, warning=warning)


def _find_wrapper() -> str | None:
    import ctypes  # noqa: PLC0415

    for name in _WRAPPERS:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def _warning(node: _Node, given: str, why: str, remedy: str) -> str:
    """Return what is missing on this node, why, and how to get it; empty where all is there."""
    missing = []
    if node.level == "full" and given != "full":
        missing.append(
            f"the host name {node.instance}; {HOME}, {VOLCANO} and {CACHE} (the MA_ variables"
            " name the real directories)"
        )
    if given == "wrapper":
        missing.append("names for ping and for programs of Go (nss_wrapper gives them to others)")
    if given == "off" and node.plan.contract.names_workers:
        missing.append(
            "workers' names as on ModelArts (VC_WORKER_HOSTS and --init_method hold the nodes' own)"
        )
    elif given == "off":
        missing.append("a hosts file of its own (where DNS does not answer, connecting is slow)")
    if not missing:
        return ""
    lesser = "hosts" if given in ("hosts", "wrapper") else "off"
    enough = "" if lesser == node.asked else f"Give --view {lesser} if that is enough."
    return " ".join(
        filter(
            None,
            (
                f"no {node.level} view on {node.name}: {why}. Missing there:",
                f"{'; '.join(missing)}.",
                remedy,
                enough,
            ),
        )
    )

"""What a job's view holds on one node: names and addresses, directories, files.

Read and put together here; nothing is entered and nothing of the machine is changed.
"""

from __future__ import annotations

import os

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.job.layout import CACHE, HOME, INPUTS, VOLCANO, Layout
from slurm_adapter.network.addresses import HOSTS, read_hosts_file
from slurm_adapter.node.job_files import working_directory
from slurm_adapter.node.system.namespaces import RefusedError
from slurm_adapter.node.view import directories, hosts_file
from slurm_adapter.node.view.mounts import ViewFiles
from slurm_adapter.node.view.view import View
from slurm_adapter.paths import read_text
from slurm_adapter.record import cached_property, record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_adapter.contracts.place import Workers
    from slurm_adapter.job.job import Job
    from slurm_adapter.plan import NodePlan

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
_VARIABLE = r"\$(?:\{(\w+)\}|(\w+))"


@record
class ViewSpec:
    """One node of a job, and what its ranks are to find there."""

    plan: NodePlan
    environment: Mapping[str, str]
    """What the ranks would inherit."""
    only_try: bool
    """Whether no folder is made: only what the node would allow is of interest."""

    @property
    def name(self) -> str:
        """The node's own name."""
        return self.plan.node.name

    @property
    def instance(self) -> str:
        """Its name on ModelArts."""
        return self.plan.workers.instance(self.plan.index)

    @property
    def wanted(self) -> str:
        """The level to try first: what the user asked for, or what the contract is used to."""
        return self.plan.node.view

    @property
    def asked(self) -> str | None:
        """The level that the user asked for."""
        return self.plan.job.view

    @property
    def folder(self) -> str:
        """What is for this node of this run alone, in the job's folder."""
        return self.plan.folder

    def check_names(self) -> None:
        """Raise `ClusterUnfitError` where names do not resolve, or not to where nodes can meet."""
        if not self.plan.addressed:  # simulated nodes are on this machine, and at loopback
            hosts_file.check_addresses(list(self._addresses), list(self._addresses.values()))

    @cached_property
    def _site(self) -> str:
        """The machine's own hosts file."""
        return read_text(HOSTS)

    @cached_property
    def _known(self) -> dict[str, str]:
        """What it says: at ten thousand nodes it is not read twice."""
        return read_hosts_file(self._site)

    @cached_property
    def _addresses(self) -> dict[str, str]:
        """The address of each node by the node's name, in rank order."""
        if self.plan.addressed:
            return {name: str(address) for name, address in self.plan.hosts}
        names = [name for name, _ in self.plan.hosts]
        # One's own name may lead to loopback on the machine itself; the address toward the
        # others is known.
        own = {self.name: self.plan.node.address or ""}
        found = hosts_file.resolve_all(names, {**self._known, **own})
        return dict(zip(names, found, strict=True))

    def hosts_text(self, level: str) -> str:
        """Return the hosts file; under a full view an address leads back to its worker's name."""
        listed = self.plan.addressed
        names = ["" if listed or name in self._known else name for name in self._addresses]
        addresses = list(self._addresses.values())
        first = level == "full"
        workers = self.plan.workers
        return hosts_file.hosts_text(self._site, workers, addresses, names, workers_first=first)

    def open_up(self) -> None:
        """Have directories mounted that are mounted on demand, as far as the job names them.

        Inside the view that works later, too, but only where mounts of the machine are shared.
        """
        for text in self._named:
            for part in text.replace("=", ":").split(":"):
                if part.startswith("/"):
                    os.access(f"{part}/.", os.F_OK)

    def view(self, level: str) -> View:
        """Return the view of a level, its real directories made.

        Raises:
            ClusterUnfitError: where a directory of the job is not there.
            RefusedError: where the user's own home would be covered.
        """
        texts = {HOSTS: self.hosts_text(level)}
        switch = hosts_file.files_first(read_text(hosts_file.SWITCH))
        if switch is not None:
            texts[hosts_file.SWITCH] = switch
        if level == "hosts":
            return View(ViewFiles(texts))
        _check_home(self.environment)
        has_cache = os.path.isdir(CACHE)
        binds = self._binds(has_cache=has_cache)
        named = _homes_in((*self._named, *self.environment.values()))
        files = ViewFiles(
            texts={**texts, **_volcano(self.plan.workers)},
            folders=(HOME, VOLCANO, *(() if has_cache else (CACHE,))),
            binds=() if self.only_try else binds,
            fresh=(INPUTS,),
            homes=named - {".", ".."},
        )
        return View(files, self.instance)

    def write_wrapper_hosts(self) -> None:
        """Write the hosts file that nss_wrapper reads."""
        if not self.only_try:
            job, workers = self.plan.job, self.plan.workers
            text = hosts_file.for_wrapper(self.hosts_text("hosts"))
            directories.write_text(job, workers.wrapper_hosts(job.folder, self.plan.index), text)

    def _binds(self, *, has_cache: bool) -> tuple[tuple[str, str], ...]:
        job = _with_cache(self.plan.job, self.environment)
        mounts = Layout(job, full=True).mounts(job.cache or f"{self.folder}/cache")
        if has_cache and job.cache is None:  # the machine's own is as good
            mounts = tuple(one for one in mounts if one[1] != CACHE)
        if not self.only_try:
            directories.make(job, mounts)
        return mounts

    @cached_property
    def _named(self) -> tuple[str, ...]:
        """Every text in which this job names directories that it will use."""
        job = self.plan.job
        channels = (channel.path for channel in job.channels)
        places = (working_directory(), job.code, job.folder, job.cache or "", *channels)
        searched = (self.environment.get(name, "") for name in _SEARCHED)
        variables = (*job.env.values(), *self.plan.node.env.values())
        return (*places, job.python, *job.words, *variables, *searched)


def _homes_in(texts: Iterable[str]) -> frozenset[str]:
    """Return the entries of /home that texts name, lists of paths among them."""
    behind = [after for text in texts for after in text.split("/home/")[1:]]
    return frozenset(after.partition("/")[0].partition(":")[0] for after in behind) - {""}


def _with_cache(job: Job, environment: Mapping[str, str]) -> Job:
    """Put in the variables of a node's cache."""
    if job.cache is None or "$" not in job.cache:
        return job
    import re  # 4 ms, where there is a variable

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environment.get(name):
            raise ClusterUnfitError(
                f"--cache {job.cache}: {name} is not set on {os.uname().nodename}",
                "Give a path that every node has, or variables that are set there.",
            )
        return environment[name]

    return replace(job, cache=re.sub(_VARIABLE, value, job.cache))


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
        raise RefusedError(0, f"{HOME} is your own home directory here")

"""Starting a job on this machine: N nodes pretended, node i at 127.0.0.(10+i)."""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NamedTuple
from uuid import uuid4

from slurm_adapter.cluster.cluster import Cluster, Node, Run
from slurm_adapter.cluster.counts import VISIBLE_DEVICES, device_list
from slurm_adapter.contracts import get_contract
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.launch.events import Ended, LineSplitter, Output
from slurm_adapter.node import facts, process
from slurm_adapter.node.packages import install, packages_folder, packages_settings
from slurm_adapter.node.program import cannot_run, find_program
from slurm_adapter.node.surround import Surroundings, surround
from slurm_adapter.plan import Plan, RankPlan, make_plan
from slurm_adapter.setting import Setting, unbuffered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from slurm_adapter.job import Job
    from slurm_adapter.launch.events import Event

_FIRST_ADDRESS, _MOST_NODES = 10, 244
_FIRST_PORT, _LAST_PORT = 6666, 32768
_READ_BYTES = 1 << 16
# The largest pipe that an ordinary user may have is 1 MiB (pipe(7)).
_FULL_PIPE_READS = (1 << 20) // _READ_BYTES
_STDERR = 2
_LOOPBACK = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


@dataclass(frozen=True)
class LocalRun:
    """A job that only has to be started here."""

    plan: Plan
    surroundings: tuple[Surroundings, ...]
    """Of each node; empty where ranks get none of their own."""
    warnings: tuple[str, ...]


def prepare_local(job: Job, environment: Mapping[str, str], *, only_try: bool = False) -> LocalRun:
    """Return the plan of a job whose nodes are all this machine, with what its ranks start in.

    Args:
        job: what to run.
        environment: what ranks inherit.
        only_try: make no folder; only show what ranks would get.

    Raises:
        AdapterError: where this machine has too few GPUs, or no port is free.
    """
    plan = _plan(job, environment)
    if job.install_requirements:
        for index in range(job.nodes):
            folder = packages_folder(plan.job.folder, plan.workers, index)
            plan = plan.with_settings(index, packages_settings(plan.job, folder, environment))
    if plan.cluster.nodes[0].view == "off":
        return LocalRun(plan, (), plan.warnings)
    found = [
        surround(plan, index, environment, only_try=only_try)
        for index in range(1 if only_try else job.nodes)
    ]
    plan = plan.with_view(found[0].level)
    for index, surroundings in enumerate(found):
        plan = plan.with_settings(index, surroundings.settings)
    warning = found[0].warning
    return LocalRun(plan, tuple(found), (*plan.warnings, *([warning] if warning else ())))


def install_packages(plan: Plan, environment: Mapping[str, str]) -> None:
    """Install what `pip-requirements.txt` lists, where the user asked for it."""
    if not plan.job.install_requirements:
        return
    for index in range(len(plan.cluster.nodes)):
        rank = next(plan.node_ranks(index))
        inherited = rank.environment(environment)
        python = find_program(plan.job.python, inherited, plan.job.code)
        folder = packages_folder(plan.job.folder, plan.workers, index)
        install(plan.job, folder, python, inherited, output=_STDERR)


def _plan(job: Job, environment: Mapping[str, str]) -> Plan:
    if job.nodes > _MOST_NODES:
        raise BadValueError(
            f"{job.nodes} nodes cannot be pretended on one machine",
            f"Give --nodes {_MOST_NODES} or fewer (127.0.0.10 to 127.0.0.253).",
        )
    job.check_kept(environment)
    nodes = tuple(_nodes(job, environment))
    cluster = Cluster(nodes, "the local run", addressed=True)
    _check_master(job)
    wanted = job.wanted_port(environment)
    if wanted is not None:
        port, reason = wanted
        facts.check_port_free(port, reason)
    else:
        address = str(nodes[0].address)
        port = facts.first_free_port(address, _FIRST_PORT, _LAST_PORT)
        reason = f"the first free one on {address} from {_FIRST_PORT} up"
    ranks = sum(node.tasks or 1 for node in nodes)
    own = (item for item in _settings(ranks) if item.name not in environment)
    settings = (*own, *unbuffered(environment))
    return make_plan(
        job,
        cluster,
        Run(str(uuid4()), port, reason, "ma-job- and a UUID drawn for this run", settings),
    )


def _check_master(job: Job) -> None:
    wanted = job.env.get("MASTER_ADDR")
    if wanted is not None and not facts.is_own_address(wanted):
        raise BadValueError(
            f"MASTER_ADDR={wanted} is no address of this machine, where all ranks run",
            "Leave MASTER_ADDR out.",
        )


def _settings(ranks: int) -> Iterator[Setting]:
    for name in _LOOPBACK:
        yield Setting(name, "lo", "all nodes are on this machine")
    threads = max(1, (os.cpu_count() or 1) // ranks)
    yield Setting("OMP_NUM_THREADS", str(threads), "this machine's cores, shared out")


def _nodes(job: Job, environment: Mapping[str, str]) -> Iterator[Node]:
    variable, devices = _devices(environment)
    share = len(devices) // job.nodes if job.gpus_per_node is None else job.gpus_per_node
    if devices and not share and job.gpus_per_node is None:
        raise ClusterUnfitError(
            f"{job.nodes} nodes cannot share the {len(devices)} GPU(s) of this machine",
            f"Give --nodes {len(devices)} or fewer, or --gpus-per-node 0 to run on the CPU.",
        )
    if devices and share * job.nodes > len(devices):
        raise ClusterUnfitError(
            f"{job.nodes} nodes with {share} GPUs each need {share * job.nodes}, this machine has"
            f" {len(devices)}",
            f"Give --gpus-per-node {len(devices) // job.nodes}, or fewer nodes.",
        )
    contract = get_contract(job.contract)
    view = job.view or contract.default_view(1)  # the ranks of a node share what it gives
    for index in range(job.nodes):
        mine = ",".join(devices[index * share : (index + 1) * share])
        why = "this machine's GPUs, shared out" if devices else "pretended: this machine has none"
        settings = (Setting(variable, mine, why),) if devices else ()
        yield Node(
            f"node{index}",
            address=f"127.0.0.{_FIRST_ADDRESS + index}",
            gpus=share,
            gpus_reason=why if share or devices else "this machine has no GPU",
            settings=settings,
            view=view,
        )


def _devices(environment: Mapping[str, str]) -> tuple[str, list[str]]:
    for name in VISIBLE_DEVICES:
        if name in environment:
            return name, device_list(environment[name])
    return VISIBLE_DEVICES[0], [str(number) for number in range(facts.count_accelerators())]


class _Pipe(NamedTuple):
    rank: int
    is_error: bool
    splitter: LineSplitter


class LocalFleet:
    """The ranks as children of this process, each in a session of its own."""

    def __init__(self, run: LocalRun, environment: Mapping[str, str]) -> None:
        process.become_subreaper()
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._selector.register(woken, selectors.EVENT_READ)
        # Not pidfd_open, which kernels of many clusters are too old for.
        self._before = signal.signal(signal.SIGCHLD, lambda *_: self.wake())
        starts = [_Start(run, rank, environment) for rank in run.plan.ranks()]
        try:
            for start in starts:
                self._add(start)
        except BaseException:
            self.send(signal.SIGKILL)
            raise
        finally:
            for surroundings in run.surroundings:
                if surroundings.entry is not None:
                    surroundings.entry.close()

    def _add(self, start: _Start) -> None:
        child = start.run()
        self._children[start.rank.rank] = child
        for stream, is_error in ((child.stdout, False), (child.stderr, True)):
            if stream is not None:
                pipe = _Pipe(start.rank.rank, is_error, LineSplitter())
                self._selector.register(_own_descriptor(stream), selectors.EVENT_READ, pipe)

    def events(self, limit_s: float) -> Iterator[Event]:
        """Yield what happened: output first, so that a rank's last words stand before its end."""
        ready = [key for key, _ in self._selector.select(limit_s)]
        for key in ready:
            if isinstance(key.data, _Pipe):
                yield from self._read(key)
        for key in ready:
            if key.data is None:
                os.read(key.fd, _READ_BYTES)
        if len(ready) == 0 or any(key.data is None for key in ready):
            yield from self._ended()

    def _read(self, key: selectors.SelectorKey) -> list[Event]:
        """Return the lines that one read completes; at its end the pipe is let go."""
        pipe: _Pipe = key.data
        try:
            data = os.read(key.fd, _READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            return self._let_go(key)
        return [Output(pipe.rank, line, pipe.is_error) for line in pipe.splitter.feed(data)]

    def _read_all(self, key: selectors.SelectorKey) -> Iterator[Event]:
        """Yield what stands in a pipe now; a rank's children may go on writing into it."""
        waiting = select.poll()
        waiting.register(key.fd, select.POLLIN)
        for _ in range(_FULL_PIPE_READS):
            if key.fd not in self._selector.get_map() or not waiting.poll(0):
                return
            yield from self._read(key)

    def _let_go(self, key: selectors.SelectorKey) -> list[Event]:
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        pipe: _Pipe = key.data
        return [Output(pipe.rank, line, pipe.is_error) for line in pipe.splitter.finish()]

    def _pipes(self) -> list[selectors.SelectorKey]:
        keys = self._selector.get_map().values()
        return [key for key in keys if isinstance(key.data, _Pipe)]

    def _ended(self) -> Iterator[Event]:
        for rank, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            for pipe in self._pipes():
                if pipe.data.rank == rank:
                    yield from self._read_all(pipe)
            del self._children[rank]
            yield Ended(rank, code if code >= 0 else 128 - code)

    def running(self) -> set[int]:
        """Return the ranks that have not ended."""
        return set(self._children)

    def remains(self) -> bool:
        """Say whether any descendant lives."""
        return bool(process.descendants(os.getpid()))

    def send(self, number: int) -> None:
        """Send a signal to all descendants, whatever session they are in."""
        process.send(process.descendants(os.getpid()), number)

    def wake(self) -> None:
        """Make `events` return now; after `close` there is nothing to wake."""
        with suppress(OSError):
            os.write(self._waker, b"!")

    def close(self) -> Iterator[Event]:
        """Yield what is left in the pipes and close everything."""
        for pipe in self._pipes():
            yield from self._read_all(pipe)
        for pipe in self._pipes():
            yield from self._let_go(pipe)
        signal.signal(signal.SIGCHLD, self._before)
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        os.close(self._waker)
        self._selector.close()


def _own_descriptor(stream: IO[bytes]) -> int:
    """Return a non-blocking descriptor of ours; the stream object is closed."""
    descriptor = os.dup(stream.fileno())
    stream.close()
    os.set_blocking(descriptor, False)
    return descriptor


class _Start:
    """One rank's start, checked whole before any rank is started."""

    def __init__(self, run: LocalRun, rank: RankPlan, inherited: Mapping[str, str]) -> None:
        self.rank = rank
        self._entry = run.surroundings[rank.node_index].entry if run.surroundings else None
        self._environment = rank.environment(inherited)
        self._words = rank.words
        self._words[0] = find_program(self._words[0], self._environment, rank.cwd.value)
        self._cwd = rank.cwd.value

    def run(self) -> subprocess.Popen[bytes]:
        """Start it."""
        try:
            return subprocess.Popen(
                self._words,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=self._settle(),  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            raise cannot_run(self._words[0], error) from error
        except subprocess.SubprocessError as error:
            raise ClusterUnfitError(
                f"{self.rank.node.name} cannot enter {self._cwd}",
                "The directory must be there and readable.",
            ) from error

    def _settle(self) -> Callable[[], None]:
        """Return what the child does before it becomes the rank."""
        die_with_parent = process.dying_with_parent()

        def settle() -> None:
            die_with_parent()
            if self._entry is not None:
                self._entry.enter()
            os.chdir(self._cwd)

        return settle

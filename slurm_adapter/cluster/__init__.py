"""Which nodes there are, in rank order: what contracts and the plan are told about machines."""

from __future__ import annotations

from slurm_adapter.record import cached_property, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.setting import Setting


class Variables(dict[str, str]):
    """A node's own variables: a dictionary that is never changed, hence can be in a record."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@record
class Node:
    """One machine of the job."""

    name: str
    """Its name, as the cluster calls it."""
    address: str | None = None
    """What the other nodes reach it by (an IP address), None while that is not known. Where a
    host list gives it, ssh is given it too."""
    gpus: int | None = None
    """Accelerators the job has on it, None where nothing says."""
    gpus_reason: str = ""
    """Where `gpus` comes from."""
    tasks: int | None = None
    """Tasks that Slurm starts on it, None outside a step: the contract decides."""
    settings: tuple[Setting, ...] = ()
    """Variables that belong to this node, e.g. which devices are its own."""
    overriding: tuple[Setting, ...] = ()
    """Variables that take account of all others, the user's own among them, and win over them."""
    address_reason: str = "this node's address toward the other nodes"
    """Where `address` comes from."""
    view: str = "off"
    """What its ranks find around them: `full`, `hosts` (workers' names resolve) or `off`."""
    user: str | None = None
    """Whom ssh logs in as, None: as the user's ssh would."""
    port: int | None = None
    """Where its ssh server listens, None: as the user's ssh would ask."""
    slots: int | None = None
    """Ranks or GPUs that the user counts on it, None where the host list does not say."""
    python: str | None = None
    """Its interpreter, a path or a name in its PATH; None: the job's."""
    interface: str | None = None
    """The network interface it reaches the other nodes by, None where the user does not say."""
    env: Mapping[str, str] = Variables()
    """Variables that the user sets for its ranks alone; they win over the job's own."""
    part: int | None = None
    """Which component of a heterogeneous job it is in; None in any other."""

    @property
    def reached_by(self) -> str:
        """The name or address under which a script is told to reach this node."""
        return self.name if self.address is None else self.address


@record
class Cluster:
    """The nodes in rank order, and where the list comes from."""

    nodes: tuple[Node, ...]
    source: str
    """Said in reasons, e.g. `step 12.0` or `the local run`."""
    known: bool = True
    """False where the names are placeholders because Slurm has not chosen nodes yet."""
    addressed: bool = False
    """True where scripts reach nodes by `Node.address` rather than by name."""

    def host(self, index: int) -> str:
        """Return what stands for node `index` in host lists and in `tcp://HOST:PORT`."""
        node = self.nodes[index]
        return node.reached_by if self.addressed else node.name

    @cached_property
    def host_list(self) -> str:
        """All hosts in rank order, separated by commas."""
        return ",".join(map(self.host, range(len(self.nodes))))


@record
class Run:
    """What tells this run from others: known only once it starts, hence apart from the job.

    None stands for "not known yet"; a plan then shows a placeholder and says why.
    """

    uuid: str | None = None
    """A UUID, the same on every node; `MA_VJ_NAME` is `ma-job-<uuid>`."""
    port: int | None = None
    """The rendezvous port on the node of rank 0."""
    port_reason: str = "10000 to 32767, from the job id and the step id once the step runs"
    uuid_reason: str = "ma-job- and a UUID that all nodes derive from the run alike"
    settings: tuple[Setting, ...] = ()
    """Variables that the way of starting adds for every rank, unless the user set them."""

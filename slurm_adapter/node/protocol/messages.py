"""What the head asks of an agent, and what an agent tells: a record for each message.

Here are those of a job's ranks, and those that all requests share. Those of a copy of the code
(`copy_messages`) and of a login node (`login_messages`) lie beside, and are loaded when needed.
"""

from __future__ import annotations

from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_adapter.job.job import Job


class Request:
    """From the head."""


class AgentMessage:
    """From an agent. Fields are of what JSON has: the head checks them, see `checked`."""


# Bytes, both ways.


@record
class Data(Request, AgentMessage):
    """A piece of a file or of a command's output; an empty one ends it."""

    number: int
    """Of which: what goes before says what is counted."""
    piece: bytes


@record
class Beat(Request, AgentMessage):
    """Still here."""


# A job's ranks, from the head.


@record
class Look(Request):
    """Look at this node before anything starts; answered by warnings, then `Facts`."""

    job: Job
    name: str
    """The node's, as the host list has it."""
    address: str | None
    """The host list's, None where it gives none."""
    python: str | None
    """Likewise."""
    several: bool
    """Whether the job has other nodes."""
    code: bool
    """Whether the code must be here by now."""
    copy: str | None
    """Which version of the copy at the code's place is meant, None where that is no copy."""
    first: bool
    """Whether rank 0 runs here."""
    port: tuple[int, str] | None
    """What the user chose, and where."""
    run: str
    """The run's UUID."""
    detached: bool
    """Whether it outlives the head."""
    grace_s: float
    """From TERM to KILL, where the head cannot say any more."""
    link_s: float
    """Silence after which the head is taken for lost."""


@record
class TryConnections(Request):
    """Connect to other nodes; answered by `Tried`."""

    tries: tuple[tuple[str, str, int], ...]
    """This node's own address, the peer's address, the peer's port."""


@record
class TakePlan(Request):
    """Have everything ready for the ranks; answered by `Ready`.

    Sent again, with the plan for that, where a node gives less than the first one counts on.
    """

    plan: bytes
    """The node's part of it, as `records.pack_plans` has it."""
    only_try: bool
    """Whether to make nothing: only what the node would give is of interest."""


@record
class Go(Request):
    """Start the ranks; answered by `Begun`."""


@record
class Stop(Request):
    """End everything: TERM, and KILL after the grace."""

    grace_s: float


@record
class Kill(Request):
    """End everything at once."""


@record
class Follow(Request):
    """Tell what a detached run has written and how its ranks ended; answered by `Following`."""

    run: str
    index: int
    """The node's in that run."""
    ranks: tuple[int, ...]
    stay: bool
    """Whether to go on until all has ended."""
    output: bool
    """Whether to send what ranks have written, or only how they ended."""
    link_s: float
    """Silence after which the head is taken for lost."""


# A job's ranks, from an agent.


@record
class Facts(AgentMessage):
    """What a node is."""

    address: str
    gpus: int
    clock_s: float
    """The moment on its monotonic clock."""
    host: str
    """What it calls itself."""
    port: int | None = None
    """A free one, on the first node where the user chose none."""
    network: str | None = None
    """A `network.report.Report` as JSON, where the job has nodes on other machines."""


@record
class Tried(AgentMessage):
    """For each connection why it did not work, empty where it did."""

    reasons: tuple[str, ...]


@record
class Ready(AgentMessage):
    """All is prepared for the ranks."""

    view: str
    """The level that they get."""
    wrapper: str
    """The library by which names resolve where no namespaces are to be had; empty: none."""
    own_values: tuple[tuple[str, str], ...]
    """What the node puts into the plan's holes, by variable."""


@record
class Begun(AgentMessage):
    """The ranks run."""


@record
class Following(AgentMessage):
    """The run is known; its output and ends come next."""

    clock_s: float
    """As in `Facts`."""


@record
class UpToDate(AgentMessage):
    """All that there was of a run that goes on has been told; the agent ends."""


@record
class RankOutput(AgentMessage):
    """Whole lines of a rank."""

    rank: int
    lines: bytes
    is_error: bool


@record
class RankEnded(AgentMessage):
    """A rank is gone."""

    rank: int
    status: int
    """Exit status, 128 + N where signal N ended it."""
    at_s: float
    """When, on the monotonic clock of the agent's machine."""


@record
class Gone(AgentMessage):
    """The job is gone from this node; the agent ends."""

    left: str
    """What could not be ended, as text."""


@record
class Warned(AgentMessage):
    """A line for the user."""

    text: str


@record
class Unfit(AgentMessage):
    """An error; the agent ends."""

    status: int
    """The exit status that the command has for it."""
    found: str
    remedy: str


# What all other requests share, from an agent.


@record
class RequestDone(AgentMessage):
    """What was asked for is done."""


@record
class Refused(AgentMessage):
    """It cannot be done; the agent goes on."""

    found: str
    remedy: str

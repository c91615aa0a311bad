"""A node that speaks nonsense is lost, and nothing but that: the head goes on."""

import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from localconnection import LocalConnection, end_let_go
from slurm_adapter.cluster import Node
from slurm_adapter.job.job import Command, Job
from slurm_adapter.launch.ssh.fleet import AgentFleet, Timing
from slurm_adapter.launch.ssh.start import look_around, start
from slurm_adapter.node.protocol.encoding import agent_frame
from slurm_adapter.node.protocol.framing import ENDED, MESSAGE, OUTPUT, frame
from slurm_adapter.node.protocol.messages import RankEnded, RankOutput, Warned
from slurm_adapter.node.ranks.events import Ended, Lost
from slurm_adapter.remote.agent import Agent
from slurm_adapter.remote.agent_archive import agent_files
from steps import SCRIPTS

RUN = "511cdec0-1708-4c48-b305-c741f35c9a75"


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_let_go()


def told(text: str) -> bytes:
    """Return JSON as an agent would send it."""
    return frame(MESSAGE, text.encode("latin-1"))


def fleet_of(hostile: bytes, folder: Path, heard: list[str]) -> AgentFleet:
    """Return a fleet of one begun agent, which is about to send these bytes."""
    rest = len(agent_files().first.partition(b"\n")[2])
    environment = {"HOSTILE": hostile.hex(), "REST": str(rest), "PATH": "/usr/bin:/bin"}
    connection = LocalConnection(Node("n1"), environment=environment)
    agent = Agent(connection, 0, str(SCRIPTS / "hostile_agent.py"), RUN)
    agent.begin(agent_files(), 60.0)
    fleet = AgentFleet([agent], Timing(10.0, 60.0), heard.append)
    job = Job(Command("true"), code=str(folder), folder=f"{folder}/jobs", contract="env")
    plan, network = look_around(job, [Node("n1")], fleet, RUN, {})
    assert network == []
    start(plan, fleet)
    agent.beat()
    return fleet


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(agent_frame(RankOutput(99, b"line\n", is_error=False)), id="another's output"),
        pytest.param(frame(OUTPUT, b"\0"), id="output that is too short"),
        pytest.param(agent_frame(RankEnded(7, 0, 1.0)), id="the end of another's rank"),
        pytest.param(frame(ENDED, b"\0"), id="an end that is too short"),
        pytest.param(frame(b"?"), id="a frame of no kind"),
        pytest.param(told('["messages.Unfit", {"status": 3}]'), id="an error without its parts"),
        pytest.param(told('["messages.Gone", {"left": 5}]'), id="a number for a text"),
        pytest.param(told('["messages.Gone", {"left": "", "x": 1}]'), id="more than there is"),
        pytest.param(told('["messages.Following", {"clock_s": NaN}]'), id="not a number"),
        pytest.param(told('["copy_messages.Signs", {"seen": [0, "1"]}]'), id="a text in numbers"),
        pytest.param(told('["messages.Kill", {}]'), id="what only a head says"),
        pytest.param(told('["os.system", {}]'), id="a name that is none of ours"),
        pytest.param(told("[" * 20_000), id="depth without end"),
        pytest.param(told("\xff"), id="no JSON"),
        pytest.param(struct.pack(">IB", 1 << 31, 79), id="a message without end"),
    ],
)
def test_it_is_lost(tmp_path: Path, hostile: bytes) -> None:
    fleet = fleet_of(hostile, tmp_path, [])
    found = []
    while fleet.remains():
        found += list(fleet.events(60.0))
    fleet.close()
    (lost,) = found
    assert isinstance(lost, Lost)
    assert (lost.node_index, lost.ranks, lost.status) == (0, (0,), 4)


def test_what_it_warns_of_moves_no_cursor(tmp_path: Path) -> None:
    heard: list[str] = []
    hostile = agent_frame(Warned("\x1b[2Jlook")) + agent_frame(RankEnded(0, 3, 1.0))
    fleet = fleet_of(hostile, tmp_path, heard)
    (ended,) = fleet.events(60.0)
    assert isinstance(ended, Ended)
    assert (ended.rank, ended.status, heard) == (0, 3, ["\\x1b[2Jlook"])
    fleet.send(signal.SIGKILL)
    fleet.close()

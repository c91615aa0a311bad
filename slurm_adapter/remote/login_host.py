"""A login node as the submit host: one SSH connection, and one agent at its other end.

Nothing is installed there: the agent brings its code, and needs a Python. What it is asked for,
variables and secrets among it, travels in messages, never on a command line.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from slurm_adapter.cluster.hosts import read_host_list
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.job.remote_paths import HOME
from slurm_adapter.node.protocol.login_messages import (
    FilesRead,
    FindPath,
    FindProgram,
    Found,
    LoginOpened,
    MakeFolder,
    OpenLogin,
    Ran,
    ReadFiles,
    RemoveFolder,
    RunProgram,
    WriteFile,
)
from slurm_adapter.node.protocol.messages import RequestDone
from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.agent import Agent
from slurm_adapter.remote.agent_archive import agent_files, agent_words
from slurm_adapter.remote.requests import NoReplyError, RequestError, Requests
from slurm_adapter.remote.submit_host import NOTHING, Done
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.port import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from slurm_adapter.cluster import Node
    from slurm_adapter.node.protocol.login_messages import LoginRequest
    from slurm_adapter.node.protocol.messages import AgentMessage
    from slurm_adapter.remote.transport.port import Connection

T = TypeVar("T", bound="AgentMessage")

CONNECT_S = 60.0
_PATIENCE_S = 90.0
_BEGIN_S = 120.0
"""What finding an interpreter and starting it may take: login shells can be slow."""
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)), "python")
_MARK = "slurm-adapter-python "
_CHECK = (
    "import sys; sys.exit(1) if sys.version_info < (3, 10) else"
    f' sys.stdout.write("\\n{_MARK}%s\\n" % sys.executable)'
)
# Found at hand, else in a login shell; run by the session's own shell, its environment unchanged.
_FIND_AND_RUN = (
    'found=$( { (eval "$1") || bash -l -c "$1"; } < /dev/null 2> /dev/null'
    f" | sed -n 's/^{_MARK}//p' | tail -n 1);"
    ' [ -n "$found" ] || exit 127; shift; exec "$found" "$@"'
)


class LoginHost:
    """A login node."""

    def __init__(self, login: str, agent: Agent) -> None:
        """Take over what `open_login` has opened."""
        self.login, self.agent = login, agent
        self._requests = Requests(agent, _PATIENCE_S)
        opened = self._ask(OpenLogin(), LoginOpened)
        self.home, self.python = opened.home, opened.python

    def has(self, program: str) -> bool:
        """See `SubmitHost.has`."""
        return self._ask(FindProgram(program), Found).found

    def run(
        self,
        words: Sequence[str],
        more: Mapping[str, str] = NOTHING,
        without: Collection[str] = (),
        data: bytes | None = None,
        limit_s: float | None = None,
    ) -> Done:
        """See `SubmitHost.run`."""
        request = RunProgram(
            tuple(map(os.fsencode, words)),
            {name: os.fsencode(value) for name, value in more.items()},
            tuple(without),
            data,
            limit_s,
        )
        ran, written = self._ask_for_data(request, Ran)
        if ran.how == "missing":
            raise FileNotFoundError(words[0])
        if ran.how == "late":
            raise TimeoutError(words[0])
        out, error = (written.get(number, b"").decode(errors="replace") for number in (0, 1))
        return Done(ran.status, out, error)

    def make_folder(self, path: str) -> None:
        """See `SubmitHost.make_folder`."""
        self._ask(MakeFolder(os.fsencode(path)), RequestDone)

    def write(self, path: str, data: bytes) -> None:
        """See `SubmitHost.write`."""
        self._ask(WriteFile(os.fsencode(path), data), RequestDone)

    def read(self, places: Sequence[tuple[str, int]]) -> list[tuple[int, bytes]]:
        """See `SubmitHost.read`."""
        if not places:
            return []
        request = ReadFiles(tuple((os.fsencode(path), offset) for path, offset in places))
        read, pieces = self._ask_for_data(request, FilesRead)
        if len(read.offsets) != len(places):
            raise ClusterUnfitError(f"{self.login}: what it sends makes no sense")
        return [(offset, pieces.get(number, b"")) for number, offset in enumerate(read.offsets)]

    def exists(self, path: str) -> bool:
        """See `SubmitHost.exists`."""
        return self._ask(FindPath(os.fsencode(path)), Found).found

    def remove(self, path: str) -> None:
        """See `SubmitHost.remove`."""
        self._ask(RemoveFolder(os.fsencode(path)), RequestDone)

    def close(self) -> None:
        """See `SubmitHost.close`."""
        self.agent.close()

    def _ask(self, request: LoginRequest, answer: type[T]) -> T:
        return self._ask_for_data(request, answer)[0]

    def _ask_for_data(self, request: LoginRequest, answer: type[T]) -> tuple[T, dict[int, bytes]]:
        try:
            return self._requests.ask_for_data(request, answer)
        except NoReplyError as error:
            raise ConnectionLostError(f"{self.login}: {error}") from error
        except RequestError as error:
            remedy = error.remedy or "--job-folder DIR names another place there."
            raise ClusterUnfitError(f"{self.login}: {error}", remedy) from error


def open_login(
    login: str, say: Callable[[str], None], python: str = "", limit_s: float = CONNECT_S
) -> LoginHost:
    """Connect to a login node as `ssh` would.

    Args:
        login: `[user@]host`, as on the command line.
        say: gets warnings.
        python: an interpreter there to try before others, `remote_paths.HOME` in it perhaps.
        limit_s: the most seconds for all attempts.

    Raises:
        UnreachableError: with the reason and the remedy.
        BadValueError: that is no login node.
    """
    node = read_login(login)
    files = agent_files()

    def begin(connection: Connection, index: int) -> LoginHost:
        agent = _LoginAgent(connection, index, node.python or python, str(uuid4()))
        agent.begin(files, _BEGIN_S)
        return LoginHost(login, agent)

    return connect_all([node], begin, retry_s=limit_s, say=say).all()[0]


def read_login(login: str) -> Node:
    """Return the one machine that `--login` names.

    Raises:
        BadValueError: it names none, or more than one, or a port where slots stand.
    """
    nodes = read_host_list([login], "--login").nodes
    if len(nodes) != 1 or nodes[0].slots is not None:
        raise BadValueError(
            f"--login {login} does not name one machine",
            "Write [user@]host; a port goes into ~/.ssh/config.",
        )
    return nodes[0]


class _LoginAgent(Agent):
    """One whose interpreter is looked for, in the very session that it then runs in."""

    def _command(self, run: str) -> str:
        names = shell_words(_PYTHONS)
        if self.python:
            at_home = self.python.startswith(f"{HOME}/")
            first = shell_words([self.python.removeprefix(HOME) if at_home else self.python])
            home = '"$HOME"' if at_home else ""
            names = f"{home}{first} {names}"
        find = (
            f'for one in {names}; do "$one" -I -S -c {shell_words([_CHECK])} && exit; done; exit 1'
        )
        return shell_words(["exec", "sh", "-c", _FIND_AND_RUN, "sh", find, *agent_words(run)])

    def _no_interpreter(self) -> ClusterUnfitError:
        return ClusterUnfitError(
            f"{self.name}: it has no Python 3.10 or later on its PATH",
            "Name one there: --python /path/to/python3, or have ~/.bash_profile there put one on"
            " PATH.",
        )

"""A login node as the submit host: one SSH connection, and a small server of ours at its other end.

Nothing is installed there: the server is sent as text, and needs a Python. What it is asked for,
variables and secrets among it, travels in the conversation, never on a command line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from slurm_adapter import errors
from slurm_adapter.cluster.hosts import read_host_list
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.job.remote_paths import HOME
from slurm_adapter.node.agent import basis, code_copy, copy_lock, requests
from slurm_adapter.node.agent import login as submit_host
from slurm_adapter.node.system import files
from slurm_adapter.quoting import shell_words
from slurm_adapter.remote.conversation import Conversation, SilentError, ToldError, program_of
from slurm_adapter.remote.submit_host import NOTHING, Done
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.port import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from slurm_adapter.cluster import Node
    from slurm_adapter.remote.transport.port import Connection

CONNECT_S = 60.0
_PATIENCE_S = 90.0
_FIND_S = 60.0
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)), "python")
_MARK = "slurm-adapter-python "
_CHECK = (
    "import sys; sys.exit(1) if sys.version_info < (3, 10) else"
    f' sys.stdout.write("\\n{_MARK}%s\\n" % sys.executable)'
)


@dataclass(frozen=True)
class Opened:
    """What a connection to a login node came to."""

    connection: Connection
    python: str
    home: str
    conversation: Conversation


class LoginHost:
    """A login node."""

    def __init__(self, login: str, opened: Opened) -> None:
        """Take over what `open_login` has opened."""
        self.login, self.home, self.python = login, opened.home, opened.python
        self.connection = opened.connection
        self._conversation = opened.conversation

    def has(self, program: str) -> bool:
        """See `SubmitHost.has`."""
        return bool(self._ask("has", program=program)["found"])

    def run(
        self,
        words: Sequence[str],
        more: Mapping[str, str] = NOTHING,
        without: Collection[str] = (),
        data: bytes | None = None,
        limit_s: float | None = None,
    ) -> Done:
        """See `SubmitHost.run`."""
        answer = self._ask(
            "run",
            words=list(map(_sent, words)),
            more={name: _sent(value) for name, value in more.items()},
            without=sorted(without),
            data=None if data is None else data.decode("utf-8", "surrogateescape"),
            limit_s=limit_s,
        )
        if "lacks" in answer:
            raise FileNotFoundError(words[0])
        if "late" in answer:
            raise TimeoutError(words[0])
        return Done(
            answer["status"],
            *(_bytes(answer[end]).decode(errors="replace") for end in ("out", "err")),
        )

    def make_folder(self, path: str) -> None:
        """See `SubmitHost.make_folder`."""
        self._ask("make", folder=_sent(path))

    def write(self, path: str, data: bytes) -> None:
        """See `SubmitHost.write`."""
        self._ask("write", path=_sent(path), data=data.decode("latin-1"))

    def read(self, places: Sequence[tuple[str, int]]) -> list[tuple[int, bytes]]:
        """See `SubmitHost.read`."""
        if not places:
            return []
        sent = [(_sent(path), offset) for path, offset in places]
        return [(offset, _bytes(text)) for offset, text in self._ask("read", places=sent)["pieces"]]

    def exists(self, path: str) -> bool:
        """See `SubmitHost.exists`."""
        return bool(self._ask("exists", path=_sent(path))["found"])

    def remove(self, path: str) -> None:
        """See `SubmitHost.remove`."""
        self._ask("remove", path=_sent(path))

    def close(self) -> None:
        """See `SubmitHost.close`."""
        self._conversation.close()
        self.connection.close()

    def _ask(self, what: str, **details: object) -> dict[str, Any]:
        try:
            answer = self._conversation.ask(what, **details)
        except SilentError as error:
            raise ConnectionLostError(f"{self.login}: {error}") from error
        except ToldError as error:
            raise ClusterUnfitError(f"{self.login}: {error}", error.remedy) from error
        if failed := answer.get("failed"):
            remedy = failed.get("remedy") or "--job-folder DIR names another place there."
            raise ClusterUnfitError(f"{self.login}: {failed['error']}", remedy)
        return answer


def open_login(
    login: str, say: Callable[[str], None], python: str = "", limit_s: float = CONNECT_S
) -> LoginHost:
    """Connect to a login node as `ssh` would.

    Args:
        login: `[user@]host`, as on the command line.
        say: gets warnings.
        python: an interpreter there to try before others, `elsewhere.HOME` in it perhaps.
        limit_s: the most seconds for all attempts.

    Raises:
        UnreachableError: with the reason and the remedy.
        BadValueError: that is no login node.
    """
    node = read_login(login)

    def begin(connection: Connection, index: int) -> Opened:
        del index
        return _begin(connection, login, node.python or python)

    return LoginHost(login, connect_all([node], begin, retry_s=limit_s, say=say).all()[0])


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


def _begin(connection: Connection, login: str, python: str) -> Opened:
    """Find an interpreter and have it answer."""
    found = _find_python(connection, login, python)
    conversation = Conversation(connection, found, _program(), [], _PATIENCE_S)
    try:
        conversation.start()
        answer = conversation.ask("begin")
    except ToldError as error:
        raise ClusterUnfitError(f"{login}: {error}", error.remedy) from error
    return Opened(connection, found, answer["home"], conversation)


def _find_python(connection: Connection, login: str, python: str) -> str:
    """Return the path of a Python that is new enough: one at hand, else one of a login shell."""
    names = shell_words(_PYTHONS)
    if python:
        at_home = python.startswith(f"{HOME}/")
        first = shell_words([python.removeprefix(HOME) if at_home else python])
        home = '"$HOME"' if at_home else ""
        names = f"{home}{first} {names}"
    find = (
        f'for one in {names}; do "$one" -I -S -c {shell_words([_CHECK])} 2> /dev/null && exit; done'
    )
    both = 'eval "$1"; exec bash -l -c "$1"'
    answer = connection.run(shell_words(["sh", "-c", both, "sh", find]), limit_s=_FIND_S)
    lines = answer.output.decode(errors="surrogateescape").split("\n")
    paths = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    if not paths:
        raise ClusterUnfitError(
            f"{login}: it has no Python 3.10 or later on its PATH",
            "Name one there: --python /path/to/python3, or have ~/.bash_profile there put one on"
            " PATH.",
        )
    return paths[-1]


@cache
def _program() -> bytes:
    return program_of(errors, files, copy_lock, basis, code_copy, requests, submit_host)


def _sent(text: str) -> str:
    """Return a path or value as JSON takes it, whatever bytes it holds."""
    return os.fsencode(text).decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")

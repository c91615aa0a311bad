"""Ask ssh what it would do for each host (SSH-05): Include, Match and the rest mean what they mean.

Nothing here reads a value out of a config file: the ssh client does.
"""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.connect.hostblocks import read_host_blocks
from slurm_adapter.connect.settings import parse_options, read_settings
from slurm_adapter.errors import BadValueError, ClusterUnfitError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.cluster.cluster import Node
    from slurm_adapter.connect.hostblocks import HostBlocks
    from slurm_adapter.connect.settings import Settings

CONFIG_VARIABLE = "SLURM_ADAPTER_SSH_CONFIG"
_LIMIT_S = 30.0
_Options = dict[str, list[str]]


class SshConfig:
    """The effective settings of hosts; asked by several threads at once.

    Args:
        config_file: as with `ssh -F`; None for what SLURM_ADAPTER_SSH_CONFIG names, and where
            that is not set, for the user's own and the system's.
        environment: of the user.
    """

    def __init__(
        self, config_file: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = os.environ if environment is None else environment
        named = self._environment.get(CONFIG_VARIABLE)
        self._file = Path(named) if config_file is None and named else config_file
        self._lock = threading.Lock()
        self._blocks: HostBlocks | None = None
        self._blocks_read = False
        self._groups: dict[object, _Group] = {}

    def settings(self, node: Node) -> Settings:
        """Return the settings for a node; its own user, port and address win.

        Raises:
            BadValueError: its name could be taken for an option, or the config is broken: then
                with ssh's own words, which name file and line.
            ClusterUnfitError: there is no ssh client.
        """
        check_host_name(node.name)
        options = self._options(node)
        if node.address is not None:
            options = {**options, "hostname": [node.address]}
        return read_settings(node.name, options, self._environment)

    def _options(self, node: Node) -> _Options:
        with self._lock:
            if not self._blocks_read:
                self._blocks, self._blocks_read = read_host_blocks(self._file), True
            if self._blocks is None:
                group = None
            else:
                key = (self._blocks.signature(node.name), node.user, node.port)
                group = self._groups.setdefault(key, _Group())
        if group is None:
            return self._ask(node)
        with group.lock:
            answer = group.answer(node.name)
            if answer is None and not group.learned:
                answer = self._ask(node)
                group.learn(node.name, answer)
        return self._ask(node) if answer is None else answer

    def _ask(self, node: Node) -> _Options:
        words = ["ssh", "-G"]
        words += ["-F", str(self._file)] if self._file is not None else []
        words += ["-p", str(node.port)] if node.port is not None else []
        words += ["-l", node.user] if node.user is not None else []
        try:
            done = subprocess.run(
                [*words, "--", node.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_LIMIT_S,
                env=dict(self._environment),
            )
        except FileNotFoundError as error:
            raise ClusterUnfitError(
                "there is no ssh client here, which knows how each host is reached",
                "Install it: apt-get install openssh-client, or dnf install openssh-clients.",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise BadValueError(
                "ssh does not come to an end reading its config",
                f"A `Match exec` in it may hang: run `ssh -G {node.name}` to see.",
            ) from error
        if done.returncode != 0:
            raise BadValueError(
                f"ssh does not take its config: {_complaint(done.stderr)}",
                f"Correct that; `ssh -G {node.name}` shows whether it worked.",
            )
        return parse_options(done.stdout.decode(errors="surrogateescape"))


class _Group:
    """Hosts that a config treats alike, and what two of them have shown about all.

    The first two are asked about. Where their answers differ in nothing but the host's own name
    at its known places, the others' answers follow; otherwise each is asked about.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._first: tuple[str, _Options] | None = None
        self._rule: tuple[str, str] | None = None
        self._asked = 0

    @property
    def learned(self) -> bool:
        """Whether both have been asked about: there is nothing more to find out."""
        return self._asked > 1

    def answer(self, name: str) -> _Options | None:
        """Return what ssh would say about one more host, None where it has to be asked."""
        if self._first is None or self._rule is None:
            return None
        before, after = self._rule
        _, options = self._first
        return {**options, "host": [name], "hostname": [f"{before}{name.lower()}{after}"]}

    def learn(self, name: str, options: _Options) -> None:
        """Take in what ssh has said about a host."""
        self._asked += 1
        if self._first is None:
            self._first = (name, options)
        else:
            self._rule = _rule(*self._first, name, options)


def _rule(one: str, first: _Options, two: str, second: _Options) -> tuple[str, str] | None:
    """Return what stands before and after the name in HostName, None where that is not all."""
    own = {"host", "hostname"}
    if {key: first[key] for key in first.keys() - own} != {
        key: second[key] for key in second.keys() - own
    }:
        return None
    for before, _, after in _splits(first["hostname"][-1], one.lower()):
        if second["hostname"] == [f"{before}{two.lower()}{after}"]:
            return before, after
    return None


def _splits(text: str, name: str) -> list[tuple[str, str, str]]:
    places = [i for i in range(len(text)) if text.startswith(name, i)]
    return [(text[:i], name, text[i + len(name) :]) for i in places]


def check_host_name(name: str) -> None:
    """Refuse a name that ssh could take for an option, or that no host can have.

    Raises:
        BadValueError: it starts with `-`, is empty, or holds blanks or control characters.
    """
    if name.startswith("-"):
        raise BadValueError(
            f"{name!r} is not a host name: it would be an option to ssh",
            "Take it out of the host list.",
        )
    if not name or not name.isprintable() or any(letter.isspace() for letter in name):
        raise BadValueError(f"{name!r} is not a host name", "Correct it in the host list.")


def _complaint(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").splitlines()
    return " ".join(line.strip() for line in lines if "Pseudo-terminal" not in line)[:500]

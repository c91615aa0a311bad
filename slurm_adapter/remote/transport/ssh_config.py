"""Ask ssh what it would do for each host (SSH-05): Include, Match and the rest mean what they mean.

Nothing here reads a value out of a config file: the ssh client does.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slurm_adapter.cluster import Node
from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.remote.transport.host_blocks import read_host_blocks, where_set
from slurm_adapter.remote.transport.ssh_options import check_options
from slurm_adapter.remote.transport.ssh_settings import parse_options, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurm_adapter.remote.transport.host_blocks import HostBlocks
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

CONFIG_VARIABLE = "SLURM_ADAPTER_SSH_CONFIG"
_LIMIT_S = 30.0
_READING = "debug1: Reading configuration data "
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
        self._all_read: bool | None = None
        self._without_config: _Options | None = None
        self._groups: dict[object, _Group] = {}

    def settings(self, node: Node) -> SshSettings:
        """Return the settings for a node; its own user, port and address win.

        Raises:
            BadValueError: its name could be taken for an option, or the config is broken: then
                with ssh's own words, which name file and line.
            ClusterUnfitError: there is no ssh client.
        """
        check_host_name(node.name)
        options = self._options(node)
        check_options(node.name, options, self._defaults, partial(where_set, self._file))
        if node.address is not None:
            options = {**options, "hostname": [node.address]}
        return read_settings(node.name, options, self._environment)

    def _options(self, node: Node) -> _Options:
        with self._lock:
            if not self._blocks_read:
                self._blocks, self._blocks_read = read_host_blocks(self._file), True
        blocks = self._blocks
        if blocks is None:
            return self._ask(node)
        host = _Host(node.name, blocks.own_hostname(node.name))
        key = (blocks.signature(node.name), node.user, node.port)
        with self._lock:
            group = self._groups.setdefault(key, _Group())
        with group.lock:
            answer = group.answer(host)
            if answer is None and not group.learned:
                answer = self._ask(node)
                group.learn(host, answer)
        return self._ask(node) if answer is None or not self._is_all(blocks, node) else answer

    def _is_all(self, blocks: HostBlocks, node: Node) -> bool:
        """Say whether ssh reads no file but those in which the blocks were found."""
        with self._lock:
            if self._all_read is None:
                said = self._run(node, "-v").stderr.decode("latin-1").splitlines()
                read = [line.removeprefix(_READING) for line in said if line.startswith(_READING)]
                self._all_read = bool(read) and {*map(os.path.realpath, read)} <= blocks.files
            return self._all_read

    def _defaults(self) -> _Options:
        """Return what ssh does without any config."""
        with self._lock:
            if self._without_config is None:
                done = self._run(Node("host"), file="none")
                self._without_config = parse_options(done.stdout.decode(errors="surrogateescape"))
            return self._without_config

    def _ask(self, node: Node) -> _Options:
        done = self._run(node)
        if done.returncode != 0:
            raise BadValueError(
                f"ssh does not take its config: {_complaint(done.stderr)}",
                f"Correct that; `ssh -G {node.name}` shows whether it worked.",
            )
        return parse_options(done.stdout.decode(errors="surrogateescape"))

    def _run(
        self, node: Node, *more: str, file: Path | str | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        file = self._file if file is None else file
        words = ["ssh", "-G", *more]
        words += ["-F", str(file)] if file is not None else []
        words += ["-p", str(node.port)] if node.port is not None else []
        words += ["-l", node.user] if node.user is not None else []
        try:
            return subprocess.run(
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


class _Host(NamedTuple):
    name: str
    own_hostname: str | None
    """The plain HostName in a block of its own, if there is one."""


class _Group:
    """Hosts that a config treats alike, and what two of them have shown about all.

    The first two are asked about. Where their answers differ in nothing but HostName, and that
    follows from the host's name or its own block, the others' answers follow; otherwise each is
    asked about.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._asked: list[tuple[_Host, _Options]] = []
        self._rules: list[_Rule] = []

    @property
    def learned(self) -> bool:
        """Whether both have been asked about: there is nothing more to find out."""
        return len(self._asked) > 1

    def answer(self, host: _Host) -> _Options | None:
        """Return what ssh would say about one more host, None where it has to be asked."""
        hostnames = {rule(host) for rule in self._rules}
        if len(hostnames) != 1:  # no rule, or two that both held by chance
            return None
        return {**self._asked[0][1], "host": [host.name], "hostname": [*hostnames]}

    def learn(self, host: _Host, options: _Options) -> None:
        """Take in what ssh has said about a host."""
        self._asked.append((host, options))
        if self.learned and _alike(*(one for _, one in self._asked)):
            pairs = [(one, found["hostname"][-1]) for one, found in self._asked]
            rules = list(_by_name(*pairs[0]))
            if len({one.own_hostname for one, _ in pairs}) > 1:
                rules.append(_by_block)
            self._rules = [rule for rule in rules if all(rule(one) == name for one, name in pairs)]


_Rule = Callable[[_Host], str]


def _alike(first: _Options, second: _Options) -> bool:
    own = {"host", "hostname"}
    return {key: first[key] for key in first.keys() - own} == {
        key: second[key] for key in second.keys() - own
    }


def _by_name(host: _Host, hostname: str) -> Iterator[_Rule]:
    """Yield the ways in which a HostName may be made of the host's own name."""
    before, found, after = hostname.partition(host.name.lower())
    while found:
        yield partial(_put_together, before, after)
        more, found, after = after.partition(host.name.lower())
        before += host.name.lower() + more


def _put_together(before: str, after: str, host: _Host) -> str:
    return f"{before}{host.name.lower()}{after}"


def _by_block(host: _Host) -> str:
    return host.own_hostname or ""


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

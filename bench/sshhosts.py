"""Many SSH hosts on loopback, and the commands that reach them: ours, and each peer's."""

import contextlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import rusage
from rusage import Usage

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from testbed.many import ManyHosts  # noqa: E402

BIN = Path(sys.executable).parent
PYTHON = "/usr/bin/python3"
OURS, GROUP, PDSH, CLUSH = "ours", "Fabric group", "pdsh", "clush"


def unavailable() -> str | None:
    """Return None where hosts can be had, else one line that says why not."""
    return ManyHosts.unavailable()


def installed(*peers: str) -> list[str]:
    """Return those peers that are there, and say which are not."""
    missing = [peer for peer in peers if not shutil.which(peer)]
    if missing:
        sys.stderr.write(f"not measured, as it is not installed: {', '.join(missing)}\n")
    return [peer for peer in peers if peer not in missing]


@dataclass(frozen=True)
class Hosts:
    """The hosts, and a folder for all that is written."""

    many: ManyHosts
    folder: Path

    @classmethod
    @contextlib.contextmanager
    def start(cls, count: int) -> Iterator["Hosts"]:
        """Serve so many hosts for a while; nodes and head keep nothing beyond it."""
        with TemporaryDirectory() as name:
            there = f"SHLVL=1 XDG_CACHE_HOME={name}/there XDG_STATE_HOME={name}/there"
            with ManyHosts.start(count, SetEnv=there) as many:
                yield cls(many, Path(name))

    @property
    def output(self) -> Path:
        """Where the last command's output is."""
        return self.folder / "output"

    def run(self, who: str, command: str) -> Usage:
        """Run a command line on all hosts at once."""
        words, environment = self._command(who, command)
        return rusage.run(words, environment, self.output)

    def _command(self, who: str, command: str) -> tuple[list[str], Mapping[str, str]]:
        names = self.many.names
        listed = ",".join(names)
        if who == GROUP:
            program = str(Path(__file__).with_name("fabric_group.py"))
            key, port = str(self.many.folder / "id_ed25519"), str(self.many.port)
            addresses = [f"127.0.0.{number}" for number in range(1, len(names) + 1)]
            return [sys.executable, program, key, port, command, *addresses], {}
        if who == PDSH:
            return ["pdsh", "-S", "-w", listed, command], self.many.pdsh_environment
        if who == CLUSH:
            return ["clush", "-S", *self.many.clush_words, "-w", listed, command], {}
        ours = [str(BIN / "slurm-adapter"), "ssh", "--contract", "env", "--view", "off"]
        environment = {
            "SLURM_ADAPTER_SSH_CONFIG": str(self.many.config),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        return [*ours, "--python", PYTHON, "-H", listed, "--command", command], environment

"""Up to 254 SSH hosts on loopback, without namespaces of their own: one sshd behind all.

`python -m testbed.many [COUNT]` says where its ssh config file lies and serves
until its input ends. `ManyHosts.start` runs just that in a PID namespace, so
that whoever is killed, no sshd and no command of a host stays. The sshd's
log is read there too, at no cost to a process that measures.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loopback import LoopbackSshd, public_part, why_no_sshd
from testbed.child import Child
from testbed.daemons import StartError
from testbed.waiting import LONG_S

DEFAULT_COUNT = 250
MOST = 254
_OPTIONS = {
    "MaxStartups": "1000:30:2000",
    "LogLevel": "INFO",
    # It listens on every address of the machine: let nobody in from elsewhere.
    "AllowUsers": "*@127.0.0.0/8",
}


@dataclass(frozen=True)
class ManyHosts:
    """Hosts h001, h002, ... at 127.0.0.1, 127.0.0.2, ..., for the user who started them."""

    names: tuple[str, ...]
    port: int
    folder: Path
    """Where the keys, known_hosts and the ssh config file lie while they run."""

    @classmethod
    @contextlib.contextmanager
    def start(cls, count: int = DEFAULT_COUNT, **options: str) -> Iterator["ManyHosts"]:
        """Serve `count` hosts for a while; `options` are as in sshd_config(5).

        Raises StartError with what was said; `unavailable` tells beforehand.
        """
        own_namespace = ["unshare", "--pid", "--kill-child", "--mount-proc"]
        server = Child(
            [
                *(own_namespace if os.geteuid() == 0 else ()),
                *(sys.executable, "-m", "testbed.many", str(count)),
                *(f"{key}={value}" for key, value in options.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            start_new_session=True,
        )
        with server:
            try:
                line = server.stdout.readline() if server.stdout else ""
                if not line:
                    raise StartError(f"the SSH hosts do not start: exit {server.wait()}")
                told = json.loads(line)
                yield cls(host_names(count), told["port"], Path(told["folder"]))
            finally:
                _end(server)

    @staticmethod
    def unavailable() -> str | None:
        """Return None where they can run, else one line that says why not."""
        return why_no_sshd() or None

    @property
    def config(self) -> Path:
        """The file for `ssh -F`: it leads from each name to its host, with key and known_hosts."""
        return self.folder / "config"

    @property
    def pdsh_environment(self) -> dict[str, str]:
        """What makes `pdsh -w NAMES COMMAND` reach them; `clush_words` does it for clush."""
        return {
            "PDSH_RCMD_TYPE": "ssh",
            "PDSH_SSH_ARGS_APPEND": f"-F {self.config}",
            "FANOUT": str(len(self.names)),
        }

    @property
    def clush_words(self) -> list[str]:
        """The options of `clush` for them: without -f it opens 64 at a time."""
        return ["-o", f"-F {self.config}", "-f", str(len(self.names))]


def host_names(count: int) -> tuple[str, ...]:
    """Return h001, h002, ...; raise ValueError where there are not so many addresses."""
    if not 1 <= count <= MOST:
        raise ValueError(f"{count} hosts: loopback has 1 to {MOST}")
    return tuple(f"h{number:03}" for number in range(1, count + 1))


def serve(count: int, options: dict[str, str]) -> None:
    """Run the sshd, report as one line of JSON, keep it until standard input ends."""
    with LoopbackSshd.start(listen="0.0.0.0", **{**_OPTIONS, **options}) as sshd:
        key = public_part(sshd.folder / "host_ed25519")
        hosts = [(name, f"127.0.0.{i}") for i, name in enumerate(host_names(count), 1)]
        sshd.known_hosts.write_text(
            "".join(f"[{name}]:{sshd.port},[{at}]:{sshd.port} {key}\n" for name, at in hosts)
        )
        sshd.write_config("".join(f"Host {name}\n    HostName {at}\n" for name, at in hosts))
        told = {"config": str(sshd.config), "folder": str(sshd.folder), "port": sshd.port}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


def _end(server: Child[str]) -> None:
    """End its input, at which it tidies up; after a while, kill it."""
    if server.stdin:
        server.stdin.close()
    try:
        server.wait(LONG_S)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    _count, *_rest = sys.argv[1:] or [str(DEFAULT_COUNT)]
    serve(int(_count), dict(word.split("=", 1) for word in _rest))

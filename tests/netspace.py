"""A machine's network as a field case describes it: real interfaces in a namespace of their own."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from one_task import ADAPTER
from steps import SCRIPTS
from testbed.child import Child

_SPACES = ("--user", "--map-root-user", "--net", "--mount")
_STEP = {
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_LOCALID": "0",
}
NODES = ("n0", "n1")


@dataclass(frozen=True)
class NetSpace:
    """One node's network, in which commands can run."""

    holder: int

    def run(
        self, *words: str, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in it, with a bare environment."""
        enter = ["nsenter", f"--target={self.holder}", "--user", "--net", "--mount"]
        return subprocess.run(
            [*enter, "--preserve-credentials", "--", *words],
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def env(
        self,
        *options: str,
        index: int = 0,
        form: str = "json",
        env: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run `slurm-adapter env` as a rank of a step of n0 and n1 would."""
        step = {
            **_STEP,
            "SLURM_STEP_NODELIST": ",".join(NODES),
            "SLURM_PROCID": str(index),
            "SLURM_NODEID": str(index),
        }
        words = [ADAPTER, "env", "--contract", "env", "--view", "off", "--format", form]
        return self.run(*words, *options, env={**step, **(env or {})})

    def chosen(self, *options: str, index: int = 0) -> dict[str, str]:
        """Return the network's variables that a rank gets here."""
        done = self.env(*options, index=index)
        assert (done.returncode, done.stderr) == (0, "")
        found: dict[str, str] = json.loads(done.stdout)["set"]
        return {name: value for name, value in found.items() if name in _OF_NETWORK}

    def nccl_takes(self, env: Mapping[str, str] | None = None) -> str:
        """Return the interface that the NCCL library itself takes."""
        done = self.run(sys.executable, str(SCRIPTS / "nccl_interface.py"), env=env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


_OF_NETWORK = frozenset(
    ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY")
)


def unavailable() -> str | None:
    """Return None where such namespaces can be made, else one line that says why not."""
    done = subprocess.run(
        ["unshare", *_SPACES, "true"], capture_output=True, text=True, check=False
    )
    return f"no namespaces of one's own here: {done.stderr.strip()}" if done.returncode else None


@contextlib.contextmanager
def net_space(
    interfaces: Sequence[tuple[str, ...]], hosts: str, routes: Sequence[str] = ()
) -> Iterator[NetSpace]:
    """Make a network.

    Args:
        interfaces: (name, address/bits, ...) in the order in which the kernel is to have them.
        hosts: the text of /etc/hosts.
        routes: as after `ip route add`.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hosts"
        file.write_text(f"127.0.0.1 localhost\n{hosts}\n")
        script = "mount --bind $0 /etc/hosts && ip -batch - && echo up && exec sleep infinity <&-"
        holder = Child(
            ["unshare", *_SPACES, "sh", "-c", script, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with holder:
            try:
                assert holder.stdin
                assert holder.stdout
                holder.stdin.write("".join(f"{line}\n" for line in _commands(interfaces, routes)))
                holder.stdin.close()
                assert holder.stdout.readline() == "up\n"
                yield NetSpace(holder.pid)
            finally:
                holder.kill()


def _commands(interfaces: Sequence[tuple[str, ...]], routes: Sequence[str]) -> Iterator[str]:
    yield "link set lo up"
    for number, (name, *addresses) in enumerate(interfaces):
        # The far end is up, too, or there would be no carrier; it has no address of any kind.
        yield f"link add {name} type veth peer name far{number}"
        yield f"link set far{number} addrgenmode none"
        yield f"link set far{number} up"
        for address in addresses:
            yield f"addr add {address} dev {name}{' nodad' if ':' in address else ''}"
        yield f"link set {name} up"
    for route in routes:
        yield f"route add {route}"

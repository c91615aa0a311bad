"""`slurm-adapter exec` in a step on the test cluster, the output of each task kept apart.

Slurm writes a file for each task: what srun prints of several tasks may be mixed within a line.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import ADAPTER, User
from testbed.names import NODES

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Ended:
    """A step that has ended."""

    status: int
    out: list[str]
    """What each task wrote to stdout, in rank order."""
    err: list[str]

    @property
    def json(self) -> list[Any]:
        """What each task printed, read as one JSON document."""
        return [json.loads(text) for text in self.out]


def run_step(
    user: User,
    *words: str,
    nodes: int = 3,
    tasks: int = 1,
    wrapper: Sequence[str] = (),
    account: str = "ada",
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> Ended:
    """Run `slurm-adapter exec WORDS` with `tasks` tasks on each of the first `nodes` nodes.

    A file of `scripts/` that is named among the words is put into the user's directory before.

    Args:
        user: whose directory it is.
        words: options, and the program.
        nodes: how many nodes.
        tasks: how many tasks on each.
        wrapper: what starts slurm-adapter in its turn.
        account: who types it.
        env: variables on top of a login's.
        check: whether it must succeed; else every task may say why it fails.
    """
    for word in (*wrapper, *words):
        script = SCRIPTS / Path(word).name
        if word and script.is_file():
            user.write(script.name, script.read_text(), 0o755)
    # By name: a node on which an earlier step is still being ended is not the first one free.
    step = ["srun", f"-N{nodes}", f"--nodelist={','.join(NODES[:nodes])}"]
    step += [f"--ntasks-per-node={tasks}", f"--kill-on-bad-exit={check:d}"]
    files = ["--output=%t.out", "--error=%t.err"]
    done = user.cluster.run(
        [*step, *files, *wrapper, str(ADAPTER), "exec", *words],
        user=account,
        cwd=str(user.folder),
        env={**user.environment, **(env or {})},
    )
    ended = Ended(done.returncode, *(_texts(user, nodes * tasks, end) for end in ("out", "err")))
    assert not check or done.returncode == 0, (done.stderr, ended)
    return ended


def _texts(user: User, count: int, end: str) -> list[str]:
    return [user.outside(f"{index}.{end}").read_text() for index in range(count)]

"""Arguments and variables reach every rank byte for byte, through real sbatch and srun (SB-03)."""

import json
import os
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import User

DUMP = (Path(__file__).parent / "scripts" / "dump.py").read_text()

HOSTILE = [
    "",
    " ",
    "organism part",
    "it's $5; ok",
    'say "hi" & $HOME',
    "two\nlines\n",
    "*",
    "~",
    "#!/bin/sh",
    "`id` $(id) ${HOME}",
    "back\\slash\\",
    "tab\there",
    "-n",
    "--",
    "--env=X=1",
    "=ls",
    "!!",
    "%j",
    "{a,b}",
    "数据 é ☃",
    "\x01\x7f",
    "\udcff\udcfe",
]
# All that an argument or variable can hold: any bytes but NUL, here as Python decodes them.
TEXTS = st.binary(max_size=24).map(lambda data: os.fsdecode(data.replace(b"\0", b"?")))
NASTY = st.text(alphabet="'\"\\$`!*?[]{}()<>|&;#~=% \n\té", max_size=12)
VALUES = st.lists(st.one_of(st.sampled_from(HOSTILE), TEXTS, NASTY), max_size=12)


@settings(max_examples=6)
@example(arguments=HOSTILE, values=HOSTILE)
@given(arguments=VALUES, values=VALUES)
def test_every_rank_gets_the_very_bytes(
    user: User, arguments: list[str], values: list[str]
) -> None:
    user.write("dump.py", DUMP)
    variables = {f"BYTES_{number}": value for number, value in enumerate(values)}
    options = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    job_id = user.run(
        *("slurm-adapter", "sbatch", "-N", "2", "--contract", "env", "--gpus-per-node", "0"),
        *("--parsable", *options, "dump.py", *arguments),
    )
    assert user.finish(job_id).state == "COMPLETED", user.log("slurm-adapter/dump/log/*.out")
    for rank in range(2):
        seen = json.loads(user.outside(f"seen-{rank}.json").read_text())
        assert seen["arguments"] == [os.fsencode(word).hex() for word in arguments]
        assert seen["variables"] == {
            name: os.fsencode(value).hex() for name, value in variables.items()
        }
    for left in (*user.outside(".").glob("seen-*"), *user.outside(".").glob("**/*.out")):
        left.unlink()

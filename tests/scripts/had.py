"""Print what this rank was started with; with the argument `parent`, what started it was.

As the kernel has it from the start of the program: a running one changes its own.
"""

import json
import os
import sys
from pathlib import Path

of_parent = "parent" in sys.argv
started = os.getppid() if of_parent else os.getpid()


def strings(name: str) -> list[str]:
    """Return the strings of a file in /proc."""
    data = Path(f"/proc/{started}/{name}").read_bytes()
    return [os.fsdecode(one) for one in data.split(b"\0")[:-1]]


had = {
    "argv": strings("cmdline"),
    "environment": dict(one.split("=", 1) for one in strings("environ")),
    "cwd": str(Path(f"/proc/{started}/cwd").readlink()),
}
if not of_parent or os.environ.get("LOCAL_RANK", "0") == "0":
    sys.stdout.write(f"{json.dumps(had)}\n")

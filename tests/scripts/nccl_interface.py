"""Have the NCCL library say which interface it takes for its sockets: no GPU is needed for that.

Prints the name, or `none` and NCCL's reason.
"""

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path


def library() -> str | None:
    """Return the path of NCCL's library in this interpreter's packages."""
    found = importlib.util.find_spec("nvidia.nccl") if importlib.util.find_spec("nvidia") else None
    places = (found.submodule_search_locations or []) if found is not None else []
    return next((f"{place}/lib/libnccl.so.2" for place in places), None)


def main() -> None:
    """Ask in a process of its own: NCCL writes to stdout whatever it has to tell."""
    path = library()
    if path is None or not Path(path).exists():
        sys.exit("NCCL is not installed here: pip install nvidia-nccl-cu12")
    ask = [sys.executable, __file__, path]
    environment = {**os.environ, "NCCL_DEBUG": "INFO"}
    told = subprocess.run(ask, env=environment, capture_output=True, text=True, check=False).stdout
    used = re.search(r"Bootstrap ?: Using ([^:\s]+):(\S+)<", told)
    failed = re.search(r"NCCL WARN (.*)", told)
    sys.stdout.write(used[1] if used and not failed else f"none: {failed[1] if failed else told}")


if __name__ == "__main__":
    if sys.argv[1:]:
        ctypes.CDLL(sys.argv[1]).ncclGetUniqueId(ctypes.create_string_buffer(128))
    else:
        main()

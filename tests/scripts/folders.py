"""Print where this rank is and what its directories are, having written a file into each."""

import json
import os
import sys
from pathlib import Path

NAMES = (
    "MA_HOME",
    "MA_MOUNT_PATH",
    "MA_JOB_DIR",
    "WORKSPACE",
    "MA_LOG_DIR",
)
told = {name: os.environ[name] for name in NAMES}
index = os.environ["VC_TASK_INDEX"]
for folder in ("MA_HOME", "MA_MOUNT_PATH", "WORKSPACE", "MA_LOG_DIR"):
    Path(told[folder], f"{folder}-{index}").write_text("")
# The same name on every node: no node finds another's.
cache = Path("/cache/mine")
if cache.exists():
    sys.exit("this cache is another node's too")
cache.write_text(index)
same = Path("/home/ma-user/user-job-dir", Path.cwd().name)
json.dump(
    {
        "script": str(Path(__file__)),
        "directory": str(Path.cwd()),
        "told": told,
        "same code": same.samefile(Path.cwd()),
        "volcano": {path.name: path.read_text() for path in Path("/etc/volcano").iterdir()},
        "job": os.environ["MA_VJ_NAME"],
    },
    sys.stdout,
)

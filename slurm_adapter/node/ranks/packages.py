"""The packages of `pip-requirements.txt`, in a directory of the run.

The user's own environment stays as it is. A virtual environment sees everything that the job's
interpreter sees: what is there already counts, what is missing or too old is put into the run's
directory and found first.
"""

from __future__ import annotations

from slurm_adapter.errors import BadValueError, ClusterUnfitError
from slurm_adapter.node.job_files import find_program, make_folder
from slurm_adapter.node.system.processes import dying_with_parent
from slurm_adapter.setting import extended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.cluster import Node
    from slurm_adapter.plan import NodePlan, Plan, RankPlan
    from slurm_adapter.setting import Setting

# Settings of pip that would put packages elsewhere.
_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
# Run by the job's interpreter, with the directory as its one argument.
_MAKE = """\
import os, sys, sysconfig, venv
folder = sys.argv[1]
venv.create(folder, with_pip=False, symlinks=True)
scheme = {"base": folder, "platbase": folder, "installed_base": folder}
scheme_name = "venv" if sys.version_info >= (3, 11) else "posix_prefix"
site = sysconfig.get_path("purelib", scheme_name, scheme)
seen = [path for path in sys.path[1:] if path.endswith("-packages") and os.path.isdir(path)]
with open(os.path.join(site, "the_jobs_own.pth"), "w") as file:
    file.write("\\n".join(seen))
os.symlink(os.path.relpath(site, folder), os.path.join(folder, "site-packages"))
"""


def _folder(node_folder: str, node: Node, local_rank: int) -> str:
    """Return where the packages of one task go: ranks of a node do not wait for each other."""
    folder = f"{node_folder}/packages"
    if ":" in folder:
        raise BadValueError(
            f"--install-requirements: {folder} holds a colon, which Python's search path cannot",
            "Name another folder with --job-folder DIR.",
        )
    return folder if node.tasks in (None, 1) else f"{folder}-{local_rank}"


def package_settings(plan: Plan, node_index: int, local_rank: int = 0) -> tuple[Setting, ...]:
    """Return the variables by which the ranks of a node find the packages, and their programs.

    `local_rank` counts where each rank of a node is a task of its own.
    """
    node_folder = plan.workers.node_folder(plan.job.folder, node_index)
    folder = _folder(node_folder, plan.cluster.nodes[node_index], local_rank)
    why = "packages of pip-requirements.txt"
    return (
        extended("PYTHONPATH", why, before=(f"{folder}/site-packages",)),
        # Behind the user's own, or its `python` would be found before the job's.
        extended("PATH", why, after=(f"{folder}/bin",)),
    )


def install_once(
    plan: NodePlan, rank: RankPlan, environment: Mapping[str, str], output: int | None
) -> None:
    """Install the packages that the ranks of a node share: the first one does, others wait for it.

    Raises:
        ClusterUnfitError: where that fails.
    """
    import fcntl
    import os

    folder = _folder(plan.folder, plan.node, 0)
    make_folder(os.path.dirname(folder), plan.job.folder)
    lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_size == 0:
            install(plan, rank, environment, output)
            os.write(lock, b"done\n")
    finally:
        os.close(lock)


def install(
    plan: NodePlan, rank: RankPlan, environment: Mapping[str, str], output: int | None
) -> None:
    """Install a rank's packages; pip's words go to `output`, as on ModelArts (None: to our own).

    Raises:
        ClusterUnfitError: where that fails.
    """
    import subprocess  # 8 ms, seldom needed

    job, folder = plan.job, _folder(plan.folder, plan.node, rank.local_rank)
    python = find_program(rank.node.python or job.python, environment, job.code)
    settings = {name: value for name, value in environment.items() if name not in _ELSEWHERE}
    settings |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}
    pip = [f"{folder}/bin/python", "-m", "pip", "install", "--no-input", "-r", job.requirements]
    for command, what in (([python, "-c", _MAKE, folder], "venv"), (pip, "pip")):
        done = subprocess.run(
            command,
            cwd=job.code,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            preexec_fn=dying_with_parent(),
        )
        if done.returncode != 0:
            raise ClusterUnfitError(
                f"the packages of {job.requirements} could not be installed: {what} ended with"
                f" status {done.returncode}",
                "Its last lines above, or in the node's log, say why.",
            )

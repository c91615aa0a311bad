"""The packages of `pip-requirements.txt`, in a directory of the run.

The user's own environment stays as it is. A virtual environment sees everything that the job's
interpreter sees: what is there already counts, what is missing or too old is put into the run's
directory and found first.
"""

from __future__ import annotations

import os

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_adapter.contracts.place import Workers
    from slurm_adapter.job import Job

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


def packages_folder(job_folder: str, workers: Workers, node_index: int) -> str:
    """Return where the packages of one node of one run go."""
    return f"{job_folder}/packages/{workers.instance(node_index)}"


def packages_settings(job: Job, folder: str, environment: Mapping[str, str]) -> tuple[Setting, ...]:
    """Return the variables by which ranks find the packages, and their programs."""

    def found(name: str) -> str:
        return job.env.get(name) or environment.get(name, "")

    why = "packages of pip-requirements.txt"
    modules, programs = f"{folder}/site-packages", f"{folder}/bin"
    return (
        Setting("PYTHONPATH", ":".join(filter(None, (modules, found("PYTHONPATH")))), why),
        # Behind the user's own, or its `python` would be found before the job's.
        Setting("PATH", ":".join(filter(None, (found("PATH"), programs))), why),
    )


def remove_packages(job_folder: str, workers: Workers) -> None:
    """Take a run's packages away when it has ended."""
    if not os.path.isdir(f"{job_folder}/packages"):  # noqa: PTH112 - pathlib costs start-up time
        return
    import shutil  # noqa: PLC0415 - 4 ms, seldom needed

    for index in range(workers.count):
        shutil.rmtree(packages_folder(job_folder, workers, index), ignore_errors=True)


def install(
    job: Job, folder: str, python: str, environment: Mapping[str, str], output: int | None
) -> None:
    """Install the packages; pip's words go to `output`, as on ModelArts (None: to our own).

    Raises:
        ClusterUnfitError: where that fails.
    """
    import subprocess  # noqa: PLC0415 - 8 ms, seldom needed

    pip = [f"{folder}/bin/python", "-m", "pip", "install", "--no-input", "-r", job.requirements]
    for command in ([python, "-c", _MAKE, folder], pip):
        done = subprocess.run(
            command,
            cwd=job.code,
            env={**environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
        if done.returncode != 0:
            raise ClusterUnfitError(
                f"the packages of {job.requirements} could not be installed: pip ended with"
                f" status {done.returncode}",
                "Its last lines above, or in the job's log, say why.",
            )

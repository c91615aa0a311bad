"""Talking to Slurm's own commands: submit a script, ask what would happen, list its options."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.launch.refusal import with_directives
from slurm_adapter.node.program import make_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slurm_adapter.launch.sbatch import Script

_LONG_OPTION = re.compile(r"--([a-z][a-z0-9-]+)")
# sbatch(1), INPUT ENVIRONMENT VARIABLES: those that are not spelled like their option.
_TWINS = {"time": "TIMELIMIT", "array": "ARRAY_INX", "mem": "MEM_PER_NODE", "chdir": "WORKING_DIR"}
# Slurm retries a controller that does not answer for minutes; a dry run must not.
_TEST_ONLY_LIMIT_S = 30.0


@dataclass(frozen=True)
class Submission:
    """What sbatch answered."""

    job_id: str
    cluster: str
    """Name of the cluster in a federation, else empty."""
    said: str
    """What sbatch wrote to stderr beside: a site's notes, warnings."""
    status: int
    """sbatch's own exit status: with `--wait` the job's."""

    @property
    def line(self) -> str:
        """The line that sbatch itself prints."""
        return f"Submitted batch job {self.job_id}" + (
            f" on cluster {self.cluster}" if self.cluster else ""
        )


def site_options() -> frozenset[str]:
    """Return the long options that this machine's sbatch lists, plug-ins' included."""
    if not have_sbatch():
        return frozenset()
    shown = _sbatch(["--help"], os.environ)
    return frozenset(_LONG_OPTION.findall(shown.stdout)) if shown.returncode == 0 else frozenset()


def make_folders(script: Script) -> None:
    """Make the folders that a script's logs need; sbatch would lose the job without (SB-02)."""
    for folder in script.folders:
        make_folder(folder)


def write_script(script: Script, path: Path) -> None:
    """Write a script, readable by its owner only; a reader never sees half of it."""
    if path.exists() and not path.is_file():  # a pipe or a device is written to, not replaced
        path.write_bytes(os.fsencode(script.text))
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.fsencode(script.text))
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ClusterUnfitError(
            f"{path} cannot be written: {error.strerror}", "Choose another place."
        ) from error


def submit(
    script: Script, path: Path, more: Mapping[str, str] = MappingProxyType({}), after: str = ""
) -> Submission:
    """Submit a written script.

    Args:
        script: the script.
        path: where it was written.
        more: variables for sbatch beside the script's own.
        after: the job that has to fail first; where it does not, this one is taken away again.

    Raises:
        ClusterUnfitError: with sbatch's own words where it refuses, and the directive that they
            are about; nothing was started.
    """
    words = ["--parsable"]
    if after:
        words += [f"--dependency=afternotok:{after}", "--kill-on-invalid-dep=yes"]
    answer = _sbatch([*words, str(path)], {**_environment(script), **more})
    job_id, _, cluster = answer.stdout.strip().partition(";")
    if not job_id.isdecimal():
        said = with_directives(_said(answer), script.all_directives)
        raise ClusterUnfitError(f"sbatch refused the job: {said}", f"The script is in {path}.")
    return Submission(job_id, cluster, answer.stderr, answer.returncode)


def test_only(script: Script) -> tuple[bool, str]:
    """Return (whether Slurm would take the job, what it says: nodes and start time, or why not)."""
    answer = _sbatch(
        ["--test-only"],
        _environment(script),
        os.fsencode(script.text),
        _TEST_ONLY_LIMIT_S,
    )
    if answer.returncode == 0:
        return True, _said(answer)
    return False, with_directives(_said(answer), script.all_directives)


def have_sbatch() -> bool:
    """Say whether this machine has Slurm's commands."""
    return shutil.which("sbatch") is not None


def _environment(script: Script) -> dict[str, str]:
    """Return what sbatch inherits: the secrets, and no SBATCH_ variable that would overrule us.

    To sbatch its variables come before the directives of a script.
    """
    twins = {"SBATCH_EXPORT"}
    for name in (item.name for item in script.all_directives):
        twins.add("SBATCH_" + _TWINS.get(name, name.upper().replace("-", "_")))
    kept = {name: value for name, value in os.environ.items() if name not in twins}
    return {**kept, **script.environment}


def _said(answer: subprocess.CompletedProcess[str]) -> str:
    lines = (answer.stderr + answer.stdout).splitlines()
    return "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines)


def _sbatch(
    words: list[str],
    environment: Mapping[str, str],
    script: bytes | None = None,
    limit_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    try:
        answer = subprocess.run(
            ["sbatch", *words],
            env=dict(environment),
            input=script,
            stdin=subprocess.DEVNULL if script is None else None,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterUnfitError(
            "sbatch is not on this machine's PATH",
            "Run it on a login node of the cluster; --script FILE only writes the script, and"
            " slurm-adapter local starts the job here.",
        ) from error
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", "Slurm does not answer")
    return subprocess.CompletedProcess(
        words,
        answer.returncode,
        answer.stdout.decode(errors="replace"),
        answer.stderr.decode(errors="replace"),
    )

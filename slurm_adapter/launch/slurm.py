"""Talking to Slurm's own commands: submit a script, ask what would happen, list its options."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_adapter.errors import ClusterUnfitError
from slurm_adapter.launch.script.refusal import with_directives
from slurm_adapter.remote.submit_host import NOTHING, Done, owner
from slurm_adapter.remote.transport.port import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from slurm_adapter.launch.script.sbatch import Script
    from slurm_adapter.remote.submit_host import SubmitHost

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


def site_options(submit_host: SubmitHost) -> frozenset[str]:
    """Return the long options that the submit host's sbatch lists, plug-ins' included."""
    if not have_sbatch(submit_host):
        return frozenset()
    shown = _sbatch(submit_host, ["--help"])
    return frozenset(_LONG_OPTION.findall(shown.out)) if shown.status == 0 else frozenset()


def make_folders(submit_host: SubmitHost, script: Script) -> None:
    """Make the folders that a script's logs need; sbatch would lose the job without (SB-02)."""
    for folder in script.folders:
        submit_host.make_folder(folder)


def write_script(submit_host: SubmitHost, script: Script, path: Path) -> None:
    """Write a script, readable by its owner only; a reader never sees half of it."""
    submit_host.write(str(path), os.fsencode(script.text))


def submit(
    submit_host: SubmitHost,
    script: Script,
    path: Path,
    more: Mapping[str, str] = NOTHING,
    after: str = "",
) -> Submission:
    """Submit a written script.

    Args:
        submit_host: where.
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
    more = {**more, **script.environment}
    try:
        answer = _sbatch(submit_host, [*words, str(path)], more=more, without=_twins(script))
    except ConnectionLostError as lost:
        raise ConnectionLostError(
            f"{lost.found} while sbatch ran: whether the job was submitted is not known",
            f"Look before you submit it again: ssh {submit_host.login} squeue --me",
        ) from lost
    job_id, _, cluster = answer.out.strip().partition(";")
    if not job_id.isdecimal():
        said = with_directives(_said(answer), script.all_directives)
        raise ClusterUnfitError(f"sbatch refused the job: {said}", f"The script is in {path}.")
    return Submission(job_id, cluster, answer.err, answer.status)


def test_only(submit_host: SubmitHost, script: Script) -> tuple[bool, str]:
    """Return (whether Slurm would take the job, what it says: nodes and start time, or why not)."""
    answer = _sbatch(
        submit_host,
        ["--test-only"],
        more=script.environment,
        without=_twins(script),
        script=os.fsencode(script.text),
        limit_s=_TEST_ONLY_LIMIT_S,
    )
    if answer.status == 0:
        return True, _said(answer)
    return False, with_directives(_said(answer), script.all_directives)


def have_sbatch(submit_host: SubmitHost) -> bool:
    """Say whether a submit host has Slurm's commands."""
    return submit_host.has("sbatch")


def _twins(script: Script) -> set[str]:
    """Return the SBATCH_ variables that would overrule a script: to sbatch they come before it."""
    names = (item.name for item in script.all_directives)
    return {
        "SBATCH_EXPORT",
        *("SBATCH_" + _TWINS.get(n, n.upper().replace("-", "_")) for n in names),
    }


def _said(answer: Done) -> str:
    lines = (answer.err + answer.out).splitlines()
    return "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines)


def _sbatch(
    submit_host: SubmitHost,
    words: list[str],
    *,
    more: Mapping[str, str] = NOTHING,
    without: Collection[str] = (),
    script: bytes | None = None,
    limit_s: float | None = None,
) -> Done:
    try:
        return submit_host.run(["sbatch", *words], more, without, script, limit_s)
    except FileNotFoundError as error:
        raise _no_slurm(submit_host) from error
    except TimeoutError:
        return Done(1, "", "Slurm does not answer")


def check_there(submit_host: SubmitHost) -> None:
    """Raise `ClusterUnfitError` where a submit host has no commands of Slurm."""
    if not have_sbatch(submit_host):
        raise _no_slurm(submit_host)


def _no_slurm(submit_host: SubmitHost) -> ClusterUnfitError:
    found = f"sbatch is not on {owner(submit_host)} PATH"
    if submit_host.login:
        return ClusterUnfitError(
            f"{found}, nor on that of a login shell there",
            "Name a login node of the cluster with --login, or have ~/.bash_profile there put"
            " Slurm's commands on PATH.",
        )
    return ClusterUnfitError(
        found,
        "Run it on a login node of the cluster, or name one with --login; --script FILE only"
        " writes the script, and slurm-adapter local starts the job here.",
    )

"""Slurm's refusal in its own words, with the directives that they are about."""

import pytest

from conftest import User
from slurm_adapter.launch.script.directives import Directive
from slurm_adapter.launch.script.refusal import with_directives

ASKED = {
    "job-name": "account",
    "nodes": "2",
    "gres": "gpu:8",
    "cpus-per-task": "8",
    "mem": "40G",
    "output": "/log/x.out",
    "error": "/log/x.err",
    "partition": "train",
    "account": "lab",
    "qos": "high",
    "time": "99-00:00:00",
    "constraint": "a100",
    "nodelist": "n9",
    "exclusive": None,
}
FAILED = "Batch job submission failed: "


@pytest.mark.parametrize(
    ("said", "about"),
    [
        ("invalid partition specified: train", "--partition=train"),
        ("Invalid qos specification", "--qos=high"),
        ("Invalid generic resource (gres) specification", "--gres=gpu:8"),
        ("Invalid Trackable RESource (TRES) specification", "--gres=gpu:8"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "--time=99-00:00:00"),
        ("Invalid feature specification", "--constraint=a100"),
        ("Invalid node name specified", "--nodelist=n9"),
        ("Node count specification invalid", "--nodes=2"),
        ("CPU count per node can not be satisfied", "--cpus-per-task=8"),
        ("Memory specification can not be satisfied", "--mem=40G"),
        ("Invalid --exclusive specification", "--exclusive"),
    ],
)
def test_sb_06_names_the_directive(said: str, about: str) -> None:
    directives = [Directive(name, value, "") for name, value in ASKED.items()]
    assert with_directives(FAILED + said, directives) == f"{FAILED}{said} (directive {about})"


def test_names_all_that_may_be_meant() -> None:
    directives = [Directive(name, value, "") for name, value in ASKED.items()]
    said = "Invalid account or account/partition combination specified"
    told = with_directives(said, directives)
    assert told == f"{said} (directives --partition=train --account=lab)"


@pytest.mark.parametrize(
    "said",
    [
        "Requested node configuration is not available",
        "Unspecified error",
        "Job violates accounting policy",
        "Unable to contact slurm controller",
        "Invalid --nodes-of-another-kind specification",
    ],
)
def test_names_none_where_none_is_meant(said: str) -> None:
    directives = [Directive(name, value, "") for name, value in ASKED.items()]
    assert with_directives(said, directives) == said


class TestOnSlurm:
    @pytest.mark.parametrize(
        ("options", "about"),
        [
            ("--sbatch partition=nope", "(directive --partition=nope)"),
            ("--sbatch gres=nope:1", "(directive --gres=nope:1)"),
            ("--sbatch constraint=nope", "(directive --constraint=nope)"),
        ],
    )
    def test_sb_06_a_refused_job_shows_it(self, user: User, options: str, about: str) -> None:
        for form in ([], ["--dry-run", "--format", "plain"]):
            done = user.cluster.run(
                ["slurm-adapter", "sbatch", *form, *options.split(), "--command", "true"],
                cwd=str(user.folder),
                env=user.environment,
            )
            assert done.returncode == (0 if form else 3)
            assert about in done.stdout + done.stderr

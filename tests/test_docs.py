"""What the README, the pages and the scripts in the project show is what the program does."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ADAPTER, PROJECT

sys.path.insert(0, str(PROJECT / "tools"))
from generate import generated

README = (PROJECT / "README.md").read_text()
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
COMMANDS = re.findall(r"^    (slurm-adapter (?:sbatch|local) .*)$", README, re.MULTILINE)


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    """`make generated` would change nothing."""
    assert path.read_text() == generated()[path]


def test_the_readme_shows_commands_at_all() -> None:
    assert len(COMMANDS) == 7


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_is_understood(command: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    program, action, *words = shlex.split(command)
    assert program == "slurm-adapter"
    done = subprocess.run(
        [ADAPTER, action, "--dry-run", "--format", "plain", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "train: 2 nodes" in done.stdout


def test_the_job_file_of_the_page_is_understood(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "command-line.md").read_text()
    example = page[page.index("## The job file") :].split("\n## ")[0]
    lines = [line[4:] for line in example.splitlines() if line.startswith("    ") or not line]
    (tmp_path / "gpu-train").mkdir()
    (tmp_path / "gpu-train" / "train.py").write_text("")
    (tmp_path / "job.toml").write_text("\n".join(lines))
    done = subprocess.run(
        [ADAPTER, "sbatch", "--script", "-", "-q", "--job", tmp_path / "job.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "#SBATCH --partition=train\n#SBATCH --time=02:00:00\n#SBATCH --requeue\n" in done.stdout


@pytest.mark.parametrize("target", re.findall(r"make (\w+)", README))
def test_every_make_target_of_the_readme_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (PROJECT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists()


@pytest.mark.parametrize("script", sorted((PROJECT / "sbatch").glob("*.sbatch")), ids=str)
def test_the_shown_scripts_are_sound_shell(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    subprocess.run(["shellcheck", "--severity=warning", script], check=True)

"""Whatever is typed wrongly is answered in a few lines: what was found, and what to type."""

import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from commandline import ADAPTER, WITHOUT_SLURM, adapter, environment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a boot file, an empty folder, and some broken job files."""
    (tmp_path / "train.py").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "typo.toml").write_text('nodez = 2\nboot = "train.py"\n')
    (tmp_path / "text.toml").write_text("train on two nodes\n")
    return tmp_path


LOCAL = [
    ("local", "nothing to run was given", "train.py"),
    ("local --nodes 2", "nothing to run was given", "train.py"),
    ("local missing.py", "there is no boot file 'missing.py' in", "--code DIR"),
    ("local data", "data is a directory, not a boot file", "data/train.py"),
    ("local --code train.py train.py", "train.py is a file", "--code "),
    ("local --code nowhere train.py", "there is no code directory", "--code DIR"),
    ("local --code data train.py", "train.py lies outside the code directory", "--code DIR"),
    ("local --nodes 0 train.py", "a job on 0 nodes", "--nodes 2"),
    ("local --nodes 300 train.py", "300 nodes cannot be simulated", "--nodes 244"),
    ("local --nodes two train.py", "'two'", "--nodes"),
    ("local --gpus-per-node -1 train.py", "-1 GPUs per node", "--gpus-per-node 8"),
    ("local --port 80 train.py", "80 cannot be the rendezvous port", "--port 29400"),
    ("local --grace -1 train.py", "--grace -1", "Give seconds from 0 to 86400"),
    ("local --grace nan train.py", "--grace nan", "Give seconds from 0 to 86400"),
    ("local --grace soon train.py", "'soon'", "--grace"),
    ("local --name 'a\nb' train.py", "'a\\nb'", "one line"),
    ("local --name ../a train.py", "'../a' cannot be a job's name", "--name train"),
    ("local --nods 2 train.py", "No such option: --nods", "--nodes"),
    ("local --format yaml train.py", "there is no format 'yaml'", "rich, plain, json"),
    ("local --contract mpi train.py", "there is no contract 'mpi'", "modelarts, torchrun, env"),
    ("local --channels file train.py", "'file'", "option, variable"),
    ("local --flavor big train.py", "the flavor 'big' cannot be read", "GPU: 8*NVIDIA-V100"),
    ("local --env BAD-NAME=1 train.py", "'BAD-NAME'", "--env MY_NAME=value"),
    ("local --env =1 train.py", "''", "--env MY_NAME=value"),
    ("local --input data_url train.py", "--input 'data_url' names no path", "--input NAME=PATH"),
    ("local --output 'a b=c' train.py", "'a b' cannot be the name", "data_url="),
    ("local --command ''", "--command is empty", "/bin/sh"),
    ("local --command 'echo a' --epochs 5", "No such option: --epochs", "--help"),
    ("local --job nope.toml", "the job file nope.toml cannot be read", "--job"),
    ("local --job typo.toml", "typo.toml: there is no key 'nodez'", "Did you mean nodes?"),
    ("local --job text.toml", "text.toml is not TOML", "KEY = VALUE"),
    ("launch train.py", "No such command 'launch'", "slurm-adapter --help"),
    ("--nodes 2 train.py", "No such option: --nodes", "slurm-adapter --help"),
]
SBATCH = [
    ("", "nothing to run was given", "train.py"),
    ("--sbatch partiton=x train.py", "no long option 'partiton'", "Did you mean partition?"),
    ("--sbatch nodes=3 train.py", "nodes is set by slurm-adapter", "Use --nodes"),
    ("--sbatch job-name=a train.py", "job-name is set by slurm-adapter", "Use --name"),
    ("--sbatch export=NONE train.py", "export is set by slurm-adapter", "--env NAME=VALUE"),
    ("--sbatch ntasks-per-node=8 train.py", "ntasks-per-node is set by", "Use --contract"),
    ("--sbatch wrap=id train.py", "wrap is not a directive", "--command TEXT"),
    ("--sbatch test-only train.py", "test-only is not a directive", "--dry-run"),
    ("--sbatch partition train.py", "partition wants a value", "--sbatch partition=VALUE"),
    ("--sbatch requeue=yes train.py", "requeue takes no value, not 'yes'", "--sbatch requeue"),
    ("--sbatch time=1h train.py", "'1h' is not a time limit", "02:00:00"),
    ("--sbatch 'comment=a\nb' train.py", "comment holds a line break", "one line"),
    ("--sbatch output=%j/log train.py", "holds a % pattern", "logs/%x-%j.out"),
    ("--sbatch mem=1G --sbatch mem-per-cpu=1G train.py", "mem and mem-per-cpu", "Leave one"),
    ("--gpus-per-node 2 --sbatch gres=gpu:2 train.py", "gres=gpu:2", "Leave one"),
    ("--gpus-per-node 2 --sbatch gpus=4 train.py", "gpus=4", "Leave one"),
    ("--gpu-option gpus train.py", "ask for GPUs 'gpus'", "gpus-per-node, gres, none"),
    ("--exclusive --sbatch oversubscribe train.py", "oversubscribe exclude each", "Leave one"),
    ("--requeue --sbatch no-requeue train.py", "no-requeue exclude each other", "Leave one"),
    ("--venv a --conda b train.py", "venv and conda are two environments", "Give one of them"),
    ("--venv '' train.py", "--venv '' names no environment", "--venv ~/venv"),
    ("--conda -n train.py", "--conda '-n' names no environment", "--conda train"),
    ("--module 'gcc cuda' train.py", "'gcc cuda' cannot be a module's name", "--module gcc/12"),
    ("--module '' train.py", "'' cannot be a module's name", "--module gcc/12"),
    ("--prologue 'if true' train.py", "cannot be read by bash: line 2: syntax", "--prologue"),
    (
        "--prologue 'cat <<E' train.py",
        "cannot be read by bash: line 1: warning: here-doc",
        "--prologue",
    ),
    ("--prologue 'true \\' train.py", "ends in a backslash", "Take it out"),
    ("--prologue 'a\r\nb' train.py", "holds a byte that no batch script may", "line feed"),
    ("--prologue '#SBATCH --time=5' train.py", "would be passed over", "--sbatch NAME=VALUE"),
    ("--contract env train.py", "nothing says how many a node has", "--gpus-per-node N"),
    ("-N 2 --preview-nodes a,b,c train.py", "a,b,c names 3 nodes", "--nodes 3"),
    ("-N 2 --preview-nodes 'n[1-2' train.py", "'n[1-2' ends inside a bracket", "n[01-04]"),
]


def refused(folder: Path, words: list[str], found: str, remedy: str) -> None:
    """Check that a line is refused: two lines on stderr or three, nothing made."""
    before = set(folder.rglob("*"))
    done = adapter(*words, cwd=folder)
    assert (done.status, done.out) == (2, "")
    first, *rest = done.err.splitlines()
    assert first.startswith("slurm-adapter: ")
    assert found in first
    assert remedy in done.err
    assert len(rest) <= 2
    assert "Traceback" not in done.err
    assert set(folder.rglob("*")) == before


@pytest.mark.parametrize(("line", "found", "remedy"), LOCAL, ids=[ascii(row[0]) for row in LOCAL])
def test_is_refused(folder: Path, line: str, found: str, remedy: str) -> None:
    refused(folder, shlex.split(line), found, remedy)


@pytest.mark.parametrize(("line", "found", "remedy"), SBATCH, ids=[ascii(row[0]) for row in SBATCH])
def test_sbatch_refuses(folder: Path, line: str, found: str, remedy: str) -> None:
    refused(folder, ["sbatch", *shlex.split(line)], found, remedy)


class TestWithoutSlurm:
    def test_nothing_can_be_submitted(self, folder: Path) -> None:
        done = adapter("sbatch", "train.py", cwd=folder, env={"PATH": WITHOUT_SLURM})
        assert (done.status, done.out) == (3, "")
        assert "slurm-adapter: sbatch is not on this machine's PATH\n" in done.err
        assert "--script FILE" in done.err
        assert "slurm-adapter local" in done.err

    @pytest.mark.parametrize(
        ("data", "mode", "said"),
        [
            (b"#!/bin/sh\n", 0o644, "sbatch is not on this machine's PATH"),
            (b"\x7fELF of another machine", 0o755, "sbatch cannot be started: Exec format error"),
        ],
    )
    def test_one_that_does_not_run_is_told(
        self, folder: Path, data: bytes, mode: int, said: str
    ) -> None:
        tool = folder / "sbatch"
        tool.write_bytes(data)
        tool.chmod(mode)
        env = {"PATH": f"{folder}:{WITHOUT_SLURM}"}
        done = adapter("sbatch", "train.py", cwd=folder, env=env)
        assert (done.status, done.out) == (3, "")
        assert done.err.splitlines()[-2] == f"slurm-adapter: {said}"

    def test_scripts_can_be_written_and_shown(self, folder: Path) -> None:
        env = {"PATH": WITHOUT_SLURM}
        assert adapter("sbatch", "--script", "-", "train.py", cwd=folder, env=env).status == 0
        done = adapter("sbatch", "--dry-run", "--format", "json", "train.py", cwd=folder, env=env)
        assert "slurm" not in done.json


class TestHelp:
    def test_lists_the_commands(self, tmp_path: Path) -> None:
        done = adapter("--help", cwd=tmp_path)
        assert (done.status, done.err) == (0, "")
        for command in ("sbatch", "local", "exec", "env"):
            assert f"\n  {command} " in done.out
        assert adapter(cwd=tmp_path) == done

    @pytest.mark.parametrize(
        ("command", "options"),
        [
            ("local", "--nodes --gpus-per-node --flavor --code --contract --env --port --grace"),
            ("sbatch", "--job --sbatch --script --parsable --preview-nodes --dry-run --format"),
            ("sbatch", "--gpu-option --exclusive --requeue --module --venv --conda --prologue"),
            ("exec", "--boot --command --code --contract --env --port --gpus-per-node"),
            ("env", "--format --contract --env"),
        ],
    )
    def test_of_a_command_lists_its_options(
        self, tmp_path: Path, command: str, options: str
    ) -> None:
        done = adapter(command, "--help", cwd=tmp_path)
        assert (done.status, done.err) == (0, "")
        assert [option for option in options.split() if option not in done.out] == []

    def test_tells_the_version(self, tmp_path: Path) -> None:
        done = adapter("--version", cwd=tmp_path)
        assert (done.status, done.err) == (0, "")
        assert done.out == f"slurm-adapter {version('slurm-adapter')}\n"


class TestStandardOutput:
    """Where it cannot be written, that is told in a line like any other error."""

    @pytest.mark.parametrize(
        "line", ["--version", "sbatch --script - train.py", "local --dry-run train.py"]
    )
    def test_on_a_full_disk(self, folder: Path, line: str) -> None:
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [ADAPTER, *shlex.split(line)],
                cwd=folder,
                env=environment(),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode != 0
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr

    def test_that_nobody_reads_any_more(self, folder: Path) -> None:
        line = [ADAPTER, "local", "-N", "200", "--dry-run", "--format", "json", "train.py"]
        piped = subprocess.run(
            ["sh", "-c", '"$@" | head -n 1', "sh", *line],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert (piped.stdout, piped.stderr) == ("{\n", "")

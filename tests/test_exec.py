"""`slurm-adapter exec` as a process: what a rank becomes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from one_task import ADAPTER, ALONE, JOB_NAME, PATH, Done, run_in
from testbed.child import Child

Exec = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Exec:
    """Give `slurm-adapter exec WORDS...` in a folder of its own."""
    return lambda *words, stdin=None: run_in(tmp_path, [ADAPTER, "exec", *words], ALONE, stdin)


def test_becomes_the_command_itself(tmp_path: Path) -> None:
    with Child(
        [ADAPTER, "exec", "--", "sh", "-c", "echo $$; read go"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ALONE,
        cwd=tmp_path,
        text=True,
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == f"{child.pid}\n"
        process = Path(f"/proc/{child.pid}")
        assert (process / f"task/{child.pid}/children").read_text() == ""
        assert sorted(file.name for file in (process / "fd").iterdir()) == ["0", "1", "2"]


@pytest.mark.parametrize("status", [0, 1, 2, 42, 255])
def test_ends_with_the_commands_own_status(run: Exec, status: int) -> None:
    assert run("--", "sh", "-c", f"exit {status}").returncode == status


def test_ends_by_the_commands_own_signal(run: Exec) -> None:
    assert run("--", "sh", "-c", "kill -TERM $$").returncode == -15


def test_hands_arguments_over_byte_for_byte(run: Exec) -> None:
    hostile = ["", " ", "--", "--env", "-h", "a b", "'", '"', "$HOME", "`id`", "\\", "*", "\n"]
    hostile += ["é", "\udcff", "--x=y"]
    done = run("--", "printf", "%s\\0", *hostile)
    assert done.stdout.split("\0")[:-1] == hostile


def test_hands_its_streams_over(run: Exec) -> None:
    done = run("--", "sh", "-c", "cat; echo err >&2", stdin="typed\n")
    assert (done.stdout, done.stderr) == ("typed\n", "err\n")


def test_hands_its_environment_over_with_nothing_of_the_interpreters_own(tmp_path: Path) -> None:
    plain = {name: value for name, value in ALONE.items() if name != "LANG"}
    argv = [ADAPTER, "exec", "--contract", "env", "--", "env", "-0"]
    shown = run_in(tmp_path, argv, plain).stdout.split("\0")[:-1]
    assert {entry.partition("=")[0] for entry in shown} - set(plain) == {
        *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        *("NODE_RANK", "NNODES", "SLURM_ADAPTER_INIT_METHOD", "PYTHONUNBUFFERED"),
    }


def test_hands_its_folder_over(run: Exec, tmp_path: Path) -> None:
    assert run("--", "pwd").stdout == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        (["--contract", "modelarts"], "/home/ma-user"),
        (["--contract", "modelarts", "--view", "off"], "{here}/slurm-adapter/job"),
        (["--contract", "env"], "{here}/slurm-adapter/job"),
    ],
    ids=["modelarts", "modelarts without a view", "env"],
)
def test_runs_a_boot_command_in_the_jobs_folder(
    run: Exec, tmp_path: Path, options: list[str], folder: str
) -> None:
    done = run(*options, "--command", 'pwd; echo "$1"; echo mine >written', "--", "a b")
    assert (done.stdout, done.stderr) == (f"{folder.format(here=tmp_path)}\na b\n", "")
    assert (tmp_path / "slurm-adapter/job/written").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("view", "code", "appended"),
    [
        (
            "full",
            "/home/ma-user/modelarts/user-job-dir/code",
            f"--init_method tcp://{JOB_NAME}-worker-0.{JOB_NAME}:10012"
            " --data_url=/home/ma-user/modelarts/inputs/data_url_0",
        ),
        ("off", "{here}/code", "--init_method tcp://localhost:10012 --data_url={here}/data"),
    ],
)
def test_runs_a_boot_file_in_its_folder(
    run: Exec, tmp_path: Path, view: str, code: str, appended: str
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "code/show.py").write_text("import os, sys\nprint(os.getcwd(), *sys.argv)\n")
    options = ["--python", sys.executable, "--input", "data_url=data", "--gpus-per-node", "2"]
    done = run("--boot", "code/show.py", "--view", view, *options, "--", "--epochs", "5")
    shown = f"{code} {code}/show.py {appended} --epochs 5\n"
    assert done.stdout == shown.format(here=tmp_path)


def test_runs_a_boot_file_named_relative_to_the_code(run: Exec, tmp_path: Path) -> None:
    (tmp_path / "my code/tools").mkdir(parents=True)
    (tmp_path / "my code/tools/show.py").write_text("import os\nprint(os.getcwd())\n")
    options = ["--python", sys.executable, "--code", "my code"]
    done = run("--boot", "tools/show.py", *options)
    assert done.stdout == "/home/ma-user/modelarts/user-job-dir/my code\n"
    done = run("--boot", "tools/show.py", *options, "--view", "off")
    assert done.stdout == f"{tmp_path}/my code\n"


def test_makes_the_log_folder_for_the_user_alone(run: Exec, tmp_path: Path) -> None:
    assert run("--name", "train", "--", "true").returncode == 0
    assert (tmp_path / "slurm-adapter/train/log").stat().st_mode & 0o777 == 0o700


def test_finds_the_program_on_the_ranks_own_path(run: Exec, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/mine"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    assert run("--env", f"PATH={tmp_path}/bin:{PATH}", "--", "mine").stdout == "mine\n"


def test_lists_its_options(run: Exec) -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--boot FILE" in done.stdout


def test_works_without_the_heads_command_line(tmp_path: Path) -> None:
    node = [sys.executable, "-m", "slurm_adapter.node", "exec", "--", "printenv", "VC_TASK_INDEX"]
    done = run_in(tmp_path, node, ALONE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.parametrize(("contract", "made"), [("modelarts", ["slurm-adapter"]), ("env", [])])
def test_makes_the_jobs_folder_only_where_a_rank_is_told_of_it(
    run: Exec, tmp_path: Path, contract: str, made: list[str]
) -> None:
    assert run("--contract", contract, "--", "true").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == made


def test_leaves_signals_as_they_were(tmp_path: Path) -> None:
    """Python ignores SIGPIPE and SIGXFSZ for itself; a rank must not inherit that."""
    status = ["sh", "-c", "grep -E '^Sig(Ign|Blk)' /proc/self/status"]
    plain = run_in(tmp_path, status, ALONE)
    assert run_in(tmp_path, [ADAPTER, "exec", "--", *status], ALONE).stdout == plain.stdout

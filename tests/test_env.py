"""`slurm-adapter env`: the rank's variables as a table with reasons, or for a program to read."""

import json
import os
import shutil
import subprocess
import sys
import zipapp
from collections.abc import Callable
from pathlib import Path

import pytest

import slurm_adapter
from one_task import ADAPTER, ALONE, JOB_NAME, Done, run_in
from testbed.child import Child

HOSTILE = {
    "MY_QUOTES": 'it\'s "so" `id`',
    "MY_DOLLAR": "$HOME ${x} $(id) \\$",
    "MY_LINES": "a\n b\n\nc\n",
    "MY_MARKS": "* ? [a] {b,c} ~ ! # & ; | < > ( ) = %",
    "MY_SPACES": "  a \t ",
    "MY_EMPTY": "",
    "MY_WORDS": "é 日本語",
    "MY_BYTES": "\udcff\udc80",
    "MY_ESCAPE": "\x1b[31m\x7f",
}
GIVEN = [word for name, value in HOSTILE.items() for word in ("--env", f"{name}={value}")]
# What a shell or `env` sets by itself.
OF_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_", "LOGNAME"}

Env = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Env:
    """Give `slurm-adapter env WORDS...` in a folder of its own."""
    return lambda *words: run_in(tmp_path, [ADAPTER, "env", *words], ALONE)


def environment(done: Done) -> dict[str, str]:
    """Return what `env -0` printed."""
    assert (done.returncode, done.stderr) == (0, "")
    pairs = (entry.split("=", 1) for entry in done.stdout.split("\0")[:-1])
    return {name: value for name, value in pairs if name not in OF_THE_SHELL}


class TestShellFormat:
    @pytest.mark.parametrize("contract", ["modelarts", "env"])
    @pytest.mark.parametrize("shell", ["sh", "bash --norc", "zsh -f"])
    def test_makes_of_a_shell_what_exec_makes_of_a_process(
        self, run: Env, tmp_path: Path, shell: str, contract: str
    ) -> None:
        argv = shell.split()
        if not shutil.which(argv[0]):
            pytest.skip(f"{argv[0]} is not installed")
        words = ["--contract", contract, *GIVEN]
        script = run(*words, "--format", "shell").stdout
        evaluated = run_in(tmp_path, argv, ALONE, f"{script}\nexec env -0\n")
        # A shell that evaluates text stays in the machine's own surroundings.
        executing = [ADAPTER, "exec", "--view", "off", *words, "--", "env", "-0"]
        executed = run_in(tmp_path, executing, ALONE)
        assert environment(evaluated) == environment(executed)
        assert HOSTILE.items() <= environment(evaluated).items()

    @pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
    def test_is_the_same_whatever_encoding_python_is_told(
        self, run: Env, tmp_path: Path, encoding: str
    ) -> None:
        words = ["--contract", "env", *GIVEN, "--format", "shell"]
        told = run_in(tmp_path, [ADAPTER, "env", *words], {**ALONE, "PYTHONIOENCODING": encoding})
        assert (told.stdout, told.stderr) == (run(*words).stdout, "")

    def test_unsets_what_the_contract_takes_out(self, run: Env) -> None:
        first, *_ = run("--format", "shell").stdout.splitlines()
        assert first == (
            "unset SLURM_LOCALID SLURM_NODEID SLURM_PROCID SLURM_STEP_ID SLURM_STEP_NODELIST"
            " SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE"
        )


def test_dotenv_format_quotes_for_its_readers(run: Env) -> None:
    values = {"A": "it's", "B": 'say "hi"', "C": "$HOME", "D": "a\\nb", "E": "a\nb\n", "F": ""}
    given = [word for name, value in values.items() for word in ("--env", f"{name}={value}")]
    lines = run("--contract", "env", *given, "--format", "dotenv").stdout.splitlines()
    assert [line for line in lines if line.partition("=")[0] in values] == [
        'A="it\'s"',
        'B="say \\"hi\\""',
        "C='$HOME'",
        'D="a\\\\nb"',
        'E="a\\nb\\n"',
        'F=""',
    ]
    assert 'WORLD_SIZE="1"' in lines


def test_json_format_is_one_document(run: Env) -> None:
    done = run("--contract", "env", *GIVEN, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "schema": 1,
        "set": {
            "PYTHONUNBUFFERED": "1",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "10012",
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "NODE_RANK": "0",
            "NNODES": "1",
            "SLURM_ADAPTER_INIT_METHOD": "tcp://localhost:10012",
            **HOSTILE,
        },
        "removed": [],
    }


class TestTable:
    def test_gives_each_value_its_reason(self, run: Env) -> None:
        rows = run("--contract", "env").stdout.splitlines()
        assert [" ".join(row.split()) for row in rows[1:4]] == [
            "MASTER_ADDR localhost the node of rank 0",
            "MASTER_PORT 10012 10000 to 32767, from job 12 and step 0",
            "RANK 0 rank 0 of 1",
        ]

    def test_lists_what_was_taken_out(self, run: Env) -> None:
        *_, last = run().stdout.splitlines()
        assert last == (
            "taken out: SLURM_LOCALID SLURM_NODEID SLURM_PROCID SLURM_STEP_ID SLURM_STEP_NODELIST"
            " SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE"
        )

    def test_masks_secrets(self, run: Env) -> None:
        secrets = ("WANDB_API_KEY", "HF_TOKEN", "my_secret", "DB_PASSWORD")
        given = [word for name in secrets for word in ("--env", f"{name}=s3cret")]
        shown = run(*given).stdout
        assert "s3cret" not in shown
        rows = [" ".join(row.split()) for row in shown.splitlines()]
        assert {f"{name} ******** set by you" for name in secrets} <= set(rows)

    def test_stays_one_line_a_variable(self, run: Env) -> None:
        plain = run("--contract", "env").stdout.splitlines()
        hostile = run("--contract", "env", *GIVEN).stdout
        assert len(hostile.splitlines()) == len(plain) + len(HOSTILE)
        assert all(text.isprintable() for text in hostile.splitlines())

    def test_may_be_cut_off_by_its_reader(self, tmp_path: Path) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with Child(
            [ADAPTER, "env"], stdout=writer, stderr=subprocess.PIPE, env=ALONE, cwd=tmp_path
        ) as child:
            os.close(writer)
            assert child.communicate() == (None, b"")


def test_the_node_side_runs_from_one_file_on_a_bare_interpreter(tmp_path: Path) -> None:
    package = Path(slurm_adapter.__file__).parent
    heads = shutil.ignore_patterns(
        "__pycache__", "cli", "show", "launch", "remote", "config", "torch.py"
    )
    shutil.copytree(package, tmp_path / "app/slurm_adapter", ignore=heads)
    start = "import sys\nfrom slurm_adapter.node.step.main import main\nsys.exit(main())\n"
    (tmp_path / "app/__main__.py").write_text(start)
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    bare = [str(Path(sys.executable).resolve()), "-I", "-S", "app.pyz"]
    done = run_in(tmp_path, [*bare, "env", "--format", "json"], ALONE)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)["set"]
    assert (told["MA_VJ_NAME"], told["VC_WORKER_HOSTS"]) == (JOB_NAME, "localhost")
    show = ["sh", "-c", "printenv MA_NUM_HOSTS; uname -n"]
    done = run_in(tmp_path, [*bare, "exec", "--", *show], ALONE)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"1\n{JOB_NAME}-worker-0\n", "")

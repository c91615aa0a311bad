"""What `slurm-adapter exec` and `env` say where they cannot start a rank: facts and remedy."""

import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from one_task import (
    ADAPTER,
    ALONE,
    FIRST_OF_TWO,
    PATH,
    SECOND_OF_TWO,
    Done,
    refusal,
    run_in,
)

BATCH = {"PATH": PATH, "SLURM_JOB_ID": "12", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
ENV_CONTRACT = ("exec", "--contract", "env", "--", "true")

Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Give `slurm-adapter WORDS...` in a folder of its own."""

    def run(*words: str, env: Mapping[str, str] = ALONE) -> Done:
        return run_in(tmp_path, [ADAPTER, *words], env)

    return run


class TestNoStep:
    def test_outside_slurm_gives_the_srun_line(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "my train.py").touch()
        words = ["exec", "--boot", "my train.py", "--", "--lr=1e-3", "$HOME"]
        stderr = refusal(run(*words, env={"PATH": PATH}), 2)
        assert "was not started by Slurm" in stderr
        srun = "srun --nodes=2 --ntasks=2 --kill-on-bad-exit=1"
        typed = "slurm-adapter exec --boot 'my train.py' -- --lr=1e-3 '$HOME'\n"
        assert stderr.endswith(f"{srun} {typed}")

    @pytest.mark.parametrize("action", ["exec", "env"])
    def test_sl_07_in_a_batch_script_gives_the_srun_line(self, run: Run, action: str) -> None:
        stderr = refusal(run(action, "--contract", "env", "--", "run.sh", env=BATCH), 2)
        assert "this is a batch script (job 12), not a task of a step" in stderr
        srun = "srun --kill-on-bad-exit=1"
        assert stderr.endswith(f"{srun} slurm-adapter {action} --contract env -- run.sh\n")

    @pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_NUM_TASKS"])
    def test_with_broken_variables_names_them(self, run: Run, name: str) -> None:
        env = {**ALONE, name: "first"}
        assert f"{name}='first'" in refusal(run("exec", "--", "true", env=env), 2)


class TestWrongWords:
    @pytest.mark.parametrize(
        ("words", "found"),
        [
            ("exec", "nothing to run was given"),
            ("exec --", "nothing to run was given"),
            ("exec train.py", "'train.py' is no option"),
            ("exec --bogus -- true", "'--bogus' is no option"),
            ("exec --format json -- true", "'--format' is no option"),
            ("exec --port 80 -- true", "80 cannot be the rendezvous port"),
            ("exec --port x -- true", "argument --port: invalid int value: 'x'"),
            ("exec --port -- true", "argument --port: expected one argument"),
            ("exec --contract mpi -- true", "argument --contract: invalid choice: 'mpi'"),
            ("exec --gpus-per-node -1 -- true", "-1 GPUs per node"),
            ("exec --env BAD-NAME=1 -- true", "'BAD-NAME' cannot be the name"),
            ("exec --env =1 -- true", "'' cannot be the name"),
            ("exec --input data_url -- true", "--input 'data_url' names no path"),
            ("exec --name ../x -- true", "'../x' cannot be a job's name"),
            ("exec --boot a.py --command b", "--boot and --command are two programs"),
            ("exec --boot missing.py", "there is no boot file 'missing.py' in "),
            ("exec --boot .", " is a directory, not a boot file"),
            ("exec --code missing -- true", "there is no code directory "),
            ("env --format yaml", "argument --format: invalid choice: 'yaml'"),
        ],
    )
    def test_are_named(self, run: Run, words: str, found: str) -> None:
        assert found in refusal(run(*words.split(" ")), 2)

    def test_are_named_by_the_node_sides_own_command_line(self, tmp_path: Path) -> None:
        done = run_in(tmp_path, [sys.executable, "-m", "slurm_adapter.node", "start"], ALONE)
        assert "'start' is no action" in refusal(done, 2)

    @pytest.mark.parametrize("port", ["99999", "\u00b2"])
    def test_in_master_port_are_named(self, run: Run, port: str) -> None:
        env = {**FIRST_OF_TWO, "MASTER_PORT": port}
        assert port in refusal(run(*ENV_CONTRACT, env=env), 2)


class TestAnUnfitNode:
    def test_without_the_program_tells_the_path(self, run: Run) -> None:
        stderr = refusal(run("exec", "--", "no-such-program"), 3)
        assert f"no-such-program is not a program on this node (PATH={PATH})" in stderr

    def test_without_an_interpreter_tells_the_option(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        env = {**ALONE, "PATH": str(tmp_path)}
        stderr = refusal(run("exec", "--boot", "train.py", env=env), 3)
        assert "python is not a program on this node" in stderr
        assert "--python /path/to/python" in stderr

    def test_with_a_file_that_cannot_run_tells_why(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "plain").write_text("no program")
        assert "./plain is not a program" in refusal(run("exec", "--", "./plain"), 3)
        (tmp_path / "plain").chmod(0o755)
        assert "Exec format error" in refusal(run("exec", "--", "./plain"), 3)

    def test_whose_folder_is_gone_tells_so(self, tmp_path: Path) -> None:
        gone = f"mkdir gone; cd gone; rmdir ../gone; exec {ADAPTER} exec -- true"
        stderr = refusal(run_in(tmp_path, ["sh", "-c", gone], ALONE), 3)
        assert "No such file or directory" in stderr

    def test_that_cannot_reach_the_others_names_them(self, run: Run) -> None:
        nodes = {"SLURM_STEP_NODELIST": "localhost,n02.invalid"}
        tasks = {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_NUM_TASKS": "2"}
        stderr = refusal(run(*ENV_CONTRACT, env={**ALONE, **nodes, **tasks}), 3)
        assert "cannot reach n02.invalid" in stderr

    def test_where_the_port_is_taken_names_it(self, run: Run) -> None:
        with socket.create_server(("0.0.0.0", 0)) as taken:
            port = str(taken.getsockname()[1])
            words = ("exec", "--contract", "env", "--port", port, "--", "true")
            stderr = refusal(run(*words, env=FIRST_OF_TWO), 3)
            assert f"port {port} on {socket.gethostname()} is taken" in stderr
            assert "--port" in stderr
            # Only where it matters: on rank 0's node, and where ranks must meet at all.
            assert run(*words, env=SECOND_OF_TWO).returncode == 0
            assert run(*words, env=ALONE).returncode == 0

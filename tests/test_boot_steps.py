"""What ModelArts does around a boot file: packages, `ma-pre-start.sh`, a log file for each node."""

import sys
import zipfile
from pathlib import Path

import pytest

from commandline import BIN, adapter
from conftest import User, read_worker_logs

PRE_START = """\
echo "arguments $#, in $PWD, I am $0"
export FROM_PRE_START="it's set"
cd /tmp
set -- lost
"""
SHOW = """\
import os, sys
print(os.environ.get("FROM_PRE_START"), os.getcwd(), sys.argv[1:], os.getppid(), flush=True)
print("on stderr", file=sys.stderr, flush=True)
print("on stdout", flush=True)
"""
FIRST_WAITS_SECOND_FAILS = (
    'if test "$VC_TASK_INDEX" = 0; then touch "$MA_HOME/ready"; exec sleep 1000; fi;'
    ' until test -e "$MA_HOME/ready"; do :; done; exit {}'
)
TINY = "tiny-1.0-py3-none-any.whl"
USE = """\
import tiny, torch
print("tiny", tiny.__file__, torch.__version__)
"""


def write_wheel(path: Path) -> None:
    """Write a package of one module, as pip takes it without any index."""
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")


class TestPreStart:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "show.py").write_text(SHOW)
        (tmp_path / "ma-pre-start.sh").write_text(PRE_START)
        return tmp_path

    def test_gives_the_boot_file_its_variables_and_nothing_else(self, folder: Path) -> None:
        done = adapter("local", "show.py", "--epochs", "5 or so", cwd=folder)
        code = f"/home/ma-user/modelarts/user-job-dir/{folder.name}"
        first, second, *_ = done.out.splitlines()
        assert first == f"[0] arguments 0, in {code}, I am {code}/ma-pre-start.sh"
        assert second.startswith(f"[0] it's set {code} ['--epochs', '5 or so'] ")

    def test_leaves_no_shell_behind(self, folder: Path) -> None:
        (folder / "show.py").write_text(
            "import os\nprint(open(f'/proc/{os.getppid()}/comm').read())"
        )
        done = adapter("local", "show.py", cwd=folder)
        assert "[0] slurm-adapter\n" in done.out

    def test_ends_the_rank_where_it_says_so(self, folder: Path) -> None:
        (folder / "ma-pre-start.sh").write_text("exit 9\n")
        done = adapter("local", "show.py", cwd=folder)
        assert (done.status, done.out) == (9, "")

    @pytest.mark.parametrize(
        "words", [["--contract", "env", "show.py"], ["--command", "echo started"]]
    )
    def test_belongs_to_boot_files_of_modelarts(self, folder: Path, words: list[str]) -> None:
        done = adapter("local", *words, cwd=folder)
        assert done.status == 0
        assert "I am" not in done.out


class TestRequirements:
    def test_are_there_for_the_run_alone(self, user: User) -> None:
        """On every node; what the interpreter has counts, its own packages stay as they are."""
        wheel = user.outside(TINY)
        write_wheel(wheel)
        user.write("pip-requirements.txt", f"torch\n./{TINY}\n")
        user.write("use.py", USE)
        site = BIN.parent / f"lib/python3.{sys.version_info[1]}/site-packages"
        before = sorted(site.iterdir())
        job_id = user.run(
            "slurm-adapter", "sbatch", "-N2", "--parsable", "--install-requirements", "use.py"
        )
        end = user.finish(job_id)
        logs = user.outputs("use")
        assert end.state == "COMPLETED", logs
        for log in logs:
            assert "Requirement already satisfied: torch" in log
            assert "Successfully installed tiny-1.0" in log
            assert f"tiny {user.folder}/slurm-adapter/use/run/ma-job-" in log
        assert sorted(site.iterdir()) == before
        assert not user.outside("slurm-adapter/use/run").exists()

    def test_are_each_ranks_own_where_a_node_has_several(self, user: User) -> None:
        write_wheel(user.outside(TINY))
        user.write("pip-requirements.txt", f"./{TINY}\n")
        user.write("use.py", "import tiny\nprint(tiny.__file__)\n")
        job_id = user.run(
            *("slurm-adapter", "sbatch", "--contract", "env", "--gpus-per-node", "2"),
            *("--parsable", "--install-requirements", "use.py"),
        )
        end = user.finish(job_id)
        log = user.log("slurm-adapter/use/log/*.out")
        assert end.state == "COMPLETED", log
        for local_rank in range(2):
            assert f"/worker-0/packages-{local_rank}/site-packages/tiny.py\n" in log
        assert not user.outside("slurm-adapter/use/run").exists()

    def test_are_installed_whatever_the_users_pip_is_set_to(self, tmp_path: Path) -> None:
        write_wheel(tmp_path / TINY)
        (tmp_path / "pip-requirements.txt").write_text(f"./{TINY}\n")
        (tmp_path / "use.py").write_text("import tiny\nprint(tiny.__file__)\n")
        env = {"PIP_USER": "1", "PIP_TARGET": str(tmp_path / "elsewhere")}
        done = adapter("local", "--install-requirements", "use.py", cwd=tmp_path, env=env)
        assert done.status == 0, done.err
        assert done.out.startswith(f"[0] {tmp_path}/slurm-adapter/use/run/ma-job-")
        assert not (tmp_path / "slurm-adapter/use/run").exists()

    def test_that_cannot_be_had_stop_the_start(self, tmp_path: Path) -> None:
        (tmp_path / "use.py").write_text("print('started')")
        (tmp_path / "pip-requirements.txt").write_text("./is-not-there.whl\n")
        done = adapter("local", "--install-requirements", "use.py", cwd=tmp_path)
        assert (done.status, done.out) == (3, "")
        assert "pip-requirements.txt could not be installed: pip ended with status 1" in done.err
        assert "is-not-there.whl" in done.err

    def test_are_installed_only_where_that_is_asked_for(self, tmp_path: Path) -> None:
        (tmp_path / "use.py").write_text("print('started')")
        (tmp_path / "pip-requirements.txt").write_text("./is-not-there.whl\n")
        assert adapter("local", "use.py", cwd=tmp_path).out == "[0] started\n"

    def test_must_be_listed(self, tmp_path: Path) -> None:
        (tmp_path / "use.py").write_text("")
        for command in ("local", "sbatch"):
            done = adapter(command, "--install-requirements", "use.py", cwd=tmp_path)
            assert done.status == 2
            assert f"there is no {tmp_path}/pip-requirements.txt" in done.err


class TestTheLog:
    def test_holds_both_streams_in_order_and_the_return_code(self, user: User) -> None:
        lines = "".join(f"echo out {n}; echo err {n} >&2; " for n in range(50))
        job_id = user.run(
            *("slurm-adapter", "sbatch", "-N2", "--parsable", "--name", "t"),
            *("--command", lines + FIRST_WAITS_SECOND_FAILS.format(7)),
        )
        assert user.finish(job_id).exit_status == 7
        written = "".join(f"out {n}\nerr {n}\n" for n in range(50))
        first, second = user.outputs("t")
        assert first == f"{written}slurm-adapter: worker-0 ended, return code 143\n"
        assert second == f"{written}slurm-adapter: worker-1 ended, return code 7\n"
        said = user.log("slurm-adapter/t/log/t-*.out")
        assert "slurm-adapter: rank 1 on gpu-n01 failed first: Exited with exit code 7\n" in said
        assert "worker-1.log:\n  out 45\n  err 45\n" in said

    def test_is_named_like_the_job(self, user: User) -> None:
        job_id = user.run("slurm-adapter", "sbatch", "--parsable", "--command", "echo $MA_VJ_NAME")
        assert user.finish(job_id).state == "COMPLETED"
        (path,) = user.outside("slurm-adapter/job/log").glob("modelarts-job-*")
        name, _ = path.read_text().splitlines()
        assert path.name == f"{name.replace('ma-job-', 'modelarts-job-')}-worker-0.log"

    def test_is_written_on_this_machine_too(self, tmp_path: Path) -> None:
        command = 'echo "I am $VC_TASK_INDEX"; ' + FIRST_WAITS_SECOND_FAILS.format(5)
        done = adapter("local", "-N", "2", "--command", command, cwd=tmp_path)
        assert done.status == 5
        assert read_worker_logs(tmp_path / "slurm-adapter/job/log") == [
            "I am 0\nslurm-adapter: worker-0 ended, return code 143\n",
            "I am 1\nslurm-adapter: worker-1 ended, return code 5\n",
        ]

    def test_ends_with_its_last_line_whatever_a_rank_leaves_running(self, tmp_path: Path) -> None:
        late = "trap '' TERM; echo >deaf; while kill -0 $$ 2>&-; do :; done; echo late"
        command = f"mkfifo deaf; ({late}) & read _ <deaf; exit 0"
        done = adapter("local", "--command", command, cwd=tmp_path)
        assert done.status == 0
        (log,) = read_worker_logs(tmp_path / "slurm-adapter/job/log")
        assert log == "late\nslurm-adapter: worker-0 ended, return code 0\n"

    def test_is_a_step_of_ones_own_writing_too(self, user: User) -> None:
        step = ["srun", "-N2", "--ntasks-per-node=1", "slurm-adapter", "exec", "--log"]
        assert user.run(*step, "--", "sh", "-c", "echo node $VC_TASK_INDEX") == ""
        assert user.outputs("job") == ["node 0\n", "node 1\n"]

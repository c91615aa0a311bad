"""`slurm-adapter local`: the ranks of several nodes, as processes of this machine."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from commandline import ADAPTER, BIN, adapter, running

SHOW = """\
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))
"""
HYGIENE = Path(__file__).parent / "scripts/hygiene.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a boot file that shows its arguments, variables and directory."""
    (tmp_path / "show.py").write_text(SHOW)
    return tmp_path


def ranks(folder: Path, *words: str, **env: str) -> list[tuple[list[str], dict[str, str], str]]:
    """Run show.py and return what each rank showed, in rank order."""
    done = adapter("local", *words, cwd=folder, env=env)
    assert (done.status, done.err) == (0, "")
    lines = sorted(done.out.splitlines())
    shown: list[Any] = [json.loads(line.partition("] ")[2]) for line in lines]
    return [(argv, variables, cwd) for argv, variables, cwd in shown]


def variables(folder: Path, *words: str, **env: str) -> list[dict[str, str]]:
    return [shown for _, shown, _ in ranks(folder, *words, "show.py", **env)]


class TestEachNode:
    def test_has_an_address_of_its_own(self, folder: Path) -> None:
        shown = variables(folder, "--nodes", "3")
        addresses = ["127.0.0.10", "127.0.0.11", "127.0.0.12"]
        assert [rank["MA_CURRENT_IP"] for rank in shown] == addresses
        (name,) = {rank["MA_VJ_NAME"] for rank in shown}
        names = [f"{name}-worker-{index}.{name}" for index in range(3)]
        assert {rank["VC_WORKER_HOSTS"] for rank in shown} == {",".join(names)}
        shown = variables(folder, "--nodes", "3", "--view", "off")
        assert [rank["MA_CURRENT_IP"] for rank in shown] == addresses
        assert {rank["VC_WORKER_HOSTS"] for rank in shown} == {",".join(addresses)}

    def test_has_its_index(self, folder: Path) -> None:
        shown = variables(folder, "--nodes", "3")
        assert [rank["VC_TASK_INDEX"] for rank in shown] == ["0", "1", "2"]
        assert {rank["MA_NUM_HOSTS"] for rank in shown} == {"3"}
        names = {rank["MA_VJ_NAME"] for rank in shown}
        assert len(names) == 1
        assert [rank["HOSTNAME"] for rank in shown] == [
            f"{name}-worker-{index}" for name in names for index in range(3)
        ]

    def test_has_the_gpus_it_pretends_to_have(self, folder: Path) -> None:
        shown = variables(folder, "--nodes", "2", "--gpus-per-node", "8")
        assert [rank["MA_NUM_GPUS"] for rank in shown] == ["8", "8"]

    def test_gets_its_share_of_the_devices_of_this_machine(self, folder: Path) -> None:
        shown = variables(folder, "--nodes", "2", CUDA_VISIBLE_DEVICES="0,1,2,3")
        assert [rank["CUDA_VISIBLE_DEVICES"] for rank in shown] == ["0,1", "2,3"]
        assert [rank["MA_NUM_GPUS"] for rank in shown] == ["2", "2"]

    def test_gets_its_share_of_devices_that_have_names(self, folder: Path) -> None:
        shown = variables(folder, "--nodes", "2", CUDA_VISIBLE_DEVICES="GPU-aa,MIG-b/1/0")
        assert [rank["CUDA_VISIBLE_DEVICES"] for rank in shown] == ["GPU-aa", "MIG-b/1/0"]

    def test_gets_no_more_devices_than_there_are(self, folder: Path) -> None:
        words = ["--nodes", "2", "--gpus-per-node", "4", "show.py"]
        done = adapter("local", *words, cwd=folder, env={"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
        assert (done.status, done.out) == (3, "")
        assert "2 nodes with 4 GPUs each need 8, this machine has 4" in done.err
        assert "--gpus-per-node 2" in done.err


class TestTheEnvContract:
    def test_gives_each_gpu_a_rank(self, folder: Path) -> None:
        words = ["--nodes", "2", "--gpus-per-node", "2", "--contract", "env"]
        shown = variables(folder, *words)
        assert [rank["RANK"] for rank in shown] == ["0", "1", "2", "3"]
        assert [rank["LOCAL_RANK"] for rank in shown] == ["0", "1", "0", "1"]
        assert [rank["NODE_RANK"] for rank in shown] == ["0", "0", "1", "1"]
        assert {rank["WORLD_SIZE"] for rank in shown} == {"4"}
        assert {rank["LOCAL_WORLD_SIZE"] for rank in shown} == {"2"}
        assert {rank["MASTER_ADDR"] for rank in shown} == {"127.0.0.10"}

    def test_lets_every_rank_see_all_devices_of_its_node(self, folder: Path) -> None:
        words = ["--nodes", "2", "--contract", "env"]
        shown = variables(folder, *words, CUDA_VISIBLE_DEVICES="0,1,2,3")
        assert [rank["CUDA_VISIBLE_DEVICES"] for rank in shown] == ["0,1", "0,1", "2,3", "2,3"]


class TestTheScript:
    def test_gets_its_own_arguments_byte_for_byte(self, folder: Path) -> None:
        args = ["--epochs", "5", "", "two\nlines", "it's $HOME", "*", "é\udcff", "--nodes", "--"]
        ((argv, _, _),) = ranks(folder, "show.py", *args)
        assert argv == args

    @pytest.mark.parametrize(
        ("view", "master"), [("full", "{name}-worker-0.{name}"), ("off", "127.0.0.10")]
    )
    def test_gets_what_modelarts_appends_before_them(
        self, folder: Path, view: str, master: str
    ) -> None:
        shown = ranks(folder, "--nodes", "2", "--view", view, "show.py", "--epochs", "5")
        method = shown[0][1]["SLURM_ADAPTER_INIT_METHOD"]
        assert method.startswith(f"tcp://{master.format(name=shown[0][1]['MA_VJ_NAME'])}:")
        for index, (argv, _, _) in enumerate(shown):
            place = ["--init_method", method, "--rank", str(index), "--world_size", "2"]
            assert argv == [*place, "--epochs", "5"]

    def test_runs_in_the_code_directory(self, folder: Path) -> None:
        (folder / "elsewhere").mkdir()
        code = str(folder)
        ((_, shown, cwd),) = ranks(folder / "elsewhere", "--code", code, "show.py")
        job_dir = "/home/ma-user/modelarts/user-job-dir"
        assert (cwd, shown["MA_JOB_DIR"]) == (f"{job_dir}/{folder.name}", job_dir)
        words = ["--code", code, "--view", "off", "show.py"]
        ((_, shown, cwd),) = ranks(folder / "elsewhere", *words)
        assert (cwd, shown["MA_JOB_DIR"]) == (code, str(folder.parent))

    def test_is_given_variables(self, folder: Path) -> None:
        options = ["--env", "A=it's\n$HOME", "--env", "RANK", "--env", "EMPTY="]
        (shown,) = variables(folder, *options, RANK="7", NODE_RANK="7")
        assert (shown["A"], shown["RANK"], shown["EMPTY"]) == ("it's\n$HOME", "7", "")
        assert "NODE_RANK" not in shown

    def test_finds_nothing_of_an_outer_launcher(self, folder: Path) -> None:
        outer = {"MASTER_ADDR": "x", "RANK": "7", "WORLD_SIZE": "8", "NNODES": "2"}
        outer |= {"NODE_RANK": "1", "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}
        done = adapter("local", "-N", "2", str(HYGIENE), cwd=folder, env=outer)
        assert (done.status, done.err) == (0, "")
        assert sorted(done.out.splitlines()) == ["[0] found []", "[1] found []"]

    def test_is_run_by_the_interpreter_that_is_named(self, folder: Path) -> None:
        python = folder / "my python"
        python.write_text(f'#!/bin/sh\nMINE=yes exec {BIN}/python "$@"\n')
        python.chmod(0o755)
        (shown,) = variables(folder, "--python", str(python))
        assert shown["MINE"] == "yes"

    @pytest.mark.parametrize("python", ["python9", "/nowhere/python", "show.py"])
    def test_is_not_run_without_an_interpreter(self, folder: Path, python: str) -> None:
        done = adapter("local", "--python", python, "show.py", cwd=folder)
        assert (done.status, done.out) == (3, "")
        assert python in done.err
        assert len(done.err.splitlines()) == 2


class TestACommand:
    @pytest.mark.parametrize(
        ("view", "home"), [("full", "/home/ma-user"), ("off", "{here}/slurm-adapter/job")]
    )
    def test_runs_in_the_jobs_folder_with_nothing_appended(
        self, folder: Path, view: str, home: str
    ) -> None:
        home = home.format(here=folder)
        command = 'echo "$# $PWD $MA_HOME $VC_TASK_INDEX"; echo mine >"written $VC_TASK_INDEX"'
        done = adapter("local", "-N", "2", "--view", view, "--command", command, cwd=folder)
        for index in range(2):
            assert (folder / f"slurm-adapter/job/written {index}").read_text() == "mine\n"
        assert sorted(done.out.splitlines()) == [f"[{i}] 0 {home} {home} {i}" for i in range(2)]

    def test_gets_the_words_behind_it(self, folder: Path) -> None:
        command = 'printf "%s|" "$@"'
        done = adapter("local", "--command", command, "a b", "", "--x", cwd=folder)
        assert done.out == "[0] a b||--x|\n"

    @pytest.mark.parametrize(
        ("view", "told"),
        [
            (
                "full",
                "/home/ma-user/modelarts/inputs/data_url_0"
                " /home/ma-user/modelarts/outputs/train_url_0",
            ),
            ("off", "{here}/in {here}/out"),
        ],
    )
    def test_is_told_its_channels_by_variables(self, folder: Path, view: str, told: str) -> None:
        (folder / "in").mkdir()
        words = ["--view", view, "--input", f"data_url={folder}/in", "--output", "train_url=out"]
        done = adapter("local", *words, "--command", "echo $data_url $train_url", cwd=folder)
        assert (done.out, done.err) == (f"[0] {told.format(here=folder)}\n", "")


class TestThePort:
    def test_is_free_and_another_one_while_a_job_holds_its_own(self, folder: Path) -> None:
        os.mkfifo(folder / "end")
        (folder / "hold.py").write_text(
            "import os, socket\n"
            "host, port = os.environ['SLURM_ADAPTER_INIT_METHOD'][6:].split(':')\n"
            "server = socket.create_server((host, int(port)))\n"
            "print(port, flush=True)\n"
            "open('end').read()\n"
        )
        with running("local", "hold.py", cwd=folder) as first:
            assert first.stdout
            held = first.stdout.readline().decode().removeprefix("[0] ").strip()
            (shown,) = variables(folder)
            (folder / "end").write_text("")
            assert first.wait() == 0
        other = shown["SLURM_ADAPTER_INIT_METHOD"].rpartition(":")[2]
        assert held != other
        assert {held, other} <= {str(port) for port in range(6666, 32_768)}

    def test_that_is_given_and_taken_is_told_before_anything_starts(self, folder: Path) -> None:
        os.mkfifo(folder / "end")
        (folder / "hold.py").write_text(
            "import socket\n"
            "server = socket.create_server(('', 0))\n"
            "print(server.getsockname()[1], flush=True)\n"
            "open('end').read()\n"
        )
        with running("local", "hold.py", cwd=folder) as first:
            assert first.stdout
            held = first.stdout.readline().decode().removeprefix("[0] ").strip()
            done = adapter("local", "-N", "2", "--port", held, "show.py", cwd=folder)
            (folder / "end").write_text("")
            assert first.wait() == 0
        assert (done.status, done.out) == (3, "")
        assert f"port {held} on " in done.err


def test_a_job_may_start_a_job(folder: Path) -> None:
    nested = f"{ADAPTER} local -N 2 --contract env --command 'echo rank $RANK'"
    done = adapter("local", "--command", nested, cwd=folder)
    assert (done.status, done.err) == (0, "")
    assert sorted(done.out.splitlines()) == ["[0] [0] rank 0", "[0] [1] rank 1"]

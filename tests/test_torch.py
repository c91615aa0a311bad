"""slurm_adapter.torch: one call that works whoever started the script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ADAPTER, User
from slurm_adapter.errors import AdapterError
from slurm_adapter.rank_context import find_rank_context, multiply

SCRIPTS = Path(__file__).parent / "scripts"
GROUP = SCRIPTS / "group.py"
LINE = "rank {} of {}, local {} of {}, gloo on cpu: {}"


def bare_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {**kept, "PATH": f"{ADAPTER.parent}:/usr/bin:/bin", "GLOO_SOCKET_IFNAME": "lo"}


def output(*words: str) -> list[str]:
    done = subprocess.run(
        words, env=bare_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line]


def run(*words: str) -> list[str]:
    return sorted(line[line.index("rank ") :] for line in output(*words))


def local(tmp_path: Path, *options: str) -> list[str]:
    return run(
        *(str(ADAPTER), "local", "--job-folder", str(tmp_path), "-N", "2", *options, str(GROUP))
    )


class TestTheSameScript:
    def test_alone(self) -> None:
        assert run(sys.executable, str(GROUP)) == [LINE.format(0, 1, 0, 1, 1.0)]

    def test_under_torchrun(self) -> None:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        assert run(*torchrun, "--nproc-per-node=2", str(GROUP)) == [
            LINE.format(0, 2, 0, 2, 3.0),
            LINE.format(1, 2, 1, 2, 3.0),
        ]

    def test_under_the_modelarts_contract(self, tmp_path: Path) -> None:
        assert local(tmp_path) == [LINE.format(0, 2, 0, 1, 3.0), LINE.format(1, 2, 0, 1, 3.0)]

    def test_under_the_env_contract(self, tmp_path: Path) -> None:
        assert local(tmp_path, "--contract", "env", "--gpus-per-node", "2") == [
            LINE.format(0, 4, 0, 2, 10.0),
            LINE.format(1, 4, 1, 2, 10.0),
            LINE.format(2, 4, 0, 2, 10.0),
            LINE.format(3, 4, 1, 2, 10.0),
        ]

    def test_under_the_torchrun_contract(self, tmp_path: Path) -> None:
        assert local(tmp_path, "--contract", "torchrun", "--gpus-per-node", "2") == [
            LINE.format(rank, 4, rank % 2, 2, 10.0) for rank in range(4)
        ]

    def test_in_a_bare_slurm_step(self, user: User) -> None:
        user.write("group.py", GROUP.read_text())
        shown = user.run("srun", "-N3", "-n3", "--exclusive", "python", "group.py")
        assert sorted(shown.splitlines()) == [LINE.format(rank, 3, 0, 1, 6.0) for rank in range(3)]

    def test_under_exec(self, user: User) -> None:
        user.write("group.py", GROUP.read_text())
        step = ("srun", "-N2", "--ntasks-per-node=1", "slurm-adapter", "exec")
        shown = user.run(*step, "--boot", "group.py")
        assert sorted(shown.splitlines()) == [LINE.format(rank, 2, 0, 1, 3.0) for rank in range(2)]


@pytest.mark.parametrize(
    "words", [(), ("destroy",)], ids=["by itself", "destroyed, then the model"]
)
def test_the_group_ends_before_the_interpreter(words: tuple[str, ...], tmp_path: Path) -> None:
    """Else a thread of Gloo that lets go of a tensor late aborts the process, or waits for ever."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = str(SCRIPTS / "late_release.py")
    lines = output(*torchrun, "--nproc-per-node=2", script, str(gate), *words)
    assert sorted(lines) == [
        "rank 0 let go",
        "rank 0's group has ended",
        "rank 1's group has ended",
    ]


def test_processes_that_a_script_starts_alone_meet_at_one_port() -> None:
    """Each asks for itself; what one of them finds free the others do not know."""
    methods = {multiply(find_rank_context({}, []), rank, 2).init_method for rank in range(2)}
    assert methods == {"tcp://127.0.0.1:6666"}


class TestThePlace:
    def test_of_torchrun_stands_in_its_variables(self) -> None:
        place = find_rank_context(
            {
                "RANK": "5",
                "WORLD_SIZE": "8",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "4",
                "MASTER_ADDR": "n1",
                "MASTER_PORT": "29500",
                "MA_VJ_NAME": "ma-job-x",
                "MA_NUM_HOSTS": "2",
            },
            [],
        )
        assert (place.rank, place.world_size, place.local_rank, place.init_method) == (
            *(5, 8, 1),
            "env://",
        )

    @pytest.mark.parametrize(
        "argv", [["--init_method", "tcp://w0:6666"], ["--init_method=tcp://w0:6666", "--rank", "1"]]
    )
    def test_on_modelarts_itself_uses_the_method_it_appends(self, argv: list[str]) -> None:
        place = find_rank_context(
            {"MA_VJ_NAME": "ma-job-x", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1"}, argv
        )
        assert (place.rank, place.world_size, place.init_method) == (1, 2, "tcp://w0:6666")

    def test_on_modelarts_without_it_is_the_first_worker_and_the_platform_s_port(self) -> None:
        place = find_rank_context(
            {
                "MA_VJ_NAME": "ma-job-x",
                "MA_NUM_HOSTS": "2",
                "VC_TASK_INDEX": "0",
                "VC_WORKER_HOSTS": "w0.ma-job-x,w1.ma-job-x",
            },
            [],
        )
        assert place.init_method == "tcp://w0.ma-job-x:6666"

    def test_on_one_node_ignores_an_index_without_meaning(self) -> None:
        """MD-03 (b): the index may be odd or absent, and the host list too."""
        environment = {"MA_VJ_NAME": "ma-job-x", "MA_NUM_HOSTS": "1", "VC_TASK_INDEX": "1"}
        place = find_rank_context(environment, [])
        assert (place.rank, place.world_size) == (0, 1)
        assert place.init_method.startswith("tcp://127.0.0.1:")

    @pytest.mark.parametrize(
        "environment",
        [
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
            {"RANK": "zero", "WORLD_SIZE": "2"},
            {"MA_VJ_NAME": "ma-job-x", "MA_NUM_HOSTS": "2"},
            {"MA_VJ_NAME": "ma-job-x", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "0"},
            {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
        ],
        ids=["no master", "no number", "no index", "no hosts", "batch shell (SL-07)"],
    )
    def test_is_never_guessed_where_more_than_one_process_is_meant(
        self, environment: dict[str, str]
    ) -> None:
        with pytest.raises(AdapterError):
            find_rank_context(environment, [])

    def test_is_multiplied_by_the_processes_a_script_starts_itself(self) -> None:
        node = find_rank_context(
            {"MA_VJ_NAME": "ma-job-x", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1"},
            ["--init_method", "tcp://w0:6666"],
        )
        place = multiply(node, 3, 4)
        assert (place.rank, place.world_size, place.local_rank) == (7, 8, 3)

    def test_is_not_multiplied_twice(self) -> None:
        ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
        place = find_rank_context({**ranks, "MASTER_ADDR": "n1", "MASTER_PORT": "1"}, [])
        with pytest.raises(AdapterError, match="started on this node already"):
            multiply(place, 0, 2)


def device_for(kind: str, count: int, local_rank: int) -> str:
    # Where it stands among the others every process that looks for tests here would load torch.
    from slurm_adapter.torch import choose_device  # noqa: PLC0415

    return str(choose_device(kind, count, local_rank))


@pytest.mark.parametrize(
    ("visible", "local_rank", "device"),
    [
        pytest.param(1, 3, "cuda:0", id="SL-11 each task sees its own GPU"),
        pytest.param(4, 3, "cuda:3", id="all visible"),
        pytest.param(2, 3, "cuda:1", id="two of four"),
    ],
)
def test_the_device_is_the_local_rank_modulo_what_is_visible(
    visible: int, local_rank: int, device: str
) -> None:
    """SL-11: only the number of visible devices counts, so UUIDs and MIG names are as good."""
    assert device_for("cuda", visible, local_rank) == device


def test_without_accelerators_the_device_is_the_cpu() -> None:
    assert device_for("cpu", 0, 3) == "cpu"

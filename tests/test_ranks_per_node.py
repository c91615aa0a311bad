"""`--ranks-by node`: one task on each node starts a rank for each of its GPUs, ends as they do."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from commandline import BIN, adapter
from conftest import User
from one_task import ADAPTER, ALONE, FIRST_OF_TWO, refusal, run_in
from slurm_adapter import Boot, Cluster, Job, Node, make_plan
from slurm_adapter.errors import BadValueError
from slurm_adapter.node.step.per_node import with_own_ranks
from slurm_adapter.node.step.step import plan_rank
from slurm_adapter.plan import RankPlan
from slurm_adapter.record import replace
from testbed.child import Child
from testbed.waiting import LONG_S, until

SCRIPTS = Path(__file__).parent / "scripts"
JOB = Job(
    program=Boot("/code/train.py"), code="/code", folder="/job", contract="env", ranks_by="node"
)
TASK = {**ALONE, "PATH": f"{BIN}:{os.defpath}"}
OURS = ["--contract", "env", "--ranks-by", "node", "--view", "off"]
TWO_NODES = {
    **ALONE,
    "SLURM_STEP_NODELIST": "localhost,n02.invalid",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NUM_TASKS": "2",
}


def values(rank: RankPlan) -> dict[str, str]:
    return {setting.name: setting.value for setting in rank.settings}


class TestThePlan:
    def test_counts_ranks_through_nodes_with_different_numbers_of_gpus(self) -> None:
        nodes = tuple(Node(f"n{i}", gpus=gpus) for i, gpus in enumerate((1, 3, 0, 2)))
        plan = make_plan(replace(JOB, nodes=4), Cluster(nodes, "step 12.0"))
        shown = [values(rank) for rank in plan.ranks()]
        assert [one["RANK"] for one in shown] == list("0123456")
        assert [one["LOCAL_RANK"] for one in shown] == list("0012001")
        assert [one["LOCAL_WORLD_SIZE"] for one in shown] == list("1333122")
        assert [one["NODE_RANK"] for one in shown] == list("0111233")
        assert {one["WORLD_SIZE"] for one in shown} == {"7"}

    @pytest.mark.parametrize(
        "name",
        ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "PMI_RANK"],
    )
    def test_takes_out_what_tells_of_the_one_task(self, name: str) -> None:
        cluster = Cluster((Node("n1", gpus=2),), "step 12.0")
        assert name not in make_plan(JOB, cluster).first_rank.environment({name: "1"})
        by_slurm = make_plan(replace(JOB, ranks_by="slurm"), cluster)
        assert name in by_slurm.first_rank.environment({name: "1"})

    def test_shares_the_tasks_cores_out(self) -> None:
        job = replace(JOB, gpus_per_node=2, view="off")
        threads = max(1, len(os.sched_getaffinity(0)) // 2)
        assert values(plan_rank(job, ALONE).rank)["OMP_NUM_THREADS"] == str(threads)
        told = plan_rank(job, {**ALONE, "OMP_NUM_THREADS": "5"}).rank
        assert "OMP_NUM_THREADS" not in values(told)

    @pytest.mark.parametrize(
        ("request_for_each", "given"), [("4", None), ("a100:2,v100:2", None), (None, 4)]
    )
    def test_knows_all_nodes_by_the_request_for_each_or_by_a_number(
        self, request_for_each: str | None, given: int | None
    ) -> None:
        nodes = [Node("n1", gpus=4, tasks=1), Node("n2", tasks=1), Node("n3", tasks=1)]
        env = {} if request_for_each is None else {"SLURM_GPUS_PER_NODE": request_for_each}
        found = with_own_ranks(nodes, 0, "step 12.0", replace(JOB, gpus_per_node=given), env)
        assert [(node.gpus, node.tasks) for node in found] == [(4, None)] * 3


class TestIsRefused:
    @pytest.mark.parametrize("contract", ["modelarts", "torchrun"])
    def test_by_other_contracts(self, contract: str) -> None:
        with pytest.raises(BadValueError, match="--ranks-by means something to the env contract"):
            replace(JOB, contract=contract)

    def test_for_another_word(self, tmp_path: Path) -> None:
        command = [ADAPTER, "exec", "--contract", "env", "--ranks-by", "me", "--", "true"]
        assert "invalid choice: 'me'" in refusal(run_in(tmp_path, command, ALONE), 2)
        (tmp_path / "train.py").touch()
        done = adapter("local", "--contract", "env", "--ranks-by", "me", "train.py", cwd=tmp_path)
        assert done.status == 2
        assert "Choose one of: slurm, node." in done.err

    def test_with_several_tasks_on_a_node(self, tmp_path: Path) -> None:
        said = refusal(run_in(tmp_path, [ADAPTER, "exec", *OURS, "--", "true"], FIRST_OF_TWO), 2)
        assert "localhost has 2 tasks in step 12.0; with --ranks-by node one task" in said
        assert "srun --nodes=1 --ntasks=1 slurm-adapter exec" in said

    def test_where_nothing_tells_of_the_other_nodes_gpus(self, tmp_path: Path) -> None:
        said = refusal(run_in(tmp_path, [ADAPTER, "exec", *OURS, "--", "true"], TWO_NODES), 2)
        assert "nothing says how many GPUs the others have" in said
        assert "Give exec --gpus-per-node N" in said

    def test_where_the_request_is_not_what_the_step_has(self, tmp_path: Path) -> None:
        env = {**TWO_NODES, "SLURM_GPUS_PER_NODE": "8", "SLURM_GPUS_ON_NODE": "2"}
        del env["CUDA_VISIBLE_DEVICES"]
        said = refusal(run_in(tmp_path, [ADAPTER, "exec", *OURS, "--", "true"], env), 2)
        assert "localhost has 2 GPUs in this step" in said
        assert "SLURM_GPUS_PER_NODE=8" in said
        assert "Give exec --gpus-per-node N" in said

    def test_in_a_script_without_a_number_of_gpus(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        done = adapter("sbatch", *OURS, "train.py", cwd=tmp_path)
        assert done.status == 2
        assert "Give --gpus-per-node N" in done.err


def test_sb_07_a_script_has_one_task_on_each_node_and_all_its_cores(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    text = 'boot = "train.py"\nnodes = 2\ncontract = "env"\nranks_by = "node"\n'
    text += 'flavor = "GPU: 8*NVIDIA-V100 | CPU: 72 cores | Memory: 512 GB"\n'
    (tmp_path / "job.toml").write_text(text)
    done = adapter("sbatch", "--script", "-", "--job", "job.toml", cwd=tmp_path)
    assert done.status == 0, done.err
    shown = {name: done.directives[name] for name in ("ntasks-per-node", "cpus-per-task")}
    assert shown == {"ntasks-per-node": "1", "cpus-per-task": "72"}
    assert ": 2 nodes, 8 ranks each, contract env." in done.out
    assert {"--ranks-by=node", "--gpus-per-node=8"} <= set(done.out.split())


@contextlib.contextmanager
def started(folder: Path, script: str, ranks: int = 2) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a task that has so many ranks of a Python script."""
    (folder / "rank.py").write_text(f"import os, signal, subprocess, sys, time\n{script}")
    command = [ADAPTER, "exec", *OURS, "--gpus-per-node", str(ranks), "--boot", "rank.py"]
    with Child(
        command, cwd=folder, env=TASK, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as task:
        try:
            yield task
        finally:
            task.kill()


def lines(task: "subprocess.Popen[bytes]", count: int) -> list[str]:
    """Return the next lines, sorted."""
    assert task.stdout is not None
    return sorted(task.stdout.readline().decode().rstrip("\n") for _ in range(count))


def run_ranks(folder: Path, command: str, ranks: int = 2) -> "subprocess.CompletedProcess[str]":
    words = [ADAPTER, "exec", *OURS, "--gpus-per-node", str(ranks), "--command", command]
    return run_in(folder, words, TASK)


class TestATask:
    def test_starts_a_rank_for_each_gpu_behind_its_number(self, tmp_path: Path) -> None:
        done = run_ranks(tmp_path, 'echo "$LOCAL_RANK of $WORLD_SIZE"; echo "$RANK" >&2', 3)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["0: 0 of 3", "1: 1 of 3", "2: 2 of 3"]
        assert sorted(done.stderr.splitlines()) == ["0: 0", "1: 1", "2: 2"]

    @pytest.mark.parametrize(
        ("failure", "status", "how"),
        [("exit 7", 7, "exit status 7"), ("kill -SEGV $$", 139, "signal SIGSEGV")],
    )
    def test_ends_with_the_first_failure(
        self, tmp_path: Path, failure: str, status: int, how: str
    ) -> None:
        done = run_ranks(tmp_path, f'test "$RANK" = 1 && {failure}; exec sleep 1000')
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr == f"slurm-adapter: rank 1 failed first: {how}; ending rank 0\n"

    def test_kills_after_the_grace_what_does_not_listen(self, tmp_path: Path) -> None:
        script = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\n"
        script += "sys.stdin = None\nif os.environ['RANK'] == '0':\n"
        script += f"    os.open({str(tmp_path / 'go')!r}, os.O_RDONLY)\n    sys.exit(3)\n"
        script += "while True:\n    signal.pause()\n"
        os.mkfifo(tmp_path / "go")
        with started(tmp_path, script) as task:
            assert lines(task, 2) == ["0: up", "1: up"]
            os.close(os.open(tmp_path / "go", os.O_WRONLY))
            assert task.wait(LONG_S) == 3

    @pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT])
    def test_passes_signals_on(self, tmp_path: Path, number: signal.Signals) -> None:
        script = f"signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])\n"
        script += f"print('up', flush=True)\nsignal.sigwait([{int(number)}])\nprint('got it')\n"
        with started(tmp_path, script) as task:
            assert lines(task, 2) == ["0: up", "1: up"]
            task.send_signal(number)
            assert lines(task, 2) == ["0: got it", "1: got it"]
            assert task.wait(LONG_S) == 0

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_leaves_to_the_ranks_what_an_end_means(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        script = f"signal.signal({int(number)}, lambda *_: sys.exit(print('saved')))\n"
        script += "print('up', flush=True)\nwhile True:\n    signal.pause()\n"
        with started(tmp_path, script) as task:
            assert lines(task, 2) == ["0: up", "1: up"]
            task.send_signal(number)
            assert lines(task, 2) == ["0: saved", "1: saved"]
            assert task.wait(LONG_S) == 0

    def test_ends_by_the_signal_that_ended_its_ranks_without_a_word(self, tmp_path: Path) -> None:
        with started(tmp_path, "print('up', flush=True)\nsignal.pause()\n") as task:
            assert lines(task, 2) == ["0: up", "1: up"]
            task.send_signal(signal.SIGTERM)
            _, err = task.communicate(timeout=LONG_S)
            assert (task.returncode, err) == (143, b"")

    def test_sends_nothing_to_what_its_ranks_have_started(self, tmp_path: Path) -> None:
        """A worker process that loads data would die of a signal that only its rank knows."""
        script = "child = subprocess.Popen(['sh', '-c', 'read _ <go; echo lives'])\n"
        script += "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        script += "print('up', flush=True)\nsignal.sigwait([signal.SIGUSR1])\n"
        script += "print('got it', flush=True)\nsys.exit(child.wait())\n"
        os.mkfifo(tmp_path / "go")
        with started(tmp_path, script, 1) as task:
            assert lines(task, 1) == ["0: up"]
            task.send_signal(signal.SIGUSR1)
            assert lines(task, 1) == ["0: got it"]
            (tmp_path / "go").write_text("on\n")
            assert lines(task, 1) == ["0: lives"]
            assert task.wait(LONG_S) == 0

    @pytest.mark.parametrize("end", ["well", "killed"])
    def test_leaves_nothing_of_its_ranks(self, tmp_path: Path, end: str) -> None:
        script = "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        script += "print(os.getpid(), child.pid, flush=True)\n"
        script += f"os.close(os.open({str(tmp_path / 'go')!r}, os.O_RDONLY))\n"
        script += "signal.pause()\n" if end == "killed" else ""
        os.mkfifo(tmp_path / "go")
        with started(tmp_path, script, 1) as task:
            (line,) = lines(task, 1)
            rank, child = map(os.pidfd_open, map(int, line.split()[1:]))
            os.close(os.open(tmp_path / "go", os.O_WRONLY))
            if end == "killed":  # what is below the rank is then Slurm's to find
                task.kill()
                assert select.select([rank], [], [], LONG_S)[0]
                signal.pidfd_send_signal(child, signal.SIGKILL)
            assert task.wait(LONG_S) == (0 if end == "well" else -signal.SIGKILL)
            assert select.select([rank], [], [], 0)[0]
            assert select.select([child], [], [], 0 if end == "well" else LONG_S)[0]
            os.close(rank)
            os.close(child)

    def test_that_cannot_start_a_rank_says_why(self, tmp_path: Path) -> None:
        words = [ADAPTER, "exec", *OURS, "--gpus-per-node", "2", "--", "no-such-program"]
        assert "no-such-program is not a program" in refusal(run_in(tmp_path, words, TASK), 3)

    def test_shows_what_its_first_rank_gets(self, tmp_path: Path) -> None:
        words = [ADAPTER, "env", *OURS, "--gpus-per-node", "2", "--format", "dotenv"]
        told = run_in(tmp_path, words, TASK).stdout.splitlines()
        assert {'RANK="0"', 'WORLD_SIZE="2"', 'LOCAL_WORLD_SIZE="2"'} <= set(told)


class TestOnSlurm:
    def submit(self, user: User, *words: str) -> str:
        ours = ["slurm-adapter", "sbatch", "--parsable", "--contract", "env"]
        return user.run(*ours, "--ranks-by", "node", *words).strip()

    def test_sb_07_six_ranks_on_three_nodes_find_each_other(self, user: User) -> None:
        user.write("group.py", (SCRIPTS / "group.py").read_text())
        job = self.submit(user, "-N", "3", "--gpus-per-node", "2", "group.py")
        end = user.finish(job)
        log = user.log("slurm-adapter/group/log/group-*.out")
        assert (end.state, end.exit_status) == ("COMPLETED", 0), log
        assert sorted(line for line in log.splitlines() if ": rank " in line) == [
            f"{rank}: rank {rank} of 6, local {rank % 2} of 2, gloo on cpu: 21.0"
            for rank in range(6)
        ]

    def test_the_first_failure_ends_the_job_with_its_status(self, user: User) -> None:
        command = 'test "$RANK" = 3 && exit 7; exec sleep 1000'
        job = self.submit(user, "-N", "2", "--gpus-per-node", "2", "--command", command)
        end = user.finish(job)
        log = user.log("slurm-adapter/job/log/job-*.out")
        assert (end.state, end.exit_status) == ("FAILED", 7), log
        said = [line for line in log.splitlines() if line.startswith("slurm-adapter: ")]
        node = user.cluster.nodes[1]
        assert said[1:] == [
            "slurm-adapter: rank 3 failed first: exit status 7; ending rank 2",
            f"slurm-adapter: task 1 on {node} failed first: Exited with exit code 7",
        ]

    def test_a_batch_file_by_hand_tells_by_its_request(self, user: User) -> None:
        user.write(
            "by hand.sbatch",
            "#!/bin/bash\n"
            "#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 --output=hand.out\n"
            "srun slurm-adapter exec --contract env --ranks-by node"
            " --command 'echo \"$RANK $LOCAL_RANK of $WORLD_SIZE\"'\n",
        )
        end = user.finish(user.run("sbatch", "--parsable", "by hand.sbatch"))
        assert end.state == "COMPLETED", user.log("hand.out")
        told = sorted(user.log("hand.out").splitlines())
        assert told == [f"{rank}: {rank} {rank % 2} of 4" for rank in range(4)]

    def test_a_step_by_hand_has_to_say_how_many(self, user: User) -> None:
        step = ["srun", "-N2", "--ntasks-per-node=1", "--gpus-per-node=2", "--error=%t.err"]
        ours = ["slurm-adapter", "exec", *OURS[:4]]
        show = ["--command", 'echo "$RANK of $WORLD_SIZE"']
        user.run(*step, *ours, *show, check=False)
        assert "Give exec --gpus-per-node N" in user.log("1.err")
        out = user.run(*step, *ours, "--gpus-per-node", "2", *show)
        assert sorted(out.splitlines()) == [f"{rank}: {rank} of 4" for rank in range(4)]

    def test_a_signal_of_slurm_reaches_every_rank(self, user: User) -> None:
        command = "trap 'echo got it; exit 0' USR1; echo up; while :; do sleep 0.1; done"
        job = self.submit(user, "-N", "2", "--gpus-per-node", "2", "--command", command)
        pattern = "slurm-adapter/job/log/job-*.out"

        def count(text: str) -> int:
            found = list(user.outside(".").glob(pattern))
            return found[0].read_text().count(text) if found else 0

        assert until(lambda: count(": up\n") == 4)
        user.run("scancel", "--signal=USR1", job)
        assert user.finish(job).state == "COMPLETED", user.log(pattern)
        assert count(": got it\n") == 4

    def test_sl_11_gpus_bound_to_single_tasks_are_warned_of(self, user: User) -> None:
        step = ["srun", "-N1", "--ntasks-per-node=2", "--gpus-per-task=1", "--error=%t.err"]
        bound = 'export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$SLURM_LOCALID}; exec "$@"'
        ours = ["sh", "-c", bound, "sh", "slurm-adapter", "exec", "--contract", "env"]
        user.run(*step, *ours, "--", "true")
        assert "each of the 2 tasks on this node sees 1 GPU" in user.log("0.err")
        assert "--ranks-by node" in user.log("0.err")

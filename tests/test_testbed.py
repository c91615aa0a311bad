"""What the test cluster promises to the tests that stand on it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import SlurmCluster, processes, state, unavailable, until
from testbed.child import Child
from testbed.waiting import LONG_S

TESTS = Path(__file__).parent
PROJECT = TESTS.parent


def machine() -> dict[str, str]:
    """Return all that a cluster could change about this machine."""
    commands = {
        "links": ["ip", "-o", "link"],
        "routes": ["ip", "route"],
        "addresses": ["ip", "-o", "addr"],
        "named namespaces": ["ip", "netns"],
    }
    seen = {
        what: subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        for what, argv in commands.items()
    }
    files = ("/proc/self/mounts", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/hosts")
    seen |= {name: Path(name).read_text() for name in files}
    folders = ("/home", "/etc/slurm", "/etc/munge", "/run", "/run/munge")
    return seen | {
        name: " ".join(sorted(path.name for path in Path(name).glob("*"))) for name in folders
    }


def pid_namespaces(pids: list[int]) -> set[str]:
    names = {str(Path(f"/proc/{pid}/ns/pid").readlink()) for pid in pids}
    assert len(names) == len(pids)
    return names


def inhabitants(namespaces: set[str]) -> list[int]:
    return [pid for name in namespaces for pid in processes.in_pid_namespace(name)]


class TestJobs:
    def test_run_as_the_ordinary_user_on_every_node(self, slurm: SlurmCluster) -> None:
        done = slurm.run(["srun", "-N3", "sh", "-c", "echo $(id -un) $(hostname) $(id -G)"])
        assert done.stderr == ""
        assert sorted(done.stdout.splitlines()) == [f"ada {n} 5001 5002" for n in slurm.nodes]

    def test_see_the_gpus_they_asked_for(self, slurm: SlurmCluster) -> None:
        show = ["printenv", "CUDA_VISIBLE_DEVICES"]
        assert slurm.run(["srun", "--gres=gpu:4", *show]).stdout == "0,1,2,3\n"
        assert slurm.run(["srun", "--gres=gpu:v100:2", *show]).stdout == "0,1\n"
        per_task = slurm.run(["srun", "-N1", "-n2", "--gpus-per-task=2", *show]).stdout
        assert sorted(per_task.splitlines()) == ["0,1", "2,3"]

    def test_span_heterogeneous_components(self, slurm: SlurmCluster) -> None:
        step = ["srun", "--het-group=0,1", "hostname"]
        done = slurm.run(["salloc", "-N1", ":", "-N2", *step])
        assert sorted(done.stdout.splitlines()) == list(slurm.nodes)

    def test_can_be_tried_without_being_submitted(self, slurm: SlurmCluster) -> None:
        slurm.write("tried.sh", "#!/bin/sh\n")
        done = slurm.run(["sbatch", "--test-only", "-N3", "tried.sh"])
        assert done.returncode == 0
        assert "gpu-n[00-02]" in done.stderr

    @pytest.mark.parametrize(
        ("body", "end"),
        [
            ("exit 0", ("COMPLETED", 0, 0)),
            ("exit 7", ("FAILED", 7, 0)),
            ("kill -9 $$", ("FAILED", 0, 9)),
            ("scancel $SLURM_JOB_ID; exec sleep 100", ("CANCELLED", 0, 15)),
        ],
    )
    def test_tell_how_they_ended(
        self, slurm: SlurmCluster, body: str, end: tuple[str, int, int]
    ) -> None:
        slurm.write("job.sh", f"#!/bin/sh\n{body}\n")
        hostile_name = "x JobState=RUNNING ExitCode=9:9"
        job = slurm.run(["sbatch", "--parsable", "-J", hostile_name, "job.sh"]).stdout.strip()
        seen = slurm.wait_for_job(job)
        assert (seen.state, seen.exit_status, seen.signal) == end

    def test_that_do_not_end_are_reported_with_the_queue(self, slurm: SlurmCluster) -> None:
        slurm.write("long.sh", "#!/bin/sh\nsleep 1000\n")
        job = slurm.run(["sbatch", "--parsable", "-J", "neverend", "long.sh"]).stdout.strip()
        with pytest.raises(TimeoutError, match="neverend"):
            slurm.wait_for_job(job, timeout=0.5)
        slurm.run(["scancel", job])
        assert slurm.wait_for_job(job).state == "CANCELLED"

    def test_that_never_were_are_an_error(self, slurm: SlurmCluster) -> None:
        with pytest.raises(LookupError, match="Invalid job id"):
            slurm.wait_for_job(999_999)


class TestCommands:
    def test_get_their_arguments_byte_for_byte(self, slurm: SlurmCluster) -> None:
        hostile = [
            "",
            " ",
            "a b",
            "'",
            '"',
            "$HOME",
            "`id`",
            "\\",
            "\n",
            "*",
            "é\udcff",
            "-n",
            "x=y",
        ]
        done = slurm.run(["printf", "%s\\0", *hostile])
        assert done.stdout.split("\0")[:-1] == hostile

    def test_get_a_clean_login_and_nothing_of_ours(
        self, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LEAKED", "1")
        done = slurm.run(["env"], env={"MINE": "2"})
        assert set(done.stdout.splitlines()) == {
            "HOME=/home/ada",
            "USER=ada",
            "LOGNAME=ada",
            "SHELL=/bin/bash",
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "LANG=C.UTF-8",
            "MINE=2",
        }

    def test_run_where_and_as_whom_they_should(self, slurm: SlurmCluster) -> None:
        show = ["sh", "-c", "hostname; id -un; pwd; hostname -I; cat"]
        done = slurm.run(show, node="gpu-n01", input="typed")
        assert done.stdout == "gpu-n01\nada\n/home/ada\n10.77.0.11 \ntyped"
        done = slurm.run(show, user="root", cwd="/")
        assert done.stdout == "head\nroot\n/\n10.77.0.1 \n"

    def test_are_killed_with_all_they_started_when_time_is_up(self, slurm: SlurmCluster) -> None:
        before = slurm.pids("head")
        with pytest.raises(subprocess.TimeoutExpired):
            slurm.run(["sh", "-c", "setsid sleep 1000 & sleep 1000"], timeout=0.2)
        assert until(lambda: set(slurm.pids("head")) <= set(before))

    def test_receive_signals_themselves(self, slurm: SlurmCluster) -> None:
        with slurm.popen(["sh", "-c", "trap 'exit 42' TERM; echo up; sleep 1000 & wait"]) as child:
            assert child.stdout
            assert child.stdout.readline() == "up\n"
            child.terminate()
            assert child.wait(LONG_S) == 42

    def test_are_counted_on_their_node_only(self, slurm: SlurmCluster) -> None:
        with slurm.popen(["sleep", "1000"], node="gpu-n02") as child:
            assert child.pid in slurm.pids("gpu-n02")
            assert child.pid not in slurm.pids("gpu-n01") + slurm.pids("head")
            child.kill()

    def test_use_files_written_from_outside(self, slurm: SlurmCluster) -> None:
        path = slurm.write("a/new folder/run me", "#!/bin/sh\necho out > made\n", 0o755)
        assert slurm.run([path], cwd=path.parent).returncode == 0
        assert slurm.outside(path.parent / "made").read_text() == "out\n"
        assert slurm.run(["stat", "-c%U:%G %a", "a", path]).stdout == "ada:ada 755\nada:ada 755\n"
        with pytest.raises(ValueError, match="etc"):
            slurm.outside("/etc/passwd")


class TestProcesses:
    def test_see_those_of_their_own_node_only(self, slurm: SlurmCluster) -> None:
        count = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cx '[1]234567'"
        with slurm.popen(["sleep", "1234567"], node="gpu-n02") as child:
            seen = slurm.run(["srun", "-N3", "-l", "sh", "-c", count]).stdout
            assert sorted(seen.splitlines()) == ["0: 0", "1: 0", "2: 1"]
            child.kill()


class TestNetwork:
    def test_is_cut_and_healed(self, slurm: SlurmCluster) -> None:
        node = slurm.nodes[1]
        connect = f"exec 3<>/dev/tcp/{slurm.addresses[node]}/6818"

        def reachable() -> bool:
            return slurm.run(["timeout", "1", "bash", "-c", connect]).returncode == 0

        assert until(reachable)
        slurm.cut(node)
        try:
            assert not reachable()
        finally:
            slurm.heal(node)
        assert until(reachable)
        route = slurm.run(["ip", "route", "show", "default"], node=node, user="root").stdout
        assert slurm.addresses["head"] in route


@pytest.fixture
def needs_cluster() -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)


@pytest.mark.usefixtures("needs_cluster")
class TestTheMachine:
    def test_is_left_as_it_was(self) -> None:
        before = machine()
        with SlurmCluster.start(PROJECT) as one:
            assert one.run(["srun", "-N3", "true"]).returncode == 0
            assert machine() == before
            with SlurmCluster.start(PROJECT) as two:
                assert two.run(["srun", "-N3", "true"]).returncode == 0
                assert one.run(["srun", "-N3", "true"]).returncode == 0
                assert machine() == before
        assert machine() == before
        assert not one.state.exists()
        assert not two.state.exists()

    def test_stop_may_be_called_again(self) -> None:
        cluster = SlurmCluster.start(PROJECT)
        forgotten = cluster.popen(["sleep", "1000"], stdin=None, stdout=None, stderr=None)
        cluster.stop()
        cluster.stop()
        assert forgotten.returncode == -signal.SIGKILL

    @pytest.fixture
    def owner(self) -> Iterator["subprocess.Popen[str]"]:
        """Run another Python process that holds a cluster with a daemonised srun in it."""
        code = """if True:
            import json, pathlib, sys, time
            from testbed import SlurmCluster
            cluster = SlurmCluster.start(pathlib.Path(sys.argv[1]))
            task = "sleep 1000 & touch up.$SLURM_PROCID; wait"
            cluster.run(["sh", "-c", 'setsid srun -N3 sh -c "$1" </dev/null >/dev/null 2>&1 &',
                         "sh", task])
            while len(list(cluster.outside(".").glob("up.*"))) < 3:
                time.sleep(0.05)
            pids = [cluster.holder(host) for host in ("head", *cluster.nodes)]
            print(json.dumps([str(cluster.state), pids]), flush=True)
            sys.stdin.read()
        """
        with Child(
            [sys.executable, "-c", code, str(PROJECT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        ) as process:
            yield process
            process.kill()

    def test_is_clean_after_the_owner_was_killed(self, owner: "subprocess.Popen[str]") -> None:
        assert owner.stdout
        directory, pids = json.loads(owner.stdout.readline())
        namespaces = pid_namespaces(pids)
        assert len(inhabitants(namespaces)) > 12
        owner.kill()
        assert until(lambda: not inhabitants(namespaces))
        assert until(lambda: not Path(directory).exists())

    def test_is_clean_after_the_supervisor_was_killed(self, owner: "subprocess.Popen[str]") -> None:
        assert owner.stdout
        directory, pids = json.loads(owner.stdout.readline())
        namespaces = pid_namespaces(pids)
        os.kill(int(directory.split("-")[-2]), signal.SIGKILL)
        assert until(lambda: not inhabitants(namespaces))
        assert Path(directory).exists()
        assert until(lambda: Path(directory) in state.sweep() or not Path(directory).exists())

    def test_hides_no_project(self, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        project = closed / "deep er/project"
        (project / "src").mkdir(parents=True)
        (project / "src/file").write_text("found")
        (closed / "secret").write_text("hidden")
        closed.chmod(0o700)
        with SlurmCluster.start(project) as cluster:
            assert cluster.run(["srun", "cat", str(project / "src/file")]).stdout == "found"
            (project / "later").write_text("too")
            assert cluster.run(["cat", "later"], cwd=project).stdout == "too"
            assert cluster.run(["ls", str(closed)]).stdout == "deep er\n"
        assert closed.stat().st_mode & 0o777 == 0o700

    def test_hides_no_project_that_is_closed_itself(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            Path(name, "src").mkdir()
            Path(name, "src/file").write_text("found")
            with SlurmCluster.start(Path(name)) as cluster:
                assert cluster.run(["cat", "src/file"], cwd=name).stdout == "found"

    def test_lends_its_terminal_to_a_command(self) -> None:
        start = [sys.executable, "-m", "testbed", "--project", str(PROJECT), "--node", "gpu-n01"]
        done = subprocess.run(
            [*start, "--", "sh", "-c", "id -un; hostname; exit 5"],
            capture_output=True,
            text=True,
            cwd=TESTS,
            check=False,
        )
        assert (done.stdout, done.returncode) == ("ada\ngpu-n01\n", 5)

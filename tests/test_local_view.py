"""The view on this machine: each simulated node has its own, as far as the machine allows it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from commandline import ADAPTER, adapter, environment, running
from testbed.processes import with_variable

UNSHARE = ("unshare", "--user", "--map-user=1", "--map-group=1", "--keep-caps")
TELL = "import os, socket\nprint(socket.gethostname(), os.path.isdir('/home/ma-user'))\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tell.py").write_text(TELL)
    return tmp_path


def test_each_node_has_a_host_name_and_a_cache_of_its_own(folder: Path) -> None:
    command = "hostname; ls /cache; touch /cache/$VC_TASK_INDEX"
    done = adapter("local", "-N", "3", "--command", command, cwd=folder)
    assert (done.status, done.err) == (0, "")
    lines = sorted(done.out.splitlines())
    assert [line[:11] for line in lines] == [f"[{index}] ma-job-" for index in range(3)]
    assert [line.rpartition("-worker-")[2] for line in lines] == ["0", "1", "2"]


def test_nothing_of_a_run_is_left_but_its_logs(folder: Path) -> None:
    assert adapter("local", "-N", "2", "tell.py", cwd=folder).status == 0
    job = folder / "slurm-adapter/tell"
    assert sorted(path.name for path in job.iterdir()) == ["log", "modelarts", "user-job-dir"]


def test_many_nodes_need_no_raised_limit(folder: Path) -> None:
    """Each takes several descriptors of the command, none of which its rank is to see."""
    limit = 'ulimit -Sn 256; exec "$@"'
    command = "test $(ulimit -Sn) = 256 && ls /proc/self/fd | wc -l"
    words = [ADAPTER, "local", "-N", "61", "-q", "--command", command]
    done = subprocess.run(
        ["bash", "-c", limit, "bash", *words],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == sorted(f"[{rank:2}] 4" for rank in range(61))


def test_all_nodes_get_what_the_least_of_them_got(folder: Path) -> None:
    """Where namespaces run out midway: a world of two kinds of nodes would be neither."""
    unprivileged = "exec setpriv --ambient-caps=-all --inh-caps=-all"
    limited = f'echo 6 > /proc/sys/user/max_user_namespaces && {unprivileged} "$@"'
    words = [ADAPTER, "local", "-N", "8", "tell.py"]
    done = subprocess.run(
        [*UNSHARE, "sh", "-c", limited, "sh", *words],
        cwd=folder,
        env={**environment(), "LD_LIBRARY_PATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "on node" in done.stderr
    assert "the limit of namespaces is reached (user.max_user_namespaces)" in done.stderr
    kinds = {line.rpartition(" ")[2] for line in done.stdout.splitlines()}
    assert kinds == {"False"}
    assert len(done.stdout.splitlines()) == 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_while_packages_are_installed_leaves_nothing(
    folder: Path, number: signal.Signals
) -> None:
    os.mkfifo(folder / "pip-requirements.txt")  # pip waits for it to be written
    (folder / "python").write_text(f"#!/bin/sh\necho > {folder}/installing\nexec sleep 1000\n")
    (folder / "python").chmod(0o755)
    os.mkfifo(folder / "installing")
    (folder / "pip-requirements.txt").unlink()
    (folder / "pip-requirements.txt").write_text("")
    words = ["local", "--env", f"MARK={folder}", "--install-requirements"]
    with running(*words, "--python", str(folder / "python"), "tell.py", cwd=folder) as process:
        (folder / "installing").read_text()
        assert with_variable("MARK", str(folder))
        process.send_signal(number)
        assert process.wait() == 128 + number
    assert with_variable("MARK", str(folder)) == []
    assert not (folder / "slurm-adapter/tell/run").exists()


def test_what_a_container_shows_in_proc_is_what_ranks_see(folder: Path) -> None:
    """As lxcfs has it; all the same they see their own processes alone."""
    (folder / "memory").write_text("MemTotal: 7 kB\n")
    mounting = 'mount --bind memory /proc/meminfo; exec "$@"'
    beneath = ("unshare", "--mount", "sh", "-c", mounting, "sh")
    command = "cat /proc/meminfo; echo /proc/[0-9]*; echo $$"
    done = subprocess.run(
        [*beneath, ADAPTER, "local", "--command", command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        check=True,
    )
    shown, processes, own = done.stdout.splitlines()
    assert shown == b"[0] MemTotal: 7 kB"
    assert processes == b"[0] /proc/1 /proc/" + own.removeprefix(b"[0] ")

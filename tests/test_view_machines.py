"""The view on machines of other kinds: /home of every sort, directories mounted on demand.

Each test changes the private /home or /run of the test cluster, never the machine's.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import ADAPTER, User
from testbed import SlurmCluster, until

ADA, ADA_GROUP = 5001, 5001


@contextmanager
def other_home(slurm: SlurmCluster, name: str, owner: int = 0) -> Iterator[Path]:
    """Give the cluster one home more for a while."""
    home = slurm.state / "home" / name
    home.mkdir()
    os.chown(home, owner, -1)
    try:
        yield home
    finally:
        subprocess.run(["rm", "-r", home], check=True)


def seen(user: User, *command: str, options: tuple[str, ...] = (), **env: str) -> str:
    """Return what a rank with a full view on the first node prints."""
    step = ["srun", "-N1", "-w", "gpu-n00", str(ADAPTER), "exec", *options, "--"]
    return user.run(*step, *command, env=env)


class TestHomes:
    def test_of_others_are_where_they_were(self, user: User) -> None:
        with other_home(user.cluster, "bob") as bob:
            (bob / "data").write_text("bob's\n")
            assert seen(user, "cat", "/home/bob/data") == "bob's\n"
            assert seen(user, "ls", "/home").split() == ["ada", "bob", "ma-user"]

    def test_of_others_keep_their_paths_where_the_job_names_them(self, user: User) -> None:
        with other_home(user.cluster, "bob") as bob:
            (bob / "data").mkdir()
            real = seen(user, "realpath", "/home/bob/data")
            assert real == "/home/bob/data\n"
            named = seen(user, "realpath", ".", options=("--input", "d=/home/bob/data"))
            assert named == f"{user.folder}\n"

    def test_that_nobody_may_list_are_found(self, user: User) -> None:
        homes = user.cluster.state / "home"
        homes.chmod(0o711)
        try:
            assert seen(user, "sh", "-c", "cd ~; pwd -P; touch .made && echo written").split() == [
                "/home/ada",
                "written",
            ]
        finally:
            homes.chmod(0o755)

    def test_may_have_one_of_modelarts_name(self, user: User) -> None:
        """An administrator's empty directory, or another container's: it is covered, not used."""
        with other_home(user.cluster, "ma-user") as there:
            (there / "theirs").write_text("")
            assert "theirs" not in seen(user, "ls", "/home/ma-user")
            assert seen(user, "ls", "/home/ma-user/modelarts/user-job-dir").strip()
            assert [path.name for path in there.iterdir()] == ["theirs"]

    def test_are_not_covered_where_one_is_the_users_own(self, user: User) -> None:
        with other_home(user.cluster, "ma-user", ADA) as own:
            (own / "venv").write_text("mine\n")
            done = user.cluster.run(
                ["srun", "-N1", str(ADAPTER), "exec", "--", "cat", "/home/ma-user/venv"],
                cwd=str(user.folder),
                env={**user.environment, "HOME": "/home/ma-user"},
            )
        assert (done.returncode, done.stdout) == (0, "mine\n")
        assert "/home/ma-user is your own home directory here" in done.stderr

    def test_of_modelarts_name_may_hold_an_input(self, user: User) -> None:
        """A path of the view is a real one, too: what the user means is the real one."""
        with other_home(user.cluster, "ma-user") as there:
            data = there / "modelarts/inputs/data_url_0"
            data.mkdir(parents=True)
            (data / "theirs").write_text("")
            channel = "data_url=/home/ma-user/modelarts/inputs/data_url_0"
            listed = seen(user, "sh", "-c", "ls $data_url", options=("--input", channel))
        assert listed == "theirs\n"

    @pytest.mark.parametrize("odd", ["/home/../etc", "/home/.", "/home//x", "/home/\n"])
    def test_may_be_written_in_odd_ways(self, user: User, odd: str) -> None:
        assert seen(user, "ls", "-d", "/home/ma-user", ODD=odd) == "/home/ma-user\n"


def test_a_view_may_stand_in_a_view(user: User) -> None:
    """A script that starts a job of its own on the node."""
    user.write("inner.py", "import os, socket\nprint(socket.gethostname(), os.getcwd())\n")
    inner = f"{ADAPTER} local -N 2 inner.py; head -c 4 /etc/passwd; ls /home"
    lines = seen(user, "sh", "-c", inner).splitlines()
    code = f"/home/ma-user/modelarts/user-job-dir/{user.folder.name}"
    for index, line in enumerate(sorted(lines)[:2]):
        assert line.startswith(f"[{index}] ma-job-")
        assert line.endswith(f"-worker-{index} {code}")
    assert lines[2:] == ["rootada", "ma-user"]


def test_a_job_folder_of_somebody_else_is_not_trusted(user: User) -> None:
    """Who owns it could put packages there that this job then loads."""
    theirs = user.outside("slurm-adapter/job/log")
    theirs.mkdir(parents=True)
    for path in (theirs, theirs.parent, theirs.parent.parent):
        path.chmod(0o777)
        os.chown(path, 4242, 4242)
    step = ["srun", "-N1", str(ADAPTER), "exec", "--", "touch", "started"]
    done = user.cluster.run(step, cwd=str(user.folder), env=user.environment)
    assert done.returncode != 0
    assert "slurm-adapter/job/log belongs to another user (uid 4242)" in done.stderr
    assert "--job-folder DIR" in done.stderr
    assert not user.outside("started").exists()


class TestDirectoriesMountedOnDemand:
    @pytest.fixture(params=["shared", "private"])
    def automounts(self, request: pytest.FixtureRequest, slurm: SlurmCluster) -> Iterator[str]:
        """Have autofs serve /run/auto of a node whose mounts are shared, or are not."""
        if "\tautofs\n" not in Path("/proc/filesystems").read_text():
            pytest.skip("this kernel has no autofs")
        folder = slurm.state / "run/slurm"
        for name in ("late", "named"):
            (folder / "served" / name).mkdir(parents=True, exist_ok=True)
            (folder / "served" / name / "file").write_text(f"{name}\n")
        (folder / "auto.map").write_text("* -fstype=bind :/run/slurm/served/&\n")
        (folder / "auto.master").write_text("/run/auto /run/slurm/auto.map\n")

        def on_node(command: str) -> str:
            done = slurm.run(["sh", "-ec", command], node="gpu-n00", user="root", env=SYSTEM)
            assert done.returncode == 0, done.stderr
            return done.stdout

        def serving() -> bool:
            # As the holder of the node's namespaces sees them.
            mounts = Path(f"/proc/{slurm.holder('gpu-n00')}/mountinfo").read_text()
            return re.search(r" /run/auto .*autofs", mounts) is not None

        on_node(f"mount --make-r{request.param} /; mkdir -p /run/auto")
        try:
            with slurm.popen(
                ["automount", "-f", "-p", "/run/slurm/auto.pid", "/run/slurm/auto.master"],
                node="gpu-n00",
                user="root",
                cwd="/",
                env=SYSTEM,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as daemon:
                assert until(lambda: serving() or daemon.poll() is not None)
                assert daemon.poll() is None, "automount has ended"
                yield request.param
                daemon.terminate()
        finally:
            on_node("mount --make-rprivate /")

    def test_go_on_to_appear(self, automounts: str, user: User) -> None:
        """Those that the job names always, others where the node shares its mounts."""
        named = seen(user, "cat", "/run/auto/named/file", options=("--input", "d=/run/auto/named"))
        assert named == "named\n"
        late = seen(user, "sh", "-c", "cat $(printf /run/auto/)late/file; :")
        assert late == ("late\n" if automounts == "shared" else "")


SYSTEM = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

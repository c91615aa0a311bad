"""A rank in the view is the same process as outside: same user, same rights, same machine.

What it cannot keep it is refused, rather than losing it with the view.
"""

import os
import re

import pytest

from conftest import User
from steps import run_step
from testbed import SlurmCluster

LAB = 5002
"""A group of ada's, not her first."""


def shell(user: User, text: str, *arguments: str, nodes: int = 1) -> list[str]:
    """Return what a shell script prints as a rank on each node; it ends at its first failure."""
    return run_step(user, "--", "sh", "-euc", text, "sh", *arguments, nodes=nodes).out


class TestTheUser:
    def test_is_who_they_are_outside(self, user: User) -> None:
        for view in ("full", "off"):
            (seen,) = run_step(user, "--view", view, "--boot", "process.py", nodes=1).json
            assert (seen["uid"], seen["gid"]) == ([5001] * 3, [5001] * 3)
            assert (seen["home"], seen["real home"]) == ("/home/ada", "/home/ada")

    def test_has_no_capability(self, user: User) -> None:
        for seen in run_step(user, "--boot", "process.py").json:
            assert seen["capabilities"] == [0, 0, 0, 0]
            assert seen["uid map"] == [5001, 5001, 1]

    def test_has_the_rights_of_a_second_group(self, user: User) -> None:
        user.write("the lab's", "for members\n", 0o640)
        os.chown(user.outside("the lab's"), 0, LAB)
        assert shell(user, 'cat "the lab\'s"', nodes=3) == ["for members\n"] * 3
        os.chown(user.outside("the lab's"), 0, 0)
        done = run_step(user, "--", "cat", "the lab's", nodes=1, check=False)
        assert "Permission denied" in done.err[0]

    def test_owns_what_it_writes(self, user: User) -> None:
        shell(user, "touch here ~/there /home/ma-user/kept")
        for path in ("here", "../there", "slurm-adapter/job/kept"):
            made = user.outside(path).stat()
            assert (made.st_uid, made.st_gid) == (5001, 5001)
        user.outside("../there").unlink()

    def test_may_have_as_many_threads_as_outside(self, user: User) -> None:
        """Up to the hard limit, whatever the soft one was when the view was made."""
        low = ("prlimit", "--nproc=150:")
        run_step(user, "--boot", "many_threads.py", "--", "200", nodes=1, wrapper=low)

    def test_may_start_containers(self, user: User) -> None:
        """Apptainer and its like make a user namespace of their own and mount in it."""
        start = "unshare --user --map-root-user --mount --pid --fork sh -euc"
        does = "mount -t tmpfs none /mnt; mount --bind /usr /mnt; mount -t proc proc /proc; id -u"
        assert shell(user, f'{start} "$1"', does) == ["0\n"]

    def test_may_use_slurms_commands(self, user: User) -> None:
        asked = 'test "$(squeue --noheader --format=%A --jobs="$SLURM_JOB_ID")" = "$SLURM_JOB_ID"'
        assert shell(user, f"{asked}; echo found") == ["found\n"]


class TestTheMachine:
    def test_shares_its_memory_with_what_runs_outside(
        self, user: User, slurm: SlurmCluster
    ) -> None:
        name = f"/dev/shm/{re.sub('[^a-z]', '', user.folder.name)}"
        try:
            shell(user, 'hostname >"$1"', name, nodes=3)
            for node in slurm.nodes:
                index = slurm.nodes.index(node)
                found = slurm.run(["cat", name], node=node).stdout
                assert re.fullmatch(f"ma-job-[0-9a-f-]+-worker-{index}\n", found)
        finally:
            for node in slurm.nodes:
                slurm.run(["rm", "-f", name], node=node)

    def test_shares_its_temporary_files(self, user: User, slurm: SlurmCluster) -> None:
        (name,) = shell(user, "mktemp")
        assert slurm.run(["rm", name.strip()], node="gpu-n00").returncode == 0

    def test_keeps_its_name_for_all_others(self, user: User) -> None:
        """Another step beside the rank, without a view."""
        both = 'srun --overlap --jobid "$SLURM_JOB_ID" hostname; hostname'
        outside, inside = shell(user, both)[0].split()
        assert outside == "gpu-n00"
        assert re.fullmatch("ma-job-[0-9a-f-]+-worker-0", inside)


class TestWhatCannotBeKept:
    @pytest.mark.parametrize("folder", ["/", "/home", "/etc", "/etc/volcano"])
    def test_is_refused_in(self, user: User, folder: str) -> None:
        done = run_step(user, "--", "mkdir", f"{folder}/new", nodes=1, check=False)
        assert done.status == 1
        assert "Read-only file system" in done.err[0]

    @pytest.mark.parametrize("file", ["/etc/hosts", "/etc/volcano/worker.host"])
    def test_is_refused_as_a_change_of(self, user: User, file: str) -> None:
        done = run_step(user, "--", "sh", "-c", f"echo more >>{file}", nodes=1, check=False)
        assert done.status == 2
        assert "Read-only file system" in done.err[0]

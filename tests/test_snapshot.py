"""`sbatch --snapshot`: a queued job runs the code as it was when it was submitted."""

from pathlib import Path

from conftest import User
from testbed.waiting import until


def submit(user: User, *words: str) -> str:
    options = ("--snapshot", "--parsable", "-q", *words)
    return user.run("slurm-adapter", "sbatch", *options).strip()


def snapshots(user: User) -> list[Path]:
    return sorted(user.outside("slurm-adapter/train/snapshots").glob("*"))


def test_what_is_edited_later_does_not_reach_a_queued_job(user: User) -> None:
    user.write("train.py", "import lib\nprint(lib.WORD)\n")
    user.write("lib.py", "WORD = 'as it was'\n")
    user.write(".gitignore", "big.bin\n")
    user.write("big.bin", "data")
    number = submit(user, "--sbatch", "begin=now+1hour", "train.py")
    user.write("lib.py", "WORD = 'as it is now'\n")
    user.run("scontrol", "update", f"jobid={number}", "starttime=now")
    assert user.finish(number).state == "COMPLETED"
    (text,) = user.outputs("train")
    assert text.splitlines()[0] == "as it was"
    (snapshot,) = snapshots(user)
    (code,) = snapshot.iterdir()
    assert code.name == user.folder.name
    names = sorted(path.name for path in code.iterdir() if path.name != "__pycache__")
    assert names == [".gitignore", ".made", "lib.py", "train.py"]
    assert snapshot.stat().st_mode & 0o777 == 0o700


def test_snapshots_of_ended_jobs_are_removed(user: User) -> None:
    user.write("train.py", "print('up')\n")
    ended = submit(user, "train.py")
    waiting = submit(user, "--sbatch", "begin=now+1hour", "train.py")
    assert user.finish(ended).state == "COMPLETED"
    assert len(snapshots(user)) == 2
    user.run("slurm-adapter", "jobs", "--clean")
    (kept,) = snapshots(user)
    user.run("slurm-adapter", "stop", waiting)
    done = user.cluster.run(
        ["slurm-adapter", "jobs", "--clean"], cwd=str(user.folder), env=user.environment
    )
    assert f"slurm-adapter: removed, of job {waiting}: " in done.stderr
    assert until(lambda: not kept.exists())


def test_a_boot_file_that_would_be_missing_stops_the_submission(user: User) -> None:
    user.write("train.py", "print('up')\n")
    user.write(".gitignore", "train.py\n")
    done = user.cluster.run(
        ["slurm-adapter", "sbatch", "--snapshot", "train.py"],
        cwd=str(user.folder),
        env=user.environment,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "the boot file is left out of the snapshot by an ignore file" in done.stderr
    assert snapshots(user) == []

"""Inputs and outputs lie at ModelArts' paths for the script, and where the user wants them.

What is written under a view is an ordinary file of the user's, wherever it was written to.
"""

import pytest

from conftest import User
from steps import SCRIPTS, Ended, run_step

ADA = 5001
CHANNELS = ("--input=data_url=data set", "--input=vocabulary=words.txt", "--output=train_url=out")


@pytest.fixture
def prepared(user: User) -> User:
    """Give the user a folder and a file to be inputs."""
    user.write("data set/part", "a part\n")
    user.write("words.txt", "a word\n")
    return user


class TestChannels:
    def check(self, user: User) -> None:
        for index in range(3):
            kept = user.outside("slurm-adapter/channels/modelarts/outputs/other")
            note, model = kept / f"note-{index}", user.outside(f"out/model-{index}")
            assert model.read_text() == "a part\na word\n"
            assert note.read_text() == "not declared\n"
            assert {model.stat().st_uid, note.stat().st_uid} == {ADA}

    def test_are_read_and_written_by_literal_paths(self, prepared: User) -> None:
        run_step(prepared, *CHANNELS, "--boot", "channels.py")
        self.check(prepared)

    def test_are_so_in_a_job_of_slurm_adapter_sbatch(self, prepared: User) -> None:
        prepared.write("channels.py", (SCRIPTS / "channels.py").read_text())
        submit = ["slurm-adapter", "sbatch", "-N", "3", "--parsable", *CHANNELS, "channels.py"]
        assert prepared.finish(prepared.run(*submit)).state == "COMPLETED"
        self.check(prepared)

    def test_are_told_by_the_same_paths(self, prepared: User) -> None:
        (told,) = run_step(prepared, *CHANNELS, "--boot", "arguments.py", nodes=1).out
        assert told.splitlines() == [
            "--data_url=/home/ma-user/modelarts/inputs/data_url_0",
            "--vocabulary=/home/ma-user/modelarts/inputs/vocabulary_0",
            "--train_url=/home/ma-user/modelarts/outputs/train_url_0",
        ]

    def test_lie_beside_the_users_own_paths(self, prepared: User) -> None:
        """A path that stands in a script's own configuration leads where it led before."""
        same = 'test "$1" -ef /home/ma-user/modelarts/inputs/data_url_0 && echo same'
        path = f"{prepared.folder}/data set"
        assert run_step(prepared, *CHANNELS, "--", "sh", "-ec", same, "sh", path).out == [
            *("same\n", "same\n", "same\n")
        ]

    def test_may_be_read_only(self, prepared: User) -> None:
        """Of the machine's, such as /etc/hostname: it is readable, and stays as it is."""
        read = 'cat "$h"; ! touch "$h" 2>/dev/null'
        options = ("--input", "h=/etc/hostname", "--", "sh", "-ec", read)
        (told,) = run_step(prepared, *options, nodes=1).out
        assert told == prepared.run("cat", "/etc/hostname")


class TestAJobThatRunsAgain:
    """In the same folder of the job, its mount points from the last run still in it."""

    READ = 'cat "$data" "$data/part" 2>/dev/null || :'

    def run(self, user: User, path: str) -> Ended:
        return run_step(user, "--input", f"data={path}", "--", "sh", "-c", self.READ, nodes=1)

    def test_may_have_a_file_where_the_input_was_a_folder(self, prepared: User) -> None:
        assert self.run(prepared, "data set").out == ["a part\n"]
        again = self.run(prepared, "words.txt")
        assert (again.out, again.err) == (["a word\n"], [""])

    def test_may_have_a_folder_where_the_input_was_a_file(self, prepared: User) -> None:
        assert self.run(prepared, "words.txt").out == ["a word\n"]
        again = self.run(prepared, "data set")
        assert (again.out, again.err) == (["a part\n"], [""])

    def test_finds_what_it_left_beside_its_channels(self, prepared: User) -> None:
        """A checkpoint in an output that was not declared, say."""
        keep = "mkdir -p /home/ma-user/modelarts/outputs/x; ls /home/ma-user/modelarts/outputs/x"
        save = "; touch /home/ma-user/modelarts/outputs/x/checkpoint"
        assert run_step(prepared, "--", "sh", "-ec", keep + save, nodes=1).out == [""]
        assert run_step(prepared, "--", "sh", "-ec", keep, nodes=1).out == ["checkpoint\n"]


@pytest.mark.parametrize("option", ["--input=data=missing", "--cache=missing"])
def test_what_is_not_there_is_refused_by_name(user: User, option: str) -> None:
    ended = run_step(user, option, "--", "touch", "started", nodes=1, check=False)
    assert ended.status == 3
    assert f"gpu-n00 has no {user.folder}/missing, which /" in ended.err[0]
    assert not user.outside("started").exists()


def test_an_output_that_cannot_be_made_is_refused_by_name(user: User) -> None:
    options = ("--output", "data=/etc/new", "--", "touch", "started")
    ended = run_step(user, *options, nodes=1, check=False)
    assert ended.status == 3
    assert "gpu-n00 cannot make the output /etc/new: Permission denied" in ended.err[0]
    assert not user.outside("started").exists()

"""A dry run over SSH connects to nothing, unless a probe is asked for, and starts nothing."""

import json
import subprocess
from contextlib import ExitStack

import pytest

from conftest import ADAPTER, User
from sshruns import Ended, left, listening, run_ssh
from steps import SCRIPTS
from testbed import SshHosts, until
from testbed.waiting import LONG_S

pytestmark = pytest.mark.usefixtures("ssh_hosts")


def dry_run(user: User, *words: str, form: str = "plain", hosts: str = "gpu-n[00-02]") -> Ended:
    ended = run_ssh(user, "--dry-run", "--format", form, *words, hosts=hosts)
    assert ended.err == ""
    assert not ended.jobs.exists()
    assert not user.outside("slurm-adapter").exists()
    return ended


def commands(ended: Ended) -> list[str]:
    """Return the line for each node that one could paste."""
    return [line for line in ended.out.splitlines() if line.startswith("ssh gpu-n0")]


def paste(user: User, lines: list[str]) -> list[list[str]]:
    """Run lines in a shell each, all at once; return the lines that each printed, sorted."""
    with ExitStack() as stack:
        shells = [
            stack.enter_context(user.cluster.popen(["bash", "-c", line], stdin=subprocess.DEVNULL))
            for line in lines
        ]
        ends = [shell.communicate(timeout=LONG_S) for shell in shells]
    assert [shell.returncode for shell in shells] == [0] * len(shells), ends
    return [sorted(out.splitlines()) for out, _ in ends]


class TestADryRun:
    @pytest.mark.parametrize("form", ["rich", "plain", "json"])
    def test_needs_no_network_at_all(self, user: User, form: str) -> None:
        """Not even a name is looked up: there is nothing but the machine itself."""
        user.write("train.py", "")
        alone = ["unshare", "--user", "--map-root-user", "--net"]
        words = ["ssh", "-H", "nowhere,gpu-n01", "--dry-run", "--format", form, "train.py"]
        done = user.cluster.run(
            [*alone, ADAPTER, *words], cwd=str(user.folder), env=user.environment
        )
        assert (done.returncode, done.stderr) == (0, "")
        for name in ("nowhere", "gpu-n01", "VC_TASK_INDEX"):
            assert name in done.stdout
        assert not user.outside("slurm-adapter").exists()

    def test_is_a_document(self, user: User) -> None:
        user.write("train.py", "")
        document = json.loads(dry_run(user, "train.py", "--a", "b c", form="json").out)
        assert document["schema"] == 1
        nodes = document["plan"]["nodes"]
        assert [node["name"] for node in nodes] == ["gpu-n00", "gpu-n01", "gpu-n02"]
        assert [node["address"] for node in nodes] == [None] * 3
        words = [word["value"] for word in nodes[2]["ranks"][0]["argv"]]
        assert words[-6:] == ["--rank", "2", "--world_size", "3", "--a", "b c"]

    def test_gives_a_command_for_each_node(self, user: User) -> None:
        """To be pasted into a shell here: it starts that node's rank, without a view."""
        user.write("node_level.py", (SCRIPTS / "node_level.py").read_text())
        lines = commands(dry_run(user, "node_level.py", "--expect", "6"))
        expected = [[f"sum 6.0 on node {node} of 3"] for node in range(3)]
        assert paste(user, lines) == expected

    def test_gives_all_ranks_of_a_node_in_one(self, user: User) -> None:
        hosts = "gpu-n00:2,gpu-n01:1"
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        told = f"' '.join(os.environ[name] for name in {names}) + chr(10)"
        user.write("tell.py", f"import os, sys\nsys.stdout.write({told})\n")
        lines = commands(dry_run(user, "--contract", "env", "tell.py", hosts=hosts))
        told = [sorted(node) for node in paste(user, lines)]
        assert told == [["0 3 0 2", "1 3 1 2"], ["2 3 0 1"]]

    def test_quotes_what_a_shell_would_change(self, user: User) -> None:
        text = 'it\'s $HOME `x` "y" \\ * ; echo INJ'
        user.write("show.py", "import os, sys\nprint(os.environ['ODD'] == sys.argv[-1])\n")
        ended = dry_run(user, "--env", f"ODD={text}", "show.py", text, hosts="gpu-n01")
        assert paste(user, commands(ended)) == [["True"]]

    @pytest.mark.parametrize("form", ["rich", "plain", "json"])
    def test_prints_no_secret(self, user: User, form: str) -> None:
        user.write("train.py", "")
        ended = dry_run(user, "--env", "MY_TOKEN=s3cret", "train.py", form=form)
        assert "MY_TOKEN" in ended.out
        assert "s3cret" not in ended.out

    def test_of_many_hosts_is_short(self, user: User) -> None:
        user.write("train.py", "")
        ended = dry_run(user, "train.py", hosts="lab[0000-1999]:8")
        assert "lab1999" in ended.out
        assert len(ended.out.splitlines()) < 200


class TestAProbe:
    def test_shows_what_is_there_and_starts_nothing(self, user: User, ssh_hosts: SshHosts) -> None:
        user.write("train.py", f"open('{user.folder}/started', 'w')\n")
        with listening(user, "gpu-n00", "0.0.0.0", 6666):
            ended = dry_run(user, "--probe", "train.py", form="json")
        nodes = json.loads(ended.out)["plan"]["nodes"]
        assert [node["address"] for node in nodes] == ["10.77.0.10", "10.77.0.11", "10.77.0.12"]
        assert [node["gpus"] for node in nodes] == [0, 0, 0]
        (url,) = [w["value"] for w in nodes[1]["ranks"][0]["argv"] if "tcp://" in w["value"]]
        assert url.endswith(":6667")
        assert not user.outside("started").exists()
        assert until(lambda: not left(ssh_hosts))

    def test_gives_commands_that_lack_nothing(self, user: User) -> None:
        user.write("node_level.py", (SCRIPTS / "node_level.py").read_text())
        lines = commands(dry_run(user, "--probe", "node_level.py", "--expect", "6"))
        assert not any("<" in line for line in lines)
        assert paste(user, lines)[2] == ["sum 6.0 on node 2 of 3"]

    def test_tells_of_hosts_as_a_start_would(self, user: User, ssh_hosts: SshHosts) -> None:
        user.write("train.py", "")
        with ssh_hosts.stopped("gpu-n02"):
            ended = run_ssh(user, "--dry-run", "--probe", "train.py", check=False)
        assert (ended.status, ended.out) == (3, "")
        assert "gpu-n02: connection refused" in ended.err

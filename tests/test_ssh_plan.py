"""What `ssh --dry-run --probe` shows is what each rank then has: argv, environment, directory.

Nothing is left out of the comparison but what differs from one login to the next.
"""

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from commandline import BIN
from conftest import User
from sshruns import left, run_ssh
from steps import SCRIPTS
from test_boot_steps import TINY, write_wheel
from testbed import SshHosts, until

HOSTS = "gpu-n[00-02]"
UNEVEN = "gpu-n00:2,gpu-n01:1,gpu-n02:3"
# sshd's own for each connection, and what a shell says it ran last.
OF_A_LOGIN = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_ORIGINAL_COMMAND", "_")
OWN_HOSTS = """\
[hosts.gpu-n00]
slots = 2
env = {{ PATH = "/opt/own:/usr/bin:/bin", ONLY_HERE = "a b" }}

[hosts.gpu-n01]
slots = 1
python = "{python}"

[hosts.gpu-n02]
slots = 1
env = {{ OMP_NUM_THREADS = "3" }}
"""

Rank = dict[str, Any]


@pytest.fixture(autouse=True)
def forbidding_script(ssh_hosts: SshHosts) -> str:
    """Return the option of an sshd that lets nothing it starts make namespaces."""
    script = "forbid_call.py"
    path = ssh_hosts.cluster.write(script, (SCRIPTS / script).read_text(), 0o755)
    return f'ForceCommand={path} unshare /bin/sh -c "$SSH_ORIGINAL_COMMAND"'


def inherited(user: User, node: str) -> dict[str, str]:
    """Return what a login on a node gives its programs."""
    words = ["ssh", node, "cat /proc/self/environ"]
    done = user.cluster.run(words, env=user.environment)
    assert done.returncode == 0, done.stderr
    return dict(one.split("=", 1) for one in done.stdout.split("\0")[:-1])


def shown(document: dict[str, Any], user: User) -> list[Rank]:
    """Return each rank as the document has it, with what it inherits."""
    plan = document["plan"]
    first = {item["name"]: item["value"] for item in plan["environment"]}
    removed = [one["pattern"] for one in plan["removed"]]
    ranks = []
    for node in plan["nodes"]:
        there = inherited(user, node["name"])
        kept = {
            name: value
            for name, value in there.items()
            if not any(fnmatchcase(name, pattern) for pattern in removed)
        }
        for rank in node["ranks"]:
            own = {item["name"]: item["value"] for item in rank["environment"]}
            settings = {k: v for k, v in first.items() if k not in rank.get("lacks", ())}
            argv = rank.get("argv", plan["nodes"][0]["ranks"][0]["argv"])
            ranks.append(
                {
                    "argv": [word["value"] for word in argv],
                    "environment": {**kept, **settings, **own},
                    "cwd": rank.get("cwd", plan["cwd"])["value"],
                }
            )
    return ranks


def of_this_login(rank: Rank) -> Rank:
    """Leave out what another login has otherwise."""
    environment = {k: v for k, v in rank["environment"].items() if k not in OF_A_LOGIN}
    return {**rank, "environment": environment}


def compare(
    user: User,
    *options: str,
    program: tuple[str, ...] = ("had.py", "--a", "b c"),
    hosts: str | None = HOSTS,
) -> list[Rank]:
    """Assert that what a dry run shows is what a run then has; return the latter's ranks."""
    options = (*options, *program)
    probe = run_ssh(user, "--dry-run", "--probe", "--format", "json", *options, hosts=hosts)
    text = probe.out
    document = json.loads(text)
    values = [*document["plan"]["environment"]]
    values += [v for n in document["plan"]["nodes"] for r in n["ranks"] for v in r["environment"]]
    assert all(value["known"] and "hole" not in value for value in values)
    ended = run_ssh(user, *options, hosts=hosts)
    had = [json.loads(line) for rank in range(6) for line in ended.lines(rank) if line[0] == "{"]
    run = "SLURM_ADAPTER_RUN"
    before = next(one["value"] for one in document["plan"]["environment"] if one["name"] == run)
    after = had[0]["environment"][run]
    assert before != after  # each run has a UUID of its own; nothing else may be another
    expected = shown(json.loads(text.replace(before, after)), user)
    assert list(map(of_this_login, had)) == list(map(of_this_login, expected))
    warned = [line.replace(before, after) for line in probe.said]
    assert warned == [line for line in ended.said if line.startswith("slurm-adapter: warning: ")]
    return had


def views(ranks: list[Rank]) -> list[str]:
    """Return for each rank how it finds the others: `names` of the workers or of the `nodes`."""
    lists = [rank["environment"]["VC_WORKER_HOSTS"] for rank in ranks]
    return ["names" if "-worker-" in one else "nodes" for one in lists]


class TestEachRankHasWhatIsShown:
    def test_with_a_full_view(self, user: User) -> None:
        had = compare(user, "--env", "MINE=x y", "--input", f"data_url={user.folder}")
        assert views(had) == ["names"] * 3
        assert all(one["cwd"].startswith("/home/ma-user/") for one in had)

    def test_with_a_command(self, user: User) -> None:
        user.write("had.py", (SCRIPTS / "had.py").read_text())
        text = f"python '{user.folder}/had.py' parent; echo done"
        had = compare(user, program=("--command", text))
        assert all(one["argv"] == ["/bin/sh", "-c", text] for one in had)
        assert [one["environment"]["PATH"].split(":")[0] for one in had] == [str(BIN)] * 3

    def test_with_a_rank_for_each_slot(self, user: User) -> None:
        had = compare(user, "--contract", "env", hosts=UNEVEN)
        assert [one["environment"]["LOCAL_RANK"] for one in had] == list("010012")

    def test_with_torchrun_on_each_node(self, user: User) -> None:
        program = ("had.py", "parent")
        had = compare(user, "--contract", "torchrun", program=program, hosts=UNEVEN)
        for index, one in enumerate(had):
            assert f"--node-rank={index}" in one["argv"]

    def test_with_variables_and_an_interpreter_of_a_host(self, user: User) -> None:
        own = user.outside("own")
        user.write("hosts.toml", OWN_HOSTS.format(python=user.folder / "own/python"))
        user.write("own/python", "")
        own.joinpath("python").unlink()
        own.joinpath("python").symlink_to(BIN / "python")
        words = ("--hosts", "hosts.toml", "--contract", "env")
        had = compare(user, *words, hosts=None)
        paths = [one["environment"]["PATH"] for one in had]
        assert paths[0] == paths[1] == f"{BIN}:/opt/own:/usr/bin:/bin"
        assert paths[2].startswith(f"{user.folder}/own:")
        assert "ONLY_HERE" not in had[2]["environment"]

    def test_with_packages_that_are_installed_first(self, user: User) -> None:
        write_wheel(user.outside(TINY))
        user.write("pip-requirements.txt", f"./{TINY}\n")
        had = compare(
            user, "--contract", "env", "--install-requirements", hosts="gpu-n00:2,gpu-n01:1"
        )
        for one in had:
            path = one["environment"]["PATH"].split(":")
            assert path[0] == str(BIN)  # the job's own interpreter, packages or not
            assert path[-1].endswith("/packages/bin")


class TestANodeThatGivesLess:
    """Its ranks get names and paths that are right there; those of the others stay."""

    def test_by_a_library_in_place_of_namespaces(
        self, user: User, ssh_hosts: SshHosts, forbidding_script: str
    ) -> None:
        with ssh_hosts.restarted("gpu-n01", forbidding_script):
            had = compare(user, "--env", "LD_PRELOAD=")
        assert [bool(one["environment"].get("LD_PRELOAD")) for one in had] == [False, True, False]
        assert views(had) == ["names"] * 3
        assert [one["cwd"].startswith("/home/ma-user/") for one in had] == [True, False, True]

    def test_without_that_library(
        self, user: User, ssh_hosts: SshHosts, forbidding_script: str
    ) -> None:
        with (
            ssh_hosts.restarted("gpu-n00", forbidding_script),
            ssh_hosts.hidden("gpu-n00", *map(str, Path("/usr/lib").glob("*/libnss_wrapper*"))),
        ):
            had = compare(user)
        assert views(had) == ["nodes", "names", "names"]
        assert [one["cwd"].startswith("/home/ma-user/") for one in had] == [False, True, True]

    def test_makes_a_probe_fail_where_the_view_was_asked_for(
        self, user: User, ssh_hosts: SshHosts, forbidding_script: str
    ) -> None:
        words = ("--dry-run", "--probe", "--view", "full", "had.py")
        with ssh_hosts.restarted("gpu-n02", forbidding_script):
            ended = run_ssh(user, *words, check=False)
        assert (ended.status, ended.out) == (3, "")
        assert "gpu-n02 cannot give --view full: a seccomp filter forbids it" in ended.err
        assert until(lambda: not left(ssh_hosts))

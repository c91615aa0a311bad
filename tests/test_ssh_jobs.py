"""What runs on Slurm runs over SSH alike: for an ordinary user, on three machines, in full view."""

import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest

from conftest import User
from sshruns import NODES, left, run_ssh, start_adapter
from steps import SCRIPTS
from testbed import SshHosts, processes, until
from testbed.waiting import LONG_S

pytestmark = pytest.mark.usefixtures("ssh_hosts")

SHOW = "import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ), sys.executable]))\n"


class TestModelArtsScripts:
    def test_that_goes_by_names(self, user: User, ssh_hosts: SshHosts) -> None:
        ended = run_ssh(user, "rank_by_name.py")
        for rank, node in enumerate(ssh_hosts.nodes):
            assert f"[{node}/{rank}] sum 6.0 on {rank} of 3\n" in ended.out
        assert (len(ended.out.splitlines()), ended.err) == (3, "")
        assert until(lambda: not left(ssh_hosts))

    def test_that_reads_and_writes_by_literal_paths(self, user: User) -> None:
        user.write("data set/part", "a part\n")
        user.write("words.txt", "a word\n")
        channels = ("--input=data_url=data set", "--input=vocabulary=words.txt")
        run_ssh(user, *channels, "--output=train_url=out", "channels.py")
        for index in range(3):
            assert user.outside(f"out/model-{index}").read_text() == "a part\na word\n"
            kept = user.outside("slurm-adapter/channels/modelarts/outputs/other")
            assert (kept / f"note-{index}").read_text() == "not declared\n"

    def test_that_takes_the_three_options(self, user: User) -> None:
        """Its rendezvous is by names of Volcano, its first all-reduce by addresses."""
        ended = run_ssh(user, "first_reduce.py")
        for rank in range(3):
            (line,) = ended.lines(rank)
            assert line.startswith("sum 6.0 after ")

    def test_has_the_surroundings_of_a_container(self, user: User) -> None:
        ended = run_ssh(user, "folders.py")
        for rank in range(3):
            seen = json.loads(ended.lines(rank)[0])
            code = f"/home/ma-user/modelarts/user-job-dir/{user.folder.name}"
            assert (seen["script"], seen["directory"]) == (f"{code}/folders.py", code)
            assert seen["same code"]
            names = [f"{seen['job']}-worker-{index}.{seen['job']}" for index in range(3)]
            assert seen["volcano"]["VC_WORKER_HOSTS"] == ",".join(names)
        assert not user.outside("slurm-adapter/folders/run").exists()

    def test_finds_every_name_at_once(self, user: User) -> None:
        ended = run_ssh(user, "look_up.py")
        for rank in range(3):
            seen = json.loads(ended.lines(rank)[0])
            for index, name in enumerate(seen["names"]):
                assert seen["found"][name]["gethostbyname"] == f"10.77.0.{10 + index}"
            assert seen["mapped"] == [f"{seen['job']}-worker-{i}.mapped" for i in range(3)]

    def test_finds_no_variable_that_modelarts_lacks(self, user: User) -> None:
        ended = run_ssh(user, "hygiene.py", env={"RANK": "7", "MASTER_ADDR": "elsewhere"})
        assert ended.lines(2) == ["found []"]


class TestWithoutNamespaces:
    """Where an administrator forbids them, nss_wrapper gives the names, and the user is told."""

    @pytest.fixture(autouse=True)
    def _forbidden(self, user: User, ssh_hosts: SshHosts) -> Iterator[None]:
        forbid = "forbid_namespaces.sh"
        user.write(forbid, (SCRIPTS / forbid).read_text(), 0o755)
        command = f"'{user.folder}/{forbid}' /bin/sh -c \"$SSH_ORIGINAL_COMMAND\""
        with ExitStack() as stack:
            for node in ssh_hosts.nodes:
                stack.enter_context(ssh_hosts.restarted(node, f"ForceCommand={command}"))
            yield
        assert until(lambda: not left(ssh_hosts))

    def test_ranks_meet_all_the_same(self, user: User) -> None:
        ended = run_ssh(user, "node_level.py", "--expect", "6")
        for rank in range(3):
            assert ended.lines(rank) == [f"sum 6.0 on node {rank} of 3"]
            (warning,) = [line for line in ended.said if f"no full view on gpu-n0{rank}:" in line]
            assert "user.max_user_namespaces is 0. Missing there: the host name ma-job-" in warning
            assert "An administrator can allow it: sysctl " in warning

    def test_every_name_is_found(self, user: User) -> None:
        ended = run_ssh(user, "--view", "hosts", "look_up.py")
        for rank in range(3):
            seen = json.loads(ended.lines(rank)[0])
            for index, name in enumerate(seen["names"]):
                assert seen["found"][name]["gethostbyname"] == f"10.77.0.{10 + index}"

    def test_a_view_that_was_asked_for_is_refused(self, user: User) -> None:
        user.write("train.py", f"open('{user.folder}/started', 'w')\n")
        ended = run_ssh(user, "--view", "full", "train.py", check=False)
        assert (ended.status, ended.out) == (3, "")
        for node in ("gpu-n00", "gpu-n01", "gpu-n02"):
            assert f"{node} cannot give --view full: user.max_user_namespaces is 0" in ended.err
        assert not user.outside("started").exists()


class TestTheEnvContract:
    def test_has_a_rank_for_each_slot(self, user: User) -> None:
        """Uneven ones: six ranks on three machines, and each knows its place."""
        hosts = "gpu-n00:2,gpu-n01:1,gpu-n02:3"
        ended = run_ssh(user, "--contract", "env", "meet.py", hosts=hosts)
        places = [(0, 0, 2), (0, 1, 2), (1, 0, 1), (2, 0, 3), (2, 1, 3), (2, 2, 3)]
        for rank, (node, local, size) in enumerate(places):
            told = f"rank {rank} of 6, local {local} of {size}: 21"
            assert f"[gpu-n0{node}/{rank}] {told}\n" in ended.out

    def test_tells_every_variable_of_it(self, user: User) -> None:
        user.write("show.py", SHOW)
        ended = run_ssh(user, "--contract", "env", "show.py", hosts="gpu-n02:2,gpu-n00")
        places = [(0, 0, 2), (0, 1, 2), (1, 0, 1)]
        for rank, (node, local, size) in enumerate(places):
            _, variables, _ = json.loads(ended.lines(rank)[0])
            told = {
                "RANK": rank,
                "LOCAL_RANK": local,
                "LOCAL_WORLD_SIZE": size,
                "WORLD_SIZE": 3,
                "NODE_RANK": node,
                "NNODES": 2,
                "MASTER_ADDR": "10.77.0.12",
            }
            assert {name: variables[name] for name in told} == {
                name: str(value) for name, value in told.items()
            }
            assert 6666 <= int(variables["MASTER_PORT"]) < 7000


def test_torchrun_starts_a_rank_for_each_slot(user: User) -> None:
    hosts = "gpu-n00:2,gpu-n01:1,gpu-n02:1"
    ended = run_ssh(user, "--contract", "torchrun", "group.py", hosts=hosts)
    lines = [line for torchrun in range(3) for line in ended.lines(torchrun)]
    assert sorted(lines) == [
        "rank 0 of 4, local 0 of 2, gloo on cpu: 10.0",
        "rank 1 of 4, local 1 of 2, gloo on cpu: 10.0",
        "rank 2 of 4, local 0 of 1, gloo on cpu: 10.0",
        "rank 3 of 4, local 0 of 1, gloo on cpu: 10.0",
    ]


def test_ranks_by_node_changes_nothing_over_ssh(user: User) -> None:
    told = "echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE"
    options = ["--contract", "env", "--ranks-by", "node", "--command", told]
    ended = run_ssh(user, *options, hosts="gpu-n00:2,gpu-n01:1")
    assert [line for rank in range(3) for line in ended.lines(rank)] == [
        "rank 0 of 3, local 0 of 2",
        "rank 1 of 3, local 1 of 2",
        "rank 2 of 3, local 0 of 1",
    ]


class TestOutput:
    def test_stands_behind_its_rank_on_the_stream_it_was_for(self, user: User) -> None:
        user.write("say.py", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n")
        ended = run_ssh(user, "say.py")
        for text, word in ((ended.out, "out"), (ended.err, "err")):
            lines = [f"[gpu-n0{rank}/{rank}] {word}" for rank in range(3)]
            assert sorted(text.splitlines()) == lines

    @pytest.mark.parametrize(
        ("choice", "shown"), [("all", {0, 1, 2}), ("first", {0}), ("none", set()), ("rank=1", {1})]
    )
    def test_is_shown_of_the_chosen_and_kept_of_all(
        self, user: User, choice: str, shown: set[int]
    ) -> None:
        ended = run_ssh(user, "--logs", choice, "--command", "echo out; echo err >&2")
        for rank in range(3):
            assert ended.lines(rank) == (["out"] if rank in shown else [])
            assert ended.errors(rank) == (["err"] if rank in shown else [])
            kept = (ended.record / f"rank-{rank}.log").read_text().splitlines()
            assert sorted(kept) == ["err", "out"]

    def test_keeps_bars_and_characters_whole(self, user: User) -> None:
        """A progress bar rewrites its line; a character may come in two reads, as here."""
        user.write(
            "bar.py",
            "import fcntl, os, termios, time\n"
            "split = 'caf\\u00e9 \\u4e2d'.encode()[:-1]\n"
            "for part in (b'10%\\r', b'50%\\r', b'100%\\r\\n', split):\n"
            "    os.write(1, part)\n"
            "    while fcntl.ioctl(1, termios.FIONREAD, bytes(4)) != bytes(4):\n"
            "        time.sleep(0.001)\n"
            "os.write(1, '\\u4e2d'.encode()[-1:] + b'\\nlast')\n",
        )
        ended = run_ssh(user, "bar.py")
        expected = ["10%", "50%", "100%", "café 中", "last"]
        for rank in range(3):
            assert ended.lines(rank) == expected
            assert (ended.record / f"rank-{rank}.log").read_text().splitlines() == expected

    def test_keeps_bytes_that_are_no_text(self, user: User) -> None:
        ended = run_ssh(user, "--command", r"printf '\377\000\033[31m\n'", hosts="gpu-n01")
        assert ended.out == "[gpu-n01/0] \udcff\0\033[31m\n"

    def test_arrives_whole_and_in_order(self, user: User) -> None:
        user.write("many.py", "for number in range(50_000):\n    print(number)\n")
        ended = run_ssh(user, "many.py", env={"PYTHONUNBUFFERED": ""})
        for rank in range(3):
            assert ended.lines(rank) == list(map(str, range(50_000)))
            kept = (ended.record / f"rank-{rank}.log").read_text()
            assert kept == "".join(f"{number}\n" for number in range(50_000))

    def test_is_kept_for_its_owner_alone(self, user: User) -> None:
        ended = run_ssh(user, "--command", "echo out")
        assert ended.record.name == "ssh-1"
        assert stat.S_IMODE(ended.record.stat().st_mode) == 0o700
        assert stat.S_IMODE(ended.jobs.stat().st_mode) == 0o700
        files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in ended.record.iterdir()}
        names = ("job.json", "end.json", "rank-0.log", "rank-1.log", "rank-2.log")
        assert files == dict.fromkeys(names, 0o600)

    def test_is_kept_below_the_home_directory(self, user: User) -> None:
        """In ~/.local/state, where nothing else is said."""
        ended = run_ssh(user, "-v", "--command", "echo $MA_VJ_NAME", env={"XDG_STATE_HOME": ""})
        job = ended.said[0].partition(" started as ")[2].partition(",")[0]
        jobs = user.cluster.outside(".local/state/slurm-adapter/jobs")
        assert (jobs / job / "rank-1.log").read_text().splitlines() == ended.lines(1)

    def test_is_all_there_is_unless_more_is_asked_for(self, user: User) -> None:
        assert run_ssh(user, "--command", "true").err == ""
        said = run_ssh(user, "-v", "--command", "true").err
        assert said == "slurm-adapter: 3 ranks started as ssh-2, rendezvous port 6666\n"

    def test_is_without_warnings_where_those_are_not_wanted(self, user: User) -> None:
        user.write("paths.py", "open('/home/ma-user/x') if 0 else None\n")
        view = ("--view", "off", "paths.py")
        assert "names /home/ma-user, which is not there" in run_ssh(user, *view).err
        assert run_ssh(user, "-q", *view).err == ""


HOSTILE = {
    "SPACES": "  a  b ",
    "QUOTES": 'it\'s "quoted" `echo INJ` $HOME \\',
    "LINES": "one\ntwo\n",
    "COMMAND": "a b; echo INJ",
    "GLOB": "* ? [a] {b,c} ~ !x #y",
    "EMPTY": "",
    "UNICODE": "中文 é \udcff",
    "LOOKS_LIKE": "--env=X=1 -oProxyCommand=x",
}


class TestTheEnvironment:
    def test_arrives_exactly(self, user: User) -> None:
        """SSH-01 and SSH-02: whatever the server accepts, whatever a shell would make of it."""
        user.write("show.py", SHOW)
        given = [word for name, value in HOSTILE.items() for word in ("--env", f"{name}={value}")]
        arguments = list(HOSTILE.values())
        given += ["--env", "MASTER_ADDR=gpu-n00", "--env", "LC_X=2"]
        ended = run_ssh(user, *given, "show.py", *arguments)
        for rank in range(3):
            told, variables, _ = json.loads(ended.lines(rank)[0])
            assert told[-len(arguments) :] == arguments
            assert {name: variables[name] for name in HOSTILE} == HOSTILE
            assert (variables["MASTER_ADDR"], variables["LC_X"]) == ("gpu-n00", "2")
        assert "INJ" not in [line.strip() for line in ended.out.splitlines()]

    def test_is_on_no_command_line(self, user: User, ssh_hosts: SshHosts) -> None:
        """Those of all processes are for every user of a machine to read."""
        user.write("stay.py", "import time\nprint('up')\ntime.sleep(1000)\n")
        env = {"FROM_HERE_TOKEN": "s3cret-kept"}
        secrets = ["s3cret-given", "s3cret-kept"]
        words = ["--env", "MY_TOKEN=s3cret-given", "--env", "FROM_HERE_TOKEN", "stay.py"]
        job = start_adapter(user, "ssh", "-H", NODES, *words, env=env)
        with job:
            assert job.stdout
            for _ in range(3):
                assert job.stdout.readline().endswith("] up\n")
            seen = 0
            for node in (*ssh_hosts.nodes, "head"):
                for pid in ssh_hosts.cluster.pids(node):
                    if pid != job.pid:  # whose words the user typed
                        title = processes.title(pid)
                        assert not any(secret in title for secret in secrets)
                        seen += "stay.py" in title
            assert seen == 3
            for path in user.outside("state").rglob("*"):
                text = path.read_text() if path.is_file() else ""
                assert not any(secret in text for secret in secrets)
            job.terminate()
            job.wait(LONG_S)
        assert until(lambda: not left(ssh_hosts))

    def test_takes_along_what_steers_libraries_only(self, user: User) -> None:
        user.write("show.py", SHOW)
        crossing = {
            "NCCL_DEBUG": "INFO",
            "OMP_NUM_THREADS": "3",
            "TORCH_DISTRIBUTED_DEBUG": "OFF",
            "TZ": "Asia/Tokyo",
        }
        staying = {
            "WANDB_API_KEY": "secret",
            "HF_TOKEN": "secret",
            "NCCL_SOCKET_IFNAME": "wlan0",
            "GLOO_SOCKET_IFNAME": "wlan0",
            "NCCL_IB_HCA": "mlx9",
            "TORCH_HOME": "/here",
            "HF_HOME": "/here",
            "CUDA_VISIBLE_DEVICES": "7",
            "LD_LIBRARY_PATH": "/here",
            "PYTHONPATH": "/here",
            "VIRTUAL_ENV": "/here",
            "ANYTHING": "else",
        }
        ended = run_ssh(user, "show.py", env={**crossing, **staying})
        for rank in range(3):
            _, variables, _ = json.loads(ended.lines(rank)[0])
            assert crossing.items() <= variables.items()
            assert not staying.items() & variables.items()

    def test_takes_along_what_is_asked_for_by_name(self, user: User) -> None:
        user.write("show.py", SHOW)
        ended = run_ssh(user, "--env", "MY_TOKEN", "show.py", env={"MY_TOKEN": "a b"})
        _, variables, _ = json.loads(ended.lines(1)[0])
        assert variables["MY_TOKEN"] == "a b"  # noqa: S105 - no secret of anybody's

    def test_may_differ_by_host(self, user: User) -> None:
        user.write("show.py", SHOW)
        user.write(
            "lab.toml",
            "[hosts.gpu-n00]\n"
            'env = { NCCL_IB_TC = "106", SAME = "of the host" }\n'
            '[hosts."gpu-n[01-02]"]\npython = "/usr/bin/python3"\n',
        )
        words = ("--hosts", "lab.toml", "--env", "SAME=of the job", "show.py")
        ended = run_ssh(user, *words, hosts=None)
        seen = [json.loads(ended.lines(rank)[0]) for rank in range(3)]
        assert [one[1].get("NCCL_IB_TC") for one in seen] == ["106", None, None]
        assert [one[1]["SAME"] for one in seen] == ["of the host", "of the job", "of the job"]
        own = f"{user.environment['PATH'].split(':')[0]}/python"
        assert [one[2] for one in seen] == [own, "/usr/bin/python3", "/usr/bin/python3"]


class TestTheInterpreter:
    """SSH-04: nothing that a start-up file would have to set is counted on."""

    def test_is_the_one_that_python_names_here(self, user: User) -> None:
        own = f"{user.environment['PATH'].split(':')[0]}/python"
        has_torch = "from importlib.util import find_spec; print(find_spec('torch').name)"
        ended = run_ssh(user, "--command", f'command -v python; python -c "{has_torch}"')
        for rank in range(3):
            assert ended.lines(rank) == [own, "torch"]

    def test_is_found_there_where_only_its_name_is_given(self, user: User) -> None:
        user.write("show.py", SHOW)
        ended = run_ssh(user, "--python", "python3", "show.py", hosts="gpu-n01")
        assert json.loads(ended.lines(0)[0])[2] == "/usr/bin/python3"


class TestALoginShell:
    """Whatever it is and prints, the job is the same."""

    @pytest.mark.parametrize(
        ("shell", "files"),
        [("/bin/bash", (".bashrc", ".profile")), ("/usr/bin/zsh", (".zshenv", ".zshrc"))],
    )
    def test_may_print_what_it_likes(
        self, user: User, ssh_hosts: SshHosts, shell: str, files: tuple[str, str]
    ) -> None:
        if not (user.cluster.root("gpu-n00") / shell.lstrip("/")).exists():
            pytest.skip(f"there is no {shell}")
        noise = "echo welcome; echo trouble >&2; printf 'no line end'; cd /\n"
        with login_shell(user, shell), home_files(user, dict.fromkeys(files, noise)):
            login = user.cluster.run(["ssh", "gpu-n00", "true"])
            assert "welcome" in login.stdout
            ended = run_ssh(user, "--command", "echo $VC_TASK_INDEX of $MA_NUM_HOSTS; pwd")
        for rank in range(3):
            assert ended.lines(rank) == [f"{rank} of 3", "/home/ma-user"]
        assert ended.err == ""
        assert until(lambda: not left(ssh_hosts))

    def test_need_not_know_more_than_words_and_quotes(self, user: User) -> None:
        """As csh and fish, to which half of sh's language means something else."""
        user.write(
            "simple shell",
            "#!/usr/bin/python3\n"
            "import os, re, sys\n"
            "option, command = sys.argv[1:]\n"
            "assert option == '-c' and not set('!\\\\\\n`$') & set(command), command\n"
            "words = re.findall(r\"'([^']*)'|([A-Za-z0-9_./,-]+)\", command)\n"
            "words = [quoted or bare for quoted, bare in words]\n"
            "assert words[0] == 'exec', command\n"
            "os.execvp(words[1], words[1:])\n",
            0o755,
        )
        with login_shell(user, f"{user.folder}/simple shell"):
            ended = run_ssh(user, "--command", "echo $VC_TASK_INDEX")
        assert [ended.lines(rank) for rank in range(3)] == [["0"], ["1"], ["2"]]


class TestAHomeDirectory:
    """The agent's code is kept there, once for all jobs, where that can be."""

    def test_may_be_missing(self, user: User, ssh_hosts: SshHosts) -> None:
        with ExitStack() as stack:
            for node in ssh_hosts.nodes:
                stack.enter_context(ssh_hosts.restarted(node, "SetEnv=HOME=/nonexistent"))
            ended = run_ssh(user, "--command", "echo $HOME")
        assert [ended.lines(rank) for rank in range(3)] == [["/nonexistent"]] * 3
        assert until(lambda: not left(ssh_hosts))

    def test_may_be_closed_to_writing(self, user: User, ssh_hosts: SshHosts) -> None:
        cache = user.cluster.outside(".cache/slurm-adapter")
        aside = cache.with_name("aside")
        if cache.exists():
            cache.rename(aside)
        user.cluster.write(".cache/slurm-adapter", "a file is in its way")
        try:
            ended = run_ssh(user, "look_up.py")
        finally:
            cache.unlink()
            if aside.exists():
                aside.rename(cache)
        assert (len(ended.out.splitlines()), ended.err) == (3, "")
        assert until(lambda: not left(ssh_hosts))


def test_the_job_is_gone_from_all_nodes_and_its_own_folder_stays(
    user: User, ssh_hosts: SshHosts
) -> None:
    """What outlives it is the user's: code, outputs, logs, the record, and the agent's code."""
    run_ssh(user, "--name", "t", "--command", "touch /home/ma-user/kept; (sleep 1000 &)")
    assert until(lambda: not left(ssh_hosts))
    assert user.outside("slurm-adapter/t/kept").exists()
    assert not user.outside("slurm-adapter/t/run").exists()
    cache = user.cluster.outside(".cache/slurm-adapter")
    assert {path.name.partition("-")[0] for path in cache.iterdir()} == {"agent", "head"}


@contextmanager
def login_shell(user: User, shell: str) -> Iterator[None]:
    """Have the user's account name another shell, on every machine."""
    text = (user.cluster.state / "etc/passwd").read_text()
    assert text.count(":/home/ada:/bin/bash\n") == 1
    with user.cluster.etc_file(
        "passwd", text.replace(":/home/ada:/bin/bash\n", f":/home/ada:{shell}\n")
    ):
        yield


@contextmanager
def home_files(user: User, files: Mapping[str, str]) -> Iterator[None]:
    """Have files in the user's home directory for a while."""
    for name, text in files.items():
        assert not user.cluster.outside(name).exists()
        user.cluster.write(name, text)
    try:
        yield
    finally:
        for name in files:
            user.cluster.outside(name).unlink()

"""Workers' names resolve whatever answers for names on the machine, and nothing else is asked.

Name servers, the order of nsswitch.conf and a name service cache are real ones of the test cluster.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

import pytest

from conftest import ADAPTER, PROJECT, User
from steps import SCRIPTS, run_step
from testbed import SlurmCluster, unavailable
from testbed.waiting import LONG_S

ADDRESSES = ("10.77.0.10", "10.77.0.11", "10.77.0.12")
FOUND = [f"{address} worker.mapped" for address in ADDRESSES]
NSCD = "/usr/sbin/nscd"
CACHE = """\
debug-level 1
enable-cache hosts yes
enable-cache passwd no
enable-cache group no
enable-cache services no
enable-cache netgroup no
persistent hosts no
shared hosts no
"""
SWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: {}\n"


@pytest.fixture
def questions(user: User) -> Iterator[Callable[[], list[str]]]:
    """Ask a name server on the head, which knows the nodes alone; give what it was asked."""
    slurm = user.cluster
    user.write("name_server.py", (SCRIPTS / "name_server.py").read_text())
    nodes = [f"{node}={slurm.addresses[node]}" for node in slurm.nodes]
    head = slurm.addresses["head"]
    with slurm.popen(
        ["python3", "name_server.py", head, "questions", *nodes],
        user="root",
        cwd=str(user.folder),
    ) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == "ready\n"
            with slurm.etc_file("resolv.conf", f"nameserver {head}\n"):
                yield lambda: user.outside("questions").read_text().splitlines()
        finally:
            server.kill()


class TestANameServer:
    def test_is_asked_nothing_about_workers(
        self, user: User, questions: Callable[[], list[str]]
    ) -> None:
        """Where it does not answer, each question would cost 10 s."""
        said = "\n".join(("ready", *FOUND, ""))
        assert run_step(user, "--boot", "late_look_up.py").out == [said] * 3
        assert questions() == []
        user.cluster.run(["getent", "ahostsv4", "nobody-else"], node="gpu-n01")
        assert questions() == ["nobody-else"]

    @pytest.mark.parametrize("view", ["full", "hosts"])
    def test_is_asked_nothing_by_an_all_reduce(
        self, user: User, questions: Callable[[], list[str]], view: str
    ) -> None:
        """PyTorch's store looks each rank that connects up in reverse."""
        options = ("--view", view, "--boot", "node_level.py", "--", "--expect", "6")
        assert run_step(user, *options).out == [f"sum 6.0 on node {i} of 3\n" for i in range(3)]
        assert questions() == []

    @pytest.mark.usefixtures("questions")
    def test_may_be_all_that_knows_the_nodes(self, user: User) -> None:
        """Their own names, too, then stand in the hosts file of the view."""
        own = "for node in gpu-n00 gpu-n01 gpu-n02; do getent -s hosts:files hosts $node; done"
        with user.cluster.etc_file("hosts", "127.0.0.1 localhost\n"):
            for found in run_step(user, "--", "sh", "-ec", own).out:
                assert [line.split()[0] for line in found.splitlines()] == list(ADDRESSES)
                assert [line.split()[3] for line in found.splitlines()] == list(user.cluster.nodes)

    def test_may_stand_before_the_hosts_file_and_end_the_search(
        self, user: User, questions: Callable[[], list[str]]
    ) -> None:
        """As systemd-resolved does it: `hosts: resolve [!UNAVAIL=return] files dns`."""
        with user.cluster.etc_file("nsswitch.conf", SWITCH.format("dns [!UNAVAIL=return] files")):
            head = user.cluster.run(["getent", "ahostsv4", "head"], node="gpu-n01")
            assert (head.returncode, head.stdout) == (2, "")
            seen = run_step(user, "--boot", "look_up.py").json
        for one in seen:
            found = [one["found"][name]["gethostbyname"] for name in one["names"]]
            assert found == list(ADDRESSES)
        assert "head" in questions()


@contextmanager
def late_rank(user: User, *options: str) -> Iterator[Callable[[], list[str]]]:
    """Start a rank; give what has it look its worker up, and returns what it found."""
    user.write("late_look_up.py", (SCRIPTS / "late_look_up.py").read_text())
    with user.cluster.popen(
        ["srun", "-N1", str(ADAPTER), "exec", *options, "--boot", "late_look_up.py"],
        cwd=str(user.folder),
        env=user.environment,
    ) as rank:

        def look_up() -> list[str]:
            return rank.communicate(timeout=LONG_S)[0].splitlines()

        try:
            assert rank.stdout
            assert rank.stdout.readline() == "ready\n"
            yield look_up
        finally:
            rank.kill()


@contextmanager
def name_service_cache(user: User) -> Iterator[Callable[[str], bool]]:
    """Run nscd for the nodes; give what says whether it was asked for a name."""
    user.write("nscd.conf", CACHE)
    log = user.outside("nscd.log")
    with log.open("w") as file:
        daemon = user.cluster.popen(
            [NSCD, "--debug", "--config-file", f"{user.folder}/nscd.conf"],
            node="gpu-n00",
            user="root",
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    with daemon:
        answers = f"until {NSCD} --statistics >/dev/null 2>&1; do :; done"
        user.cluster.run(["sh", "-c", answers], node="gpu-n00", user="root", cwd="/")
        try:
            yield lambda name: f"({name})" in log.read_text()
        finally:
            daemon.terminate()


@pytest.mark.skipif(not Path(NSCD).exists(), reason="nscd is not installed")
class TestANameServiceCache:
    @pytest.fixture(autouse=True)
    def folder(self, slurm: SlurmCluster) -> Iterator[None]:
        """Make the folder of its socket, as its package does; it is there while no nscd runs."""
        folder = slurm.state / "run/nscd"
        folder.mkdir()
        yield
        shutil.rmtree(folder)

    def test_is_asked_outside_the_view_alone(self, user: User) -> None:
        with name_service_cache(user) as was_asked:
            user.cluster.run(["getent", "hosts", "nobody-else"], node="gpu-n00")
            assert was_asked("nobody-else")
            (seen,) = run_step(user, "--boot", "look_up.py", nodes=1).json
            (name,) = seen["names"]
            assert seen["found"][name]["gethostbyname"] == "10.77.0.10"
            assert not was_asked(name)

    def test_that_starts_later_is_not_asked(self, user: User) -> None:
        with late_rank(user) as look_up, name_service_cache(user):
            assert look_up() == FOUND[:1]

    def test_that_is_restarted_is_not_asked(self, user: User) -> None:
        with ExitStack() as ranks:
            with name_service_cache(user):
                look_up = ranks.enter_context(late_rank(user))
            with name_service_cache(user):
                assert look_up() == FOUND[:1]


class TestAHostsFileThatTheMachineReplaces:
    """As package managers and configuration tools do: a new file takes the old one's name."""

    @pytest.fixture
    def own(self) -> Iterator[User]:
        """Give a user on a cluster for this test alone: its hosts file cannot be put back."""
        reason = unavailable()
        if reason:
            pytest.skip(reason)
        with SlurmCluster.start(PROJECT) as slurm:
            yield User(slurm, PurePosixPath("/home/ada"))

    @pytest.mark.parametrize("view", ["full", "hosts"])
    def test_leaves_a_running_ranks_names_alone(self, own: User, view: str) -> None:
        file = own.cluster.state / "etc/hosts"
        with late_rank(own, "--view", view) as look_up:
            new = file.with_name("hosts.new")
            new.write_text(file.read_text())
            new.replace(file)
            assert look_up() == FOUND[:1]

"""A node that allows no view gives its rank the next best, says what is missing, and runs it.

Nodes are real ones that forbid it: a user namespace with the limit 0, a filter as containers have.
"""

import pytest

from conftest import User
from steps import Ended, run_step

NO_NAMESPACES = ("./forbid_namespaces.sh",)
ADMINISTRATOR = "An administrator can allow it: sysctl -w user.max_user_namespaces=15000."
TELL = 'echo "$VC_WORKER_HOSTS"; echo "$MA_HOME"; echo "$WORKSPACE"; echo "$MA_LOG_DIR"; hostname'
NODES = ("gpu-n00", "gpu-n01", "gpu-n02")


@pytest.fixture
def no_wrapper(user: User) -> dict[str, str]:
    """Give variables with which nss_wrapper is as good as not installed.

    The dynamic loader finds these empty files first, and takes them for broken libraries.
    """
    for name in ("libnss_wrapper.so", "libnss_wrapper.so.0"):
        user.write(f"no libraries/{name}", "")
    return {"LD_LIBRARY_PATH": f"{user.folder}/no libraries"}


def all_reduce(user: User, *options: str, env: dict[str, str] | None = None) -> Ended:
    """Run ModelArts' usual script on three nodes that allow no namespaces."""
    boot = ("--boot", "node_level.py", "--", "--expect", "6")
    ended = run_step(user, *options, *boot, wrapper=NO_NAMESPACES, env=env)
    assert ended.out == [f"sum 6.0 on node {index} of 3\n" for index in range(3)]
    return ended


class TestANodeWithoutUserNamespaces:
    def test_gives_names_by_nss_wrapper(self, user: User) -> None:
        for seen in run_step(user, "--boot", "look_up.py", wrapper=NO_NAMESPACES).json:
            assert seen["names"] == [f"{seen['job']}-worker-{i}.{seen['job']}" for i in range(3)]
            for index, name in enumerate(seen["names"]):
                for found in (seen["found"][name], seen["found"][name.split(".")[0]]):
                    assert found["gethostbyname"] == f"10.77.0.{10 + index}"

    def test_runs_an_all_reduce_by_those_names(self, user: User) -> None:
        for index, said in enumerate(all_reduce(user).err):
            assert said.startswith(
                f"slurm-adapter: warning: no full view on {NODES[index]}:"
                " user.max_user_namespaces is 0. Missing there: the host name ma-job-"
            )
            assert said.endswith(
                f"-worker-{index}; /home/ma-user, /etc/volcano and /cache (the MA_ variables name"
                " the real directories); names for ping and for programs of Go (nss_wrapper gives"
                " them to others); numeric addresses as PyTorch's master (it would wait in vain:"
                f" give it the worker's name). {ADMINISTRATOR} Give --view hosts if that is"
                " enough.\n"
            )

    def test_tells_real_names_and_directories_without_nss_wrapper(
        self, user: User, no_wrapper: dict[str, str]
    ) -> None:
        ended = run_step(user, "--", "sh", "-c", TELL, wrapper=NO_NAMESPACES, env=no_wrapper)
        job = f"{user.folder}/slurm-adapter/job"
        for index, told in enumerate(ended.out):
            assert told.splitlines() == [
                "gpu-n00,gpu-n01,gpu-n02",
                job,
                str(user.folder),
                f"{job}/log",
                NODES[index],
            ]

    def test_runs_an_all_reduce_without_nss_wrapper(
        self, user: User, no_wrapper: dict[str, str]
    ) -> None:
        for index, said in enumerate(all_reduce(user, env=no_wrapper).err):
            assert f"no full view on {NODES[index]}: user.max_user_namespaces is 0" in said
            assert (
                "; workers' names as on ModelArts (VC_WORKER_HOSTS and --init_method hold the"
                f" nodes' own). {ADMINISTRATOR} Give --view off if that is enough.\n"
            ) in said

    def test_keeps_a_library_that_was_to_be_loaded_first(self, user: User) -> None:
        words, env = ("--", "printenv", "LD_PRELOAD"), {"LD_PRELOAD": "libc.so.6"}
        ended = run_step(user, *words, nodes=1, wrapper=NO_NAMESPACES, env=env)
        assert ended.out == ["libnss_wrapper.so:libc.so.6\n"]


class TestAViewAskedForByName:
    @pytest.mark.parametrize("view", ["full", "hosts"])
    def test_is_refused_where_it_cannot_be_given(
        self, user: User, no_wrapper: dict[str, str], view: str
    ) -> None:
        words = ("--view", view, "--", "touch", "started")
        ended = run_step(user, *words, nodes=1, wrapper=NO_NAMESPACES, env=no_wrapper, check=False)
        assert ended.status == 3
        assert ended.err[0] == (
            f"slurm-adapter: gpu-n00 cannot give --view {view}: user.max_user_namespaces is 0\n"
            f"  {ADMINISTRATOR} Without --view the job runs with less, and says what.\n"
        )
        assert not user.outside("started").exists()

    def test_is_refused_where_nss_wrapper_would_give_part_of_it(self, user: User) -> None:
        words = ("--view", "full", "--", "touch", "started")
        ended = run_step(user, *words, nodes=1, wrapper=NO_NAMESPACES, check=False)
        assert ended.status == 3
        assert not user.outside("started").exists()

    def test_may_be_names_alone(self, user: User) -> None:
        words = ("--view", "hosts", "--", "sh", "-c", f'getent hosts "$HOSTNAME"; {TELL}')
        for index, told in enumerate(run_step(user, *words).out):
            found, names, home, *_, host_name = told.splitlines()
            assert found.split()[0] == f"10.77.0.{10 + index}"
            assert found.split()[1] == names.split(",")[index]
            assert (home, host_name) == (f"{user.folder}/slurm-adapter/job", NODES[index])

    @pytest.mark.parametrize("wrapper", [(), NO_NAMESPACES], ids=["allowed", "forbidden"])
    def test_may_be_none_which_warns_of_nothing(self, user: User, wrapper: tuple[str, ...]) -> None:
        ended = run_step(user, "--view", "off", "--", "sh", "-c", TELL, nodes=1, wrapper=wrapper)
        assert ended.err == [""]
        assert ended.out[0].splitlines()[0] == ended.out[0].splitlines()[-1] == "gpu-n00"


class TestAContainer:
    @pytest.mark.parametrize("call", ["unshare", "setns"])
    def test_is_named_as_what_forbids_it(self, user: User, call: str) -> None:
        """Whatever it refuses: making namespaces, or joining those that were made."""
        wrapper = ("./forbid_call.py", call)
        ended = run_step(user, "--boot", "look_up.py", nodes=1, wrapper=wrapper)
        (seen,) = ended.json
        assert seen["found"][seen["names"][0]]["gethostbyname"] == "10.77.0.10"
        assert (
            f"no full view on gpu-n00: a seccomp filter forbids it, as containers have ({call}:"
            " Operation not permitted). Missing there: "
        ) in ended.err[0]
        assert "Allow unshare, mount and setns where the container is started." in ended.err[0]


def test_the_env_contract_does_without_nss_wrapper(user: User) -> None:
    """It needs no names, and PyTorch would never get to its numeric master."""
    words = ("--contract", "env", "--", "sh", "-c", 'echo "$LD_PRELOAD"')
    ended = run_step(user, *words, nodes=1, wrapper=NO_NAMESPACES)
    assert ended.out == ["\n"]
    assert (
        "no hosts view on gpu-n00: user.max_user_namespaces is 0. Missing there: a hosts"
        in (ended.err[0])
    )


def test_a_user_who_may_start_no_process_more_is_told_so(user: User) -> None:
    alone = ("bash", "-c", 'ulimit -u 1; exec "$@"', "bash")
    ended = run_step(user, "--", "printenv", "VC_WORKER_HOSTS", nodes=1, wrapper=alone)
    assert "no full view on gpu-n00: a process of its own: Resource temporarily" in ended.err[0]
    assert ended.out[0].startswith("ma-job-")  # by nss_wrapper, which needs none


class TestRoot:
    def test_needs_no_user_namespace(self, user: User) -> None:
        for index, seen in enumerate(run_step(user, "--boot", "process.py", account="root").json):
            assert seen["uid map"] == [0, 0, 2**32 - 1]
            assert seen["host name"].endswith(f"-worker-{index}")
            assert (
                f"10.77.0.10 {seen['host name'][: -len(str(index))]}0.ma-job-" in seen["hosts file"]
            )

    def test_may_hand_its_rank_to_another_user(self, user: User) -> None:
        """Whatever its umask: the machine's files stay as readable as they were."""
        strict = ("sh", "-c", 'umask 077; exec "$@"', "sh")
        words = ("setpriv", "--reuid=ada", "--regid=ada", "--clear-groups", "cat", "/etc/hosts")
        ended = run_step(user, "--", *words, nodes=1, account="root", wrapper=strict)
        assert "10.77.0.10 ma-job-" in ended.out[0]


class TestTheEnvContract:
    def test_gives_names_and_nothing_else_to_one_rank_on_a_node(self, user: User) -> None:
        ended = run_step(user, "--contract", "env", "--boot", "process.py")
        own = {line for line in ended.json[0]["hosts file"].splitlines() if "ma-job-" in line}
        for index, seen in enumerate(ended.json):
            assert seen["host name"] == NODES[index]
            assert seen["uid map"] == [5001, 5001, 1]
            assert own <= set(seen["hosts file"].splitlines())
        assert len([line for line in own if line.startswith("10.77.0.")]) == 3
        assert ended.err == ["", "", ""]

    def test_gives_none_to_several_ranks_on_a_node(self, user: User) -> None:
        """Between ranks in different user namespaces CUDA's direct ways are closed."""
        ended = run_step(user, "--contract", "env", "--boot", "process.py", nodes=2, tasks=2)
        for seen in ended.json:
            assert seen["uid map"] == [0, 0, 2**32 - 1]
            assert "ma-job-" not in seen["hosts file"]
        assert ended.err == [""] * 4

    @pytest.mark.parametrize("view", ["full", "hosts"])
    def test_warns_where_several_ranks_are_to_have_views(self, user: User, view: str) -> None:
        words = ("--contract", "env", "--view", view, "--boot", "process.py")
        ended = run_step(user, *words, nodes=2, tasks=2)
        for rank, seen in enumerate(ended.json):
            assert seen["uid map"] == [5001, 5001, 1]
            assert seen["host name"] == NODES[rank // 2] or view == "full"
        assert ended.err[0].startswith(
            f"slurm-adapter: warning: --view {view} gives each of the 2 ranks of a node namespaces"
            " of its own: CUDA's and NCCL's direct ways between their GPUs may be lost."
        )
        assert ended.err[1:] == [""] * 3


def test_the_modelarts_contract_still_refuses_two_tasks_on_a_node(user: User) -> None:
    ended = run_step(user, "--", "touch", "started", nodes=1, tasks=2, check=False)
    assert ended.status == 2
    assert "gpu-n00 has 2 tasks in step" in ended.err[0]
    assert not user.outside("started").exists()

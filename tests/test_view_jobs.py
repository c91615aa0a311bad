"""What ModelArts' scripts count on is there for an ordinary user's ranks on three Slurm nodes.

Names, host name and directories are those of a ModelArts container, without one.
"""

import re
from collections.abc import Iterator

import pytest

from conftest import User
from steps import SCRIPTS, run_step
from testbed import SlurmCluster

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
ADDRESSES = ("10.77.0.10", "10.77.0.11", "10.77.0.12")
SUMS = [f"sum 6.0 on {rank} of 3\n" for rank in range(3)]
ENDED = "slurm-adapter: worker-{} ended, return code 0\n"


class TestNames:
    def test_resolve_to_the_nodes_one_address_each(self, user: User) -> None:
        for seen in run_step(user, "--boot", "look_up.py").json:
            job = seen["job"]
            assert re.fullmatch(f"ma-job-{UUID}", job)
            assert seen["names"] == [f"{job}-worker-{index}.{job}" for index in range(3)]
            answers = {
                address: {
                    "gethostbyname": address,
                    "getaddrinfo": [["AF_INET", address]],
                    "getent": address,
                }
                for address in ADDRESSES
            }
            assert seen["found"] == {
                name: answers[address]
                for index, address in enumerate(ADDRESSES)
                for name in (f"{job}-worker-{index}", f"{job}-worker-{index}.{job}")
            }
            assert seen["mapped"] == [f"{job}-worker-{index}.mapped" for index in range(3)]

    def test_answer_ping(self, user: User, open_to_ping: None) -> None:
        del open_to_ping
        ping = 'for name in $(echo "$VC_WORKER_HOSTS" | tr , " "); do ping -qc1 "$name"; done'
        for said in run_step(user, "--", "sh", "-ec", ping).out:
            sent = re.findall(r"^PING \S+ \((\S+)\)", said, re.MULTILINE)
            assert sent == list(ADDRESSES)
            assert said.count("1 packets transmitted, 1 received") == 3

    @pytest.fixture
    def open_to_ping(self, slurm: SlurmCluster) -> Iterator[None]:
        """Let everybody ping on the nodes, as systemd sets it; a kernel alone lets nobody.

        `ping` is then no longer in need of CAP_NET_RAW, which no user namespace can give it.
        """
        switch = "/proc/sys/net/ipv4/ping_group_range"
        change = ["sh", "-ec", f'cat {switch}; echo "$1" >{switch}', "sh"]
        before = {
            node: slurm.run([*change, "0 2147483647"], node=node, user="root").stdout
            for node in slurm.nodes
        }
        yield
        for node, text in before.items():
            assert slurm.run([*change, text], node=node, user="root").returncode == 0

    def test_stand_in_volcanos_files_and_variables(self, user: User) -> None:
        for seen in run_step(user, "--boot", "folders.py").json:
            names = [f"{seen['job']}-worker-{index}.{seen['job']}" for index in range(3)]
            assert seen["volcano"] == {
                "worker.host": "".join(f"{name}\n" for name in names),
                "VC_WORKER_HOSTS": ",".join(names),
                "VC_WORKER_NUM": "3",
            }


class TestARankThatGoesByNames:
    def test_finds_its_place_and_its_master(self, user: User) -> None:
        assert run_step(user, "--boot", "rank_by_name.py").out == SUMS

    def test_does_so_in_a_job_of_slurm_adapter_sbatch(self, user: User) -> None:
        user.write("rank_by_name.py", (SCRIPTS / "rank_by_name.py").read_text())
        job_id = user.run("slurm-adapter", "sbatch", "-N", "3", "--parsable", "rank_by_name.py")
        assert user.finish(job_id).state == "COMPLETED"
        outputs = user.outputs("rank_by_name")
        assert outputs == [SUMS[index] + ENDED.format(index) for index in range(3)]


class TestDirectories:
    def test_are_modelarts_own_by_every_variable(self, user: User) -> None:
        code = f"/home/ma-user/modelarts/user-job-dir/{user.folder.name}"
        for seen in run_step(user, "--boot", "folders.py").json:
            assert seen["script"] == f"{code}/folders.py"
            assert seen["directory"] == code
            assert seen["told"] == {
                "MA_HOME": "/home/ma-user",
                "MA_MOUNT_PATH": "/home/ma-user/modelarts",
                "MA_JOB_DIR": "/home/ma-user/modelarts/user-job-dir",
                "WORKSPACE": code,
                "MA_LOG_DIR": "/home/ma-user/modelarts/log",
            }

    def test_hold_the_code_under_the_manuals_two_paths(self, user: User) -> None:
        assert [seen["same code"] for seen in run_step(user, "--boot", "folders.py").json] == [
            *(True, True, True)
        ]

    def test_keep_what_is_written_in_the_jobs_folder_and_the_code(self, user: User) -> None:
        run_step(user, "--name", "t", "--boot", "folders.py")
        for index in range(3):
            assert user.outside(f"WORKSPACE-{index}").is_file()
            assert user.outside(f"slurm-adapter/t/MA_HOME-{index}").is_file()
            assert user.outside(f"slurm-adapter/t/modelarts/MA_MOUNT_PATH-{index}").is_file()
            assert user.outside(f"slurm-adapter/t/log/MA_LOG_DIR-{index}").is_file()

    def test_have_a_cache_for_each_node_in_the_jobs_folder(self, user: User) -> None:
        run_step(user, "--name", "t", "--boot", "folders.py")
        (run,) = user.outside("slurm-adapter/t/run").iterdir()
        for index in range(3):
            assert (run / f"worker-{index}/cache/mine").read_text() == str(index)

    def test_have_a_cache_that_ends_with_the_run(self, user: User) -> None:
        """As on ModelArts: an array's tasks and the next run find it empty."""
        user.write("fill.py", "import os\nprint(os.listdir('/cache'))\nopen('/cache/x', 'w')\n")
        job = ["--parsable", "--sbatch", "array=1-2", "--name", "t", "fill.py"]
        job_id = user.run("slurm-adapter", "sbatch", *job)
        for task in (1, 2):
            assert user.finish(f"{job_id.strip()}_{task}").state == "COMPLETED"
        logs = user.outside("slurm-adapter/t/log").glob("*-worker-0.log")
        ended = "[]\nslurm-adapter: worker-0 ended, return code 0\n"
        assert [path.read_text() for path in logs] == [ended, ended]
        assert not user.outside("slurm-adapter/t/run").exists()

    def test_are_told_by_env_without_being_made(self, user: User) -> None:
        told = user.run("srun", "-N1", "slurm-adapter", "env")
        assert "  /home/ma-user  " in told
        assert f"the code directory: shows {user.folder}\n" in told
        assert not user.outside("slurm-adapter").exists()

    def test_are_the_real_ones_for_a_shell_that_stays_outside(self, user: User) -> None:
        evaluate = 'eval "$(slurm-adapter env --format shell)"'
        shell = f'{evaluate}; cd "$WORKSPACE"; pwd; echo "$VC_WORKER_HOSTS"'
        assert user.run("srun", "-N1", "-w", "gpu-n01", "bash", "-c", shell).splitlines() == [
            str(user.folder),
            "gpu-n01",
        ]

    def test_have_a_cache_where_the_user_wants_it(self, user: User) -> None:
        user.write("fast disk/.made", "")
        run_step(user, "--cache", "fast disk", "--boot", "folders.py", nodes=1)
        assert user.outside("fast disk/mine").read_text() == "0"
        assert not user.outside("slurm-adapter/folders/run").exists()

"""What ModelArts does before a boot file starts, on hosts that are reached over SSH."""

import pytest

from conftest import User
from test_boot_steps import TINY, write_wheel
from testbed import SshHosts
from testbed.waiting import LONG_S

HOSTS = ("-H", "gpu-n[00-02]")
USE = "import os, tiny\nprint('rank', os.environ['RANK'], tiny.__file__)\n"


@pytest.fixture(autouse=True)
def _hosts(ssh_hosts: SshHosts) -> None:
    """All tests here are of them."""


def test_packages_are_installed_once_for_all_ranks_of_a_node(user: User) -> None:
    write_wheel(user.outside(TINY))
    user.write("pip-requirements.txt", f"./{TINY}\n")
    user.write("use.py", USE)
    said = user.run(
        *("slurm-adapter", "ssh", "-H", "gpu-n00:2,gpu-n01:2", "--contract", "env"),
        *("--install-requirements", "use.py"),
    )
    assert said.count("Successfully installed tiny-1.0") == 2
    for rank in range(4):
        assert f"rank {rank} {user.folder}/slurm-adapter/use/run/ma-job-" in said
    assert not user.outside("slurm-adapter/use/run").exists()


def test_packages_that_cannot_be_had_end_the_job(user: User) -> None:
    user.write("pip-requirements.txt", "./is-not-there.whl\n")
    user.write("use.py", "print('started')\n")
    words = ("slurm-adapter", "ssh", *HOSTS, "--install-requirements", "use.py")
    with user.start(*words) as child:
        out, err = child.communicate(timeout=LONG_S)
    assert child.returncode == 3
    assert "started" not in out
    assert "pip-requirements.txt could not be installed: pip ended with status 1" in err


def test_the_script_beside_the_boot_file_is_read(user: User) -> None:
    user.write("ma-pre-start.sh", "export GREETING='it is set'\n")
    user.write("show.py", "import os\nprint(os.environ['GREETING'])\n")
    lines = user.run("slurm-adapter", "ssh", *HOSTS, "show.py").splitlines()
    assert sorted(lines) == [f"[gpu-n0{i}/{i}] it is set" for i in range(3)]

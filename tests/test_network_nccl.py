"""The version of NCCL that a job will load: found beside its interpreter, which is not run."""

import sys
from pathlib import Path

import pytest

from slurm_adapter.job.job import Command, Job
from slurm_adapter.network.gids import NcclVersion
from slurm_adapter.node.facts.nccl import find_nccl

PACKAGES = "lib/python3.11/site-packages"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(Command("true"), code=str(tmp_path), folder=f"{tmp_path}/jobs")


def environment(root: Path, *packages: str, version: str = "3.11") -> Path:
    """Make a folder as a virtual environment is one; return its interpreter."""
    (root / "bin").mkdir(parents=True)
    (root / f"bin/python{version}").write_text("#!/bin/sh\necho it was run >&2; exit 1\n")
    (root / f"bin/python{version}").chmod(0o755)
    (root / "bin/python").symlink_to(f"python{version}")
    for package in packages:
        (root / package).mkdir(parents=True)
    return root / "bin/python"


def test_is_that_of_the_interpreters_package(tmp_path: Path, job: Job) -> None:
    package = f"{PACKAGES}/nvidia_nccl_cu12-2.21.5.dist-info"
    python = environment(tmp_path / "venv", package)
    expected = NcclVersion((2, 21, 5), f"{tmp_path}/venv/{package}")
    assert find_nccl(job, str(python), {}) == expected
    assert find_nccl(job, "python", {"PATH": f"/none:{python.parent}"}) == expected


def test_a_virtual_environment_stands_on_another(tmp_path: Path, job: Job) -> None:
    package = f"{PACKAGES}/nvidia_nccl_cu13-2.27.3.dist-info"
    below = environment(tmp_path / "base", package)
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(below)
    found = find_nccl(job, f"{tmp_path}/venv/bin/python", {})
    assert found == NcclVersion((2, 27, 3), f"{tmp_path}/base/{package}")


def test_another_pythons_package_is_not_meant(tmp_path: Path, job: Job) -> None:
    other = "lib/python3.9/site-packages/nvidia_nccl_cu11-2.10.3.dist-info"
    python = environment(tmp_path / "venv", other, f"{PACKAGES}/torch-2.4.0.dist-info")
    assert find_nccl(job, str(python), {}).number != (2, 10, 3)


def test_what_the_loader_finds_first_comes_first(tmp_path: Path, job: Job) -> None:
    python = environment(tmp_path / "venv", f"{PACKAGES}/nvidia_nccl_cu12-2.21.5.dist-info")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/libnccl.so.2.18.1").write_text("")
    found = find_nccl(job, str(python), {"LD_LIBRARY_PATH": f":{tmp_path}/own"})
    assert found == NcclVersion((2, 18, 1), f"{tmp_path}/own/libnccl.so.2.18.1")
    assert not found.finds_gid


def test_none_is_said_to_be_none(tmp_path: Path, job: Job) -> None:
    python = environment(tmp_path / "venv")
    found = find_nccl(job, str(python), {})
    if found.number is None:  # else this machine has one of its own
        assert found.shown == f"NCCL of unknown version (none found for {python})"
    assert find_nccl(job, str(tmp_path / "nowhere"), {}).where.endswith(("nowhere", "so.2"))


def test_this_interpreters_own(job: Job) -> None:
    metadata = pytest.importorskip("importlib.metadata")
    try:
        version = metadata.version("nvidia-nccl-cu12")
    except metadata.PackageNotFoundError:
        pytest.skip("the NCCL library is not installed: pip install nvidia-nccl-cu12")
    found = find_nccl(job, sys.executable, {})
    assert found.number == tuple(map(int, version.split(".")))

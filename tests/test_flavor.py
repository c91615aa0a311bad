"""What a ModelArts console shows for a flavor becomes what one node must have."""

# ruff: noqa: RUF001 - full-width signs are what is read here

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commandline import WITHOUT_SLURM, adapter
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.flavor import Flavor, read_flavor

CONSOLE = "GPU: 8*NVIDIA-V100 | CPU: 72核 | 内存：512GB"
ENGLISH = "GPU: 8 × GP-Vnt1 | CPU: 72 cores | Memory: 512 GB"
TERSE = "GPU:8*NVIDIA-V100(32GB)|CPU:72核 512GB 3200 GB"
ASCEND = "Ascend: 8*Ascend 910(32GB) | ARM: 192核 768GB 3200GB"


@pytest.mark.parametrize(
    ("text", "flavor"),
    [
        pytest.param(CONSOLE, Flavor("gpu", 8, "NVIDIA-V100", 72, 488_281), id="chinese console"),
        pytest.param(ENGLISH, Flavor("gpu", 8, "GP-Vnt1", 72, 488_281), id="english pages"),
        pytest.param(
            TERSE, Flavor("gpu", 8, "NVIDIA-V100", 72, 488_281, 30_517, 3_051_757), id="front end"
        ),
        pytest.param(
            ASCEND, Flavor("npu", 8, "Ascend 910", 192, 732_421, 30_517, 3_051_757), id="ascend"
        ),
        pytest.param(
            "NPU：1*Ascend 910B4（64GB）｜ARM：24 vCPUs｜内存：192GB｜硬盘：3.2TB",
            Flavor("npu", 1, "Ascend 910B4", 24, 183_105, 61_035, 3_051_757),
            id="all signs full width",
        ),
        pytest.param(
            "gpu : 4 x T4|cpu : 1 core|ram : 16 gb|disk : 50 gb",
            Flavor("gpu", 4, "T4", 1, 15_258, None, 47_683),
            id="small letters",
        ),
        pytest.param("CPU: 8 vCPUs | Memory: 32 GB", Flavor("", 0, "", 8, 30_517), id="no cards"),
        pytest.param("CPU：2核 8GB", Flavor("", 0, "", 2, 7_629), id="cores and memory"),
        pytest.param("GPU: 1*V100", Flavor("gpu", 1, "V100", None, None), id="cards alone"),
        pytest.param("CPU: 2核 | 内存：8GiB", Flavor("", 0, "", 2, 8_192), id="binary unit"),
    ],
)
def test_a_text_is_read(text: str, flavor: Flavor) -> None:
    assert read_flavor(text) == flavor


def test_memory_is_counted_in_decimal_gigabytes() -> None:
    assert read_flavor(CONSOLE).memory_mib == 512 * 10**9 // 2**20 == 488_281


@given(
    cards=st.integers(0, 64),
    cpus=st.integers(1, 512),
    gigabytes=st.integers(1, 4096),
    kind=st.sampled_from(["GPU", "gpu", "NPU", "Ascend"]),
    cores=st.sampled_from(["核", "cores", "core", "vCPUs", "vcpu", ""]),
    memory=st.sampled_from(["内存", "Memory", "MEM", "RAM"]),
    colon=st.sampled_from(":："),
    times=st.sampled_from("*×xX＊"),
    bar=st.sampled_from("|｜"),
    blank=st.sampled_from(["", " "]),
    around=st.sampled_from(["", " ", "  "]),
)
def test_numbers_are_read_back_however_they_are_written(
    *,
    cards: int,
    cpus: int,
    gigabytes: int,
    kind: str,
    cores: str,
    memory: str,
    colon: str,
    times: str,
    bar: str,
    blank: str,
    around: str,
) -> None:
    parts = [
        f"{kind}{colon}{blank}{cards}{blank}{times}{blank}V100",
        f"{'ARM' if kind == 'NPU' else 'CPU'}{colon}{blank}{cpus}{blank}{cores}",
        f"{memory}{colon}{blank}{gigabytes}{blank}GB",
    ]
    flavor = read_flavor(f"{around}{bar}{around}".join(parts))
    assert flavor.accelerator == ("gpu" if kind.upper() == "GPU" else "npu")
    assert (flavor.cards, flavor.model, flavor.cpus) == (cards, "V100", cpus)
    assert flavor.memory_mib == gigabytes * 10**9 // 2**20


@pytest.mark.parametrize(
    ("name", "cards", "cpus", "gigabytes", "most_nodes"),
    [
        ("modelarts.vm.cpu.2u", 0, 2, 8, 1),
        ("modelarts.vm.cpu.8u", 0, 8, 32, 16),
        ("modelarts.p3.large.public", 1, 8, 64, None),
        ("modelarts.p3.large.public.free", 1, 8, 64, None),
        ("modelarts.p3.large", 1, 8, 64, None),
        ("modelarts.p3.8xlarge.public", 8, 72, 512, None),
        ("modelarts.p3.8xlarge", 8, 72, 512, None),
        ("Modelarts.P3.8xlarge.Public", 8, 72, 512, None),
        ("modelarts.kat1.xlarge", 1, 24, 96, None),
        ("modelarts.kat1.8xlarge", 8, 192, 768, None),
        ("modelarts.kat1.8xlarge.public", 8, 192, 768, None),
    ],
)
def test_an_id_is_known(
    name: str, cards: int, cpus: int, gigabytes: int, most_nodes: int | None
) -> None:
    flavor = read_flavor(name)
    assert (flavor.cards, flavor.cpus, flavor.most_nodes) == (cards, cpus, most_nodes)
    assert flavor.memory_mib == gigabytes * 10**9 // 2**20


@pytest.mark.parametrize(
    ("name", "accelerator", "cards"),
    [
        ("modelarts.kat1.2xlarge", "npu", 2),
        ("modelarts.kat1.4xlarge", "npu", 4),
        ("modelarts.pool.visual.xlarge", "gpu", 1),
        ("modelarts.pool.visual.2xlarge", "gpu", 2),
        ("modelarts.pool.visual.4xlarge", "gpu", 4),
        ("modelarts.pool.visual.8xlarge", "gpu", 8),
        ("modelarts.pool.visual.16xlarge", "gpu", 16),
    ],
)
def test_an_id_whose_cores_were_never_published_gives_its_cards(
    name: str, accelerator: str, cards: int
) -> None:
    flavor = read_flavor(name)
    assert (flavor.accelerator, flavor.cards) == (accelerator, cards)
    assert (flavor.cpus, flavor.memory_mib) == (None, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not understood"),
        ("|", "'' is not understood"),
        ("8*V100", "'8*V100' is not understood"),
        ("GPU: 8", "'GPU: 8' is not understood"),
        ("GPU: 8*", "'GPU: 8*' is not understood"),
        ("GPU: eight*V100", "'GPU: eight*V100' is not understood"),
        ("GPU: ٨*V100", "'GPU: ٨*V100' is not understood"),
        ("GPU: 8*V100 | CPU: -2核", "'CPU: -2核' is not understood"),
        ("GPU: 8*V100 | 内存：512", "'内存:512' is not understood"),
        ("GPU: 8*V100 | colour: red", "'colour: red' is not understood"),
        ("GPU: 8*V100, CPU: 72核", "is not understood"),
        ("内存：512GB", "it names neither cards nor cores"),
        ("GPU: 8*V100 | GPU: 1*T4", "cards stands in it twice"),
        ("CPU: 2核 8GB | 内存：8GB", "memory stands in it twice"),
    ],
    ids=ascii,
)
def test_a_text_is_refused_rather_than_guessed(text: str, why: str) -> None:
    with pytest.raises(BadValueError) as caught:
        read_flavor(text)
    assert caught.value.found.startswith(f"the flavor {text!r} cannot be read: ")
    assert why in caught.value.found
    assert CONSOLE in caught.value.remedy
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("modelarts.p3.8xlagre.public", "Did you mean modelarts.p3.8xlarge.public?"),
        ("modelarts.kat1.8xlarg", "Did you mean modelarts.kat1.8xlarge?"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest_one(name: str, remedy: str) -> None:
    with pytest.raises(BadValueError, match=f"there is no known flavor {name}") as caught:
        read_flavor(name)
    assert caught.value.remedy.startswith(remedy)


@pytest.mark.parametrize(
    "name",
    [
        "modelarts.vm.gpu.v100",
        "modelarts.vm.gpu.p100",
        "modelarts.vm.gpu.p4",
        "modelarts.vm.gpu.t4",
        "modelarts.bm.gpu.v100NV32",
        "modelarts.vm.pnt1.large.eco",
    ],
)
def test_an_id_whose_size_was_never_published_is_refused(name: str) -> None:
    with pytest.raises(BadValueError, match=f"{name} was never published") as caught:
        read_flavor(name)
    assert "--gpus-per-node" in caught.value.remedy


class TestOnTheCommandLine:
    """A flavor sizes the job: as a plan here, as directives for Slurm."""

    def directives(self, folder: Path, *options: str) -> dict[str, str | None]:
        (folder / "train.py").touch()
        done = adapter("sbatch", *options, "--script", "-", "train.py", cwd=folder)
        assert done.status == 0, done.err
        return done.directives

    def test_a_gpu_flavor_asks_slurm_for_a_node_like_it(self, tmp_path: Path) -> None:
        asked = self.directives(tmp_path, "--flavor", CONSOLE)
        assert asked["gpus-per-node"] == "8"
        assert asked["cpus-per-task"] == "72"
        assert asked["mem"] == "488281M"
        assert "gres" not in asked

    def test_an_ascend_flavor_asks_for_npus(self, tmp_path: Path) -> None:
        asked = self.directives(tmp_path, "--flavor", ASCEND)
        assert asked["gres"] == "npu:8"
        assert asked["cpus-per-task"] == "192"
        assert "gpus-per-node" not in asked

    def test_a_cpu_flavor_asks_for_no_cards(self, tmp_path: Path) -> None:
        asked = self.directives(tmp_path, "--flavor", "modelarts.vm.cpu.8u", "--nodes", "16")
        assert asked["cpus-per-task"] == "8"
        assert not {"gres", "gpus-per-node"} & asked.keys()

    def test_cores_are_shared_out_to_the_ranks_of_a_node(self, tmp_path: Path) -> None:
        asked = self.directives(tmp_path, "--flavor", CONSOLE, "--contract", "env")
        assert (asked["ntasks-per-node"], asked["cpus-per-task"]) == ("8", "9")
        assert asked["mem"] == "488281M"

    def test_a_given_number_of_gpus_wins(self, tmp_path: Path) -> None:
        asked = self.directives(tmp_path, "--flavor", CONSOLE, "--gpus-per-node", "2")
        assert (asked["gpus-per-node"], asked["cpus-per-task"]) == ("2", "72")

    def test_pretended_nodes_have_its_gpus(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        options = ["--nodes", "2", "--flavor", CONSOLE, "--dry-run", "--format", "json"]
        env = {"PATH": WITHOUT_SLURM}
        plan = adapter("local", *options, "train.py", cwd=tmp_path, env=env).json["plan"]
        assert [node["gpus"] for node in plan["nodes"]] == [8, 8]

    def test_more_nodes_than_it_allows_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").touch()
        options = ["--flavor", "modelarts.vm.cpu.2u", "--nodes", "2", "--script", "-"]
        done = adapter("sbatch", *options, "train.py", cwd=tmp_path)
        assert (done.status, done.out) == (2, "")
        assert "the flavor modelarts.vm.cpu.2u is for at most 1 node, not 2" in done.err
        assert "--nodes 1" in done.err

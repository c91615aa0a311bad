"""Ranks in an image: the script, what is refused, and a job on the test cluster.

Neither Apptainer nor Pyxis can be installed where the tests run. A stand-in with Apptainer's words
and bubblewrap's containers runs the jobs; what Pyxis is told is held as text alone.
"""

import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from commandline import adapter
from conftest import User
from slurm_adapter import AdapterError, Boot, Job
from slurm_adapter.job.job import Channel, Container
from slurm_adapter.launch.script.sbatch import make_script
from slurm_adapter.launch.script.zipapp import write_zipapp, zipapp_name
from slurm_adapter.record import replace
from slurm_adapter.remote.submit_host import LocalHost

STAND_IN = Path(__file__).parent / "scripts" / "apptainer.py"
JOB = Job(
    program=Boot("/home/ada/code/train.py"),
    code="/home/ada/code",
    folder="/home/ada/code/slurm-adapter/train",
    name="train",
    container=Container("/images/torch.sif", "apptainer"),
)
SHOW = """\
import os, socket, sys
print("in", open("/opt/image").read().strip(), "by", sys.executable, sys.argv[1:])
for name in ("LR", "TOKEN", "MASTER_PORT", "IMAGES_OWN", "MA_NUM_HOSTS"):
    print(name, os.environ.get(name))
print("left", [name for name in os.environ if name.startswith("SLURM_ADAPTER_ENV_")])
own = os.environ["MA_CURRENT_INSTANCE_NAME"]
print("host", socket.gethostname() == own, socket.gethostbyname(own), os.getcwd())
out = "/home/ma-user/modelarts/outputs/train_url_0"
open(f"{out}/{os.environ['VC_TASK_INDEX']}", "w").write("made inside")
sys.exit(int(os.environ.get("FAIL_ON") == os.environ["VC_TASK_INDEX"]) * 7)
"""


def words(job: Job) -> list[str]:
    """Return the words of a script's srun, up to the node side's options."""
    text = make_script(job, ["/opt/slurm-adapter"], "/").text
    _, _, rest = text.partition("\nsrun ")
    return shlex.split(rest.partition(" exec --log")[0].replace("\\\n", " "))


class TestTheScript:
    def test_apptainer_mounts_what_the_job_names_and_each_place_once(self) -> None:
        job = replace(
            JOB,
            inputs=(Channel("data_url", "/datasets/x y"),),
            outputs=(Channel("train_url", "/home/ada/code/out"),),
            container=Container("docker://a/b:1", "apptainer", ("/scratch:/s:ro",), ("--ipc",)),
        )
        assert words(job)[3:-4] == [
            *("apptainer", "exec", "--nv", "--ipc"),
            "--bind=/home/ada/code:/home/ada/code",
            "--bind=/datasets/x y:/datasets/x y",
            "--bind=/scratch:/s:ro",
            "--pwd=/home/ada/code",
            "docker://a/b:1",
        ]

    def test_pyxis_gets_all_mounts_in_one_word(self) -> None:
        """A plug-in's option that is given twice arrives once."""
        container = Container("nvcr.io#nvidia/pytorch:24.05", "pyxis", ("/scratch",), ("--x=y",))
        job = replace(JOB, folder="/jobs/train", container=container)
        assert words(job)[3:-4] == [
            "--container-image=nvcr.io#nvidia/pytorch:24.05",
            "--container-mounts=/home/ada/code:/home/ada/code,/jobs/train:/jobs/train,"
            "/scratch:/scratch",
            "--container-workdir=/home/ada/code",
            "--x=y",
        ]

    @pytest.mark.parametrize(
        ("changes", "options", "expected"),
        [
            ({}, (), ["--nv"]),
            ({"gpus_per_node": 0}, (), []),
            ({"accelerator": "npu"}, (), []),
            ({}, ("--rocm",), ["--rocm"]),
        ],
    )
    def test_the_driver_is_taken_in_where_there_may_be_gpus(
        self, changes: dict[str, Any], options: tuple[str, ...], expected: list[str]
    ) -> None:
        container = Container("/i.sif", "singularity", options=options)
        found = words(replace(JOB, container=container, **changes))
        start = found.index("singularity")
        assert found[start : found.index("--bind=/home/ada/code:/home/ada/code")] == [
            *("singularity", "exec"),
            *expected,
        ]

    def test_the_node_side_is_run_by_the_images_interpreter(self) -> None:
        file = f"{JOB.folder}/slurm-adapter.pyz"
        assert words(JOB)[-4:] == ["python3", "-I", "-S", file]
        assert words(replace(JOB, python="/opt/conda/bin/python"))[-4] == "/opt/conda/bin/python"

    def test_secrets_are_handed_over_by_name(self) -> None:
        text = make_script(replace(JOB, env={"API_TOKEN": "hush"}), ["a"], "/").text
        assert 'export SLURM_ADAPTER_ENV_API_TOKEN="$API_TOKEN"\n' in text
        assert "hush" not in text


@pytest.mark.parametrize(
    ("changes", "container", "said"),
    [
        ({}, {"image": "-x"}, "names no image"),
        ({}, {"image": "a\nb"}, "line break"),
        ({}, {"runtime": "docker"}, "Choose one of: pyxis, apptainer, singularity."),
        ({"venv": "/v"}, {}, "--venv is an environment of the machine"),
        ({"conda": "c"}, {}, "--conda is an environment of the machine"),
        ({}, {"mounts": ("data:/data",)}, "SOURCE:DESTINATION:ro with absolute paths"),
        ({}, {"mounts": ("/a:/b:rx",)}, "SOURCE:DESTINATION:ro with absolute paths"),
        ({}, {"mounts": ("/a,/b",)}, "SOURCE:DESTINATION:ro with absolute paths"),
        ({}, {"mounts": ("/a:/b:ro:x",)}, "SOURCE:DESTINATION:ro with absolute paths"),
        ({"code": "/a,b"}, {}, "/a,b cannot be mounted"),
        ({"folder": "/a b"}, {"runtime": "pyxis"}, "/a b cannot be mounted"),
        ({}, {"options": ("--containall",)}, "would keep Slurm's variables"),
        ({}, {"options": ("x",)}, "is no option that can be added"),
        (
            {},
            {"runtime": "pyxis", "options": ("--container-mounts=/a:/b",)},
            "is no option that can be added",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    changes: dict[str, Any], container: dict[str, Any], said: str
) -> None:
    job = replace(JOB, **changes, container=replace(JOB.container, **container))
    with pytest.raises(AdapterError) as refused:
        make_script(job, ["a"], "/")
    assert said in f"{refused.value.found} {refused.value.remedy}"


@pytest.fixture
def image(user: User) -> User:
    """Give the user an `apptainer`, and an image that has values of its own for everything."""
    user.write("bin/apptainer", STAND_IN.read_text(), 0o755)
    user.write("image/environment", "LR=9\nIMAGES_OWN=1\nMASTER_PORT=1\nTOKEN=9\nMASTER_ADDR=x\n")
    user.write("image/opt/image", "the image\n")
    user.write("image/etc/hosts", "")
    user.write("image/etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")
    user.write("train.py", SHOW)
    return user


def submit(user: User, *options: str, **env: str) -> str:
    words = ("--container", "./image", "--container-runtime", "apptainer", "--python", "python3")
    return user.run(
        *("slurm-adapter", "sbatch", "-N", "3", "--parsable", *words),
        *("--env", "LR=0.1 $x", "--env", "TOKEN", "--output", "train_url=results", *options),
        *("train.py", "--say", "it's"),
        env={"PATH": f"bin:{user.environment['PATH']}", "TOKEN": "hush", **env},
    )


def test_ranks_run_in_the_image_with_the_jobs_own_values_and_view(image: User) -> None:
    end = image.finish(submit(image))
    outputs = image.outputs("train")
    assert end.exit_status == 0, outputs
    for index, output in enumerate(outputs):
        first, *others = output.splitlines()
        assert first.startswith("in the image by /usr/bin/python3 ['--init_method', 'tcp://ma-job-")
        assert first.endswith(
            f"'--rank', '{index}', '--world_size', '3',"
            " '--train_url=/home/ma-user/modelarts/outputs/train_url_0', '--say', \"it's\"]"
        )
        assert others == [
            "LR 0.1 $x",
            "TOKEN hush",
            "MASTER_PORT None",
            "IMAGES_OWN 1",
            "MA_NUM_HOSTS 3",
            "left []",
            f"host True 10.77.0.1{index} /home/ma-user/modelarts/user-job-dir/{image.folder.name}",
            f"slurm-adapter: worker-{index} ended, return code 0",
        ]
        assert image.outside(f"results/{index}").read_text() == "made inside"


def test_a_rank_that_fails_in_the_image_is_named(image: User) -> None:
    job_id = submit(image, "--env", "FAIL_ON=1")
    assert image.finish(job_id).exit_status == 7
    log = image.log("slurm-adapter/train/log/train-*.out")
    assert "slurm-adapter: rank 1 on gpu-n01 failed first: Exited with exit code 7" in log


def test_the_rendezvous_is_not_the_images(image: User) -> None:
    """Hooks of enroot set MASTER_ADDR and MASTER_PORT in every task."""
    command = 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR $([ "$MASTER_PORT" -ge 10000 ] && echo)"'
    image.run(
        *("slurm-adapter", "sbatch", "-N", "2", "--gpus-per-node", "2", "--contract", "env"),
        *("--container", "image", "--container-runtime", "apptainer", "--name", "e", "--wait"),
        *("--container-mount", "/srv:/srv:ro", "--command", command),
        env={"PATH": f"bin:{image.environment['PATH']}"},
    )
    lines = image.log("slurm-adapter/e/log/e-*.out").splitlines()
    ranks = sorted(line.partition(": ")[2] for line in lines if " of 4 at " in line)
    assert ranks == [f"{rank} of 4 at gpu-n00 " for rank in range(4)]


def test_a_dry_run_says_where_the_ranks_run_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    options = ["--container", "docker://a/b", "--container-runtime", "pyxis", "--format", "plain"]
    done = adapter("sbatch", "--dry-run", *options, "--job-folder", "/j", "train.py", cwd=tmp_path)
    assert done.status == 0, done.err
    assert done.out.startswith(
        "train: 1 node, 1 rank, contract modelarts, in docker://a/b by pyxis\n"
    )
    assert f"  /j/{zipapp_name()}\n" in done.out
    assert "the same by hand inside the image, a command for each node:\n" in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_site_without_a_runtime_says_so_and_nothing_is_made(user: User) -> None:
    user.write("train.py", "")
    done = user.cluster.run(
        ["slurm-adapter", "sbatch", "--container", "a.sif", "train.py"],
        cwd=str(user.folder),
        env=user.environment,
    )
    assert done.returncode == 3
    assert "srun knows no --container-image (Pyxis)" in done.stderr
    assert "--container-runtime pyxis|apptainer|singularity" in done.stderr
    assert not user.outside("slurm-adapter").exists()


def test_an_interpreter_that_is_too_old_is_named(tmp_path: Path) -> None:
    """Images live for years; the file's first lines are understood by any Python."""
    write_zipapp(LocalHost(), str(tmp_path))
    with zipfile.ZipFile(tmp_path / zipapp_name()) as archive:
        first = archive.read("__main__.py").decode()
    old = f"import sys\nsys.version_info = (3, 8, 10)\n{first}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", old], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert f"{sys.executable} is Python 3.8; 3.10 or later is needed." in done.stderr

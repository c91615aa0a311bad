"""A job file says what options say; whoever speaks later wins, and mistakes name file and key."""

# ruff: noqa: RUF001 - flavors are written with full-width colons

from pathlib import Path

import pytest

from commandline import Done, adapter
from slurm_adapter.config.jobfile import read_job_file
from slurm_adapter.errors import BadValueError, report

EXAMPLE = """\
name = "gpu-train"
code = "./gpu-train"
boot = "train.py"
args = ["--epochs", "5"]
nodes = 2
flavor = "GPU: 8*NVIDIA-V100 | CPU: 72核 | 内存：512GB"
contract = "modelarts"

[env]
WANDB_MODE = "offline"

[inputs]                      # ModelArts channels: --data_url=<local path>
data_url = "/datasets/cifar10"
[outputs]
train_url = "/results/gpu-train"

[slurm]                       # any long sbatch option, by its own name
partition = "train"
time = "02:00:00"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a code directory and a boot file in it."""
    (tmp_path / "gpu-train").mkdir()
    (tmp_path / "gpu-train/train.py").touch()
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


def script(folder: Path, text: str, *options: str, **env: str) -> Done:
    """Return the sbatch script that a job file makes."""
    file = folder / "job.toml"
    file.write_text(text)
    return adapter("sbatch", "--script", "-", "--job", str(file), *options, cwd=folder, env=env)


def plan(folder: Path, text: str, *options: str, cwd: Path | None = None, **env: str) -> Done:
    """Return the dry run of a job file on this machine."""
    (folder / "job.toml").write_text(text)
    words = ["local", "--dry-run", "--format", "json", "--job", str(folder / "job.toml"), *options]
    return adapter(*words, cwd=cwd or folder, env=env)


def argv(done: Done, rank: int = 0) -> list[str]:
    assert done.status == 0, done.err
    node = done.json["plan"]["nodes"][rank]["ranks"][0]
    return [word["value"] for word in node["argv"]]


def variables(done: Done) -> dict[str, str]:
    assert done.status == 0, done.err
    settings = done.json["plan"]["environment"]
    return {setting["name"]: setting["value"] for setting in settings}


class TestTheExample:
    def test_becomes_directives(self, folder: Path) -> None:
        assert script(folder, EXAMPLE).directives == {
            "job-name": "gpu-train",
            "nodes": "2",
            "ntasks-per-node": "1",
            "gpus-per-node": "8",
            "cpus-per-task": "72",
            "mem": "488281M",
            "output": f"{folder}/slurm-adapter/gpu-train/log/gpu-train-%j.out",
            "open-mode": "append",
            "partition": "train",
            "time": "02:00:00",
        }

    def test_becomes_a_command_line(self, folder: Path) -> None:
        done = plan(folder, EXAMPLE)
        address = variables(done)["SLURM_ADAPTER_INIT_METHOD"]
        assert argv(done, rank=1) == [
            *("python", "/home/ma-user/modelarts/user-job-dir/gpu-train/train.py"),
            *("--init_method", address, "--rank", "1", "--world_size", "2"),
            "--data_url=/home/ma-user/modelarts/inputs/data_url_0",
            "--train_url=/home/ma-user/modelarts/outputs/train_url_0",
            *("--epochs", "5"),
        ]
        assert variables(done)["WANDB_MODE"] == "offline"

    def test_means_its_paths_from_where_it_lies(self, folder: Path) -> None:
        text = EXAMPLE.replace("/datasets/", "datasets/").replace("/results/", "../results/")
        words = argv(plan(folder, text, "--view", "off", cwd=folder / "elsewhere"))
        assert words[1] == f"{folder}/gpu-train/train.py"
        assert f"--data_url={folder}/datasets/cifar10" in words
        assert f"--train_url={folder.parent}/results/gpu-train" in words


class TestValues:
    def test_may_be_relative_boot_files_and_folders(self, folder: Path) -> None:
        text = 'boot = "gpu-train/train.py"\njob_folder = "runs/1"\n'
        done = plan(folder, text, "--view", "off", cwd=folder / "elsewhere")
        assert argv(done)[1] == f"{folder}/gpu-train/train.py"
        assert variables(done)["MA_HOME"] == f"{folder}/runs/1"

    def test_may_start_in_the_home_directory(self, folder: Path) -> None:
        text = 'code = "~/gpu-train"\nboot = "train.py"\n'
        options = ["--view", "off"]
        done = plan(folder, text, *options, cwd=folder / "elsewhere", HOME=str(folder))
        assert argv(done)[1] == f"{folder}/gpu-train/train.py"

    def test_may_be_numbers_where_texts_are_meant(self, folder: Path) -> None:
        text = 'command = "true"\nargs = [5, 0.5]\n[env]\nSEED = 7\n[slurm]\ntime = 90\n'
        done = plan(folder, text)
        assert (argv(done)[-2:], variables(done)["SEED"]) == (["5", "0.5"], "7")
        assert script(folder, text).directives["time"] == "01:30:00"

    def test_may_be_a_time_of_day(self, folder: Path) -> None:
        done = script(folder, 'command = "true"\n[slurm]\ntime = 02:00:00\n')
        assert done.directives["time"] == "02:00:00"

    def test_may_be_a_flag(self, folder: Path) -> None:
        done = script(folder, 'command = "true"\n[slurm]\nrequeue = true\n')
        assert done.directives["requeue"] is None

    def test_may_say_how_slurm_is_asked(self, folder: Path) -> None:
        text = 'command = "true"\ngpus_per_node = 4\ngpu_option = "gres"\n'
        text += "exclusive = true\nrequeue = true\n"
        asked = script(folder, text).directives
        assert (asked["gres"], asked["exclusive"], asked["requeue"]) == ("gpu:4", None, None)
        asked = script(folder, text, SLURM_ADAPTER_GPU_OPTION="none").directives
        assert not {"gres", "gpus-per-node"} & asked.keys()

    def test_may_name_modules_and_an_environment(self, folder: Path) -> None:
        text = 'command = "true"\nmodules = ["gcc/12", "cuda"]\nvenv = "my venv"\n'
        text += 'prologue = ["""\nulimit -n 64\ncd /\n"""]\n'
        lines = script(folder, text).out.splitlines()
        assert "module load gcc/12 cuda || exit" in lines
        assert f". '{folder}/my venv/bin/activate' || exit" in lines
        assert "# Your own lines.\nulimit -n 64\ncd /\nset -u" in "\n".join(lines)

    def test_may_be_an_environments_name_or_its_path(self, folder: Path) -> None:
        for value, said in [("train", "train"), ("./env", f"{folder}/env"), ("/a/env", "/a/env")]:
            done = script(folder, f'command = "true"\nconda = "{value}"\n')
            assert f"conda activate {said} || exit" in done.out.splitlines()

    def test_may_name_variables_to_keep(self, folder: Path) -> None:
        done = script(folder, 'command = "true"\nkeep = ["MASTER_ADDR"]\n')
        assert "    --env=MASTER_ADDR \\" in done.out.splitlines()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodez = 2", "there is no key 'nodez'\nDid you mean nodes?"),
        ("gpus-per-node = 2", "there is no key 'gpus-per-node'\nDid you mean gpus_per_node?"),
        ("colour = 1", "there is no key 'colour'\nKnown keys: boot, args, nodes,"),
        (
            "a = 1\nb = 2\nc = 3\nd = 4",
            "'a'; there is no key 'b'; there is no key 'c'; and 1 more\nKnown",
        ),
        ('nodes = "two"', 'nodes = "two" is not a whole number\nWrite it as in: nodes = 2'),
        ("nodes = true", "nodes = true is not a whole number"),
        ("nodes = 1.5", "nodes = 1.5 is not a whole number"),
        ("name = 3", "name = 3 is not a text in quotes"),
        ('args = "--epochs 5"', 'args = "--epochs 5" is not a list'),
        ("[env]\nDEBUG = true", "env.DEBUG = true is not a text in quotes"),
        ("[inputs]\ndata_url = 1", "inputs.data_url = 1 is not a text in quotes"),
        ("[slurm]\nrequeue = false", "slurm.requeue: a flag that is not wanted is left out"),
        ("[slurm]\ntime = [1]", "slurm.time = [1] is not a text in quotes"),
        ('boot = "gpu-train/train.py"\ncommand = "true"', "two programs"),
        ('venv = "a"\nconda = "b"', "venv and conda are two environments\nGive one"),
        ('modules = "gcc"', 'modules = "gcc" is not a list\nWrite it as in: modules = ['),
        ("exclusive = 1", "exclusive = 1 is not true or false"),
        ("name = gpu-train", "job.toml is not TOML: "),
        ('name = "a"\nname = "b"', "job.toml is not TOML: "),
    ],
    ids=ascii,
)
def test_is_refused_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text)
    with pytest.raises(BadValueError) as caught:
        read_job_file(file)
    assert str(caught.value).startswith(str(file))
    assert said in str(caught.value)
    assert caught.value.exit_status == 2
    assert len(report(caught.value).splitlines()) <= 3


def test_is_refused_where_it_cannot_be_read(folder: Path) -> None:
    (folder / "latin.toml").write_bytes(b'name = "\xe9"\n')
    for name, said in [
        ("nope.toml", "the job file nope.toml cannot be read: No such file or directory"),
        ("gpu-train", "the job file gpu-train cannot be read: Is a directory"),
        ("latin.toml", "latin.toml is not UTF-8"),
    ]:
        done = adapter("sbatch", "--script", "-", "--job", name, cwd=folder)
        assert (done.status, done.out) == (2, "")
        assert said in done.err


class TestPrecedence:
    """Option, environment, job file, the user's config file, default."""

    @pytest.mark.parametrize(
        ("winner", "nodes"),
        [("option", 5), ("environment", 4), ("job file", 3), ("config file", 2), ("default", 1)],
    )
    def test_of_a_value(self, folder: Path, winner: str, nodes: int) -> None:
        job = 'command = "true"\n' + ("nodes = 3" if nodes >= 3 else "")
        options = ["--nodes", "5"] if winner == "option" else []
        env = {"XDG_CONFIG_HOME": str(configured(folder, "nodes = 2" if nodes >= 2 else ""))}
        if nodes >= 4:
            env["SLURM_ADAPTER_NODES"] = "4"
        assert script(folder, job, *options, **env).directives["nodes"] == str(nodes)

    def test_of_tables_is_settled_key_by_key(self, folder: Path) -> None:
        config = '[env]\nA = "config"\nB = "config"\n[slurm]\npartition = "a"\naccount = "lab"\n'
        job = 'command = "true"\n[env]\nB = "job"\nC = "job"\n[slurm]\npartition = "b"\n'
        options = ["--env", "C=option", "--sbatch", "qos=high"]
        home = str(configured(folder, config))
        done = script(folder, job, *options, XDG_CONFIG_HOME=home)
        lines = done.out.splitlines()
        assert [line for line in lines if line.startswith("export ")] == [
            *("export A=config", "export B=job", "export C=option")
        ]
        asked = done.directives
        assert (asked["partition"], asked["account"], asked["qos"]) == ("b", "lab", "high")

    def test_of_programs_a_later_one_takes_the_place_of_both(self, folder: Path) -> None:
        done = plan(folder, EXAMPLE, "--command", "echo $MA_NUM_HOSTS")
        assert argv(done)[:3] == ["/bin/sh", "-c", "echo $MA_NUM_HOSTS"]
        (folder / "gpu-train/other.py").touch()
        done = plan(folder, EXAMPLE, "--view", "off", "other.py", "--lr", "1")
        assert argv(done)[1] == f"{folder}/gpu-train/other.py"
        assert argv(done)[-2:] == ["--lr", "1"]

    def test_of_environments_a_later_one_takes_the_place_of_both(self, folder: Path) -> None:
        done = script(folder, 'command = "true"\nvenv = "/a"\n', "--conda", "train")
        assert "conda activate train || exit" in done.out.splitlines()
        assert "/a/bin/activate" not in done.out

    def test_of_lists_a_later_one_takes_the_place(self, folder: Path) -> None:
        text = 'command = "true"\nmodules = ["gcc"]\nprologue = ["true"]\n'
        done = script(folder, text, "--module", "cuda", "--prologue", "cd /")
        assert "module load cuda || exit\n# Your own lines.\ncd /\nset -u\n" in done.out

    def test_the_config_file_is_found_in_the_home_directory(self, folder: Path) -> None:
        configured(folder / ".config", "nodes = 2")
        assert script(folder, 'command = "true"', HOME=str(folder)).directives["nodes"] == "2"

    def test_a_wrong_config_file_is_named(self, folder: Path) -> None:
        home = configured(folder, "nodes = x")
        done = script(folder, 'command = "true"', XDG_CONFIG_HOME=str(home))
        assert done.status == 2
        assert f"{home}/slurm-adapter/config.toml is not TOML" in done.err

    def test_a_wrong_variable_is_named(self, folder: Path) -> None:
        done = script(folder, 'command = "true"', SLURM_ADAPTER_NODES="many")
        assert done.status == 2
        assert "SLURM_ADAPTER_NODES" in done.err
        assert "many" in done.err

    def test_a_job_file_may_be_named_by_a_variable(self, folder: Path) -> None:
        (folder / "my.toml").write_text('command = "true"\nnodes = 3\n')
        done = adapter("sbatch", "--script", "-", cwd=folder, env={"SLURM_ADAPTER_JOB": "my.toml"})
        assert done.directives["nodes"] == "3"


def configured(home: Path, text: str) -> Path:
    """Write the user's config file below `home` and return `home`."""
    (home / "slurm-adapter").mkdir(parents=True)
    (home / "slurm-adapter/config.toml").write_text(text)
    return home

"""Heterogeneous jobs: two kinds of nodes in one job of Slurm, all ranks in one world."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from commandline import adapter
from conftest import User
from slurm_adapter import Argv, Job, Node, read_step
from slurm_adapter.cli.components import read_components
from slurm_adapter.cli.request import job_from_options
from slurm_adapter.cluster.step_components import components, first_tasks
from slurm_adapter.config.jobfile import read_job_file
from slurm_adapter.errors import BadValueError, StepError
from slurm_adapter.job.options import JobOptions
from slurm_adapter.launch.script.sbatch import Script, make_script
from slurm_adapter.node.step.finish import read_ends
from slurm_adapter.node.step.per_node import with_own_ranks
from testbed.waiting import until

RECORDED = json.loads(
    Path(__file__).with_name("recordings").joinpath("slurm-22.05.json").read_text()
)
JOB = Job(program=Argv(("true",)), code="/c", folder="/f", contract="env", ranks_by="node")


class TestAStep:
    def test_tells_each_nodes_component(self) -> None:
        last = read_step(RECORDED["het_batch_reversed"]["tasks"][4])
        assert (last.nodes, last.components) == (("gpu-n02", "gpu-n00", "gpu-n01"), (0, 1, 1))

    def test_of_a_job_submitted_from_within_one_is_an_ordinary_step(self) -> None:
        inherited = {**RECORDED["het_batch_reversed"]["shells"][0], "SLURM_JOB_ID": "77"}
        plain = {**inherited, **RECORDED["plain3"]["tasks"][2], "SLURM_JOB_ID": "77"}
        step = read_step(plain)
        assert (step.nodes, step.components) == (("gpu-n00", "gpu-n01", "gpu-n02"), ())

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"SLURM_JOB_NODELIST_HET_GROUP_1": ""}, "which nodes component 1 has"),
            ({"SLURM_JOB_NODELIST_HET_GROUP_1": "gpu-n07"}, "gpu-n00 is in none of them"),
            (
                {"SLURM_JOB_NODELIST_HET_GROUP_0": "gpu-n[00,02]"},
                "a node is in two of them",
            ),
            (
                {"SLURM_STEP_TASKS_PER_NODE": "1,2(x2)", "SLURM_TASKS_PER_NODE": "1,2(x2)"},
                "how many the other nodes have is not known",
            ),
        ],
    )
    def test_whose_variables_do_not_tell_all_is_refused(
        self, changes: dict[str, str], what: str
    ) -> None:
        task = {**RECORDED["het_batch_reversed"]["tasks"][1], **changes}
        with pytest.raises(StepError, match=what) as caught:
            read_step(task)
        assert "srun --het-group" in caught.value.remedy


class TestOneTaskForANodesRanks:
    """`--ranks-by node`: each node must know how many ranks all others have."""

    def nodes(self, own: int) -> list[Node]:
        first = [Node("n1", tasks=1, part=0), Node("n2", tasks=1, part=0)]
        return [*first, Node("n3", gpus=own, tasks=1, part=1)]

    def test_counts_as_the_components_asked(self) -> None:
        request = {"SLURM_GPUS_PER_NODE_HET_GROUP_0": "a100:4"}
        request["SLURM_GPUS_PER_NODE_HET_GROUP_1"] = "2"
        found = with_own_ranks(self.nodes(2), 2, "step 1.0", JOB, request)
        assert [(node.gpus, node.tasks) for node in found] == [(4, None), (4, None), (2, None)]

    @pytest.mark.parametrize(
        ("own", "request_of_each", "what"),
        [
            (2, {"SLURM_GPUS_PER_NODE_HET_GROUP_1": "2"}, "of component 0 have"),
            (
                1,
                {
                    "SLURM_GPUS_PER_NODE_HET_GROUP_0": "4",
                    "SLURM_GPUS_PER_NODE_HET_GROUP_1": "2",
                },
                "n3 has 1 GPUs in this step",
            ),
        ],
    )
    def test_never_guesses(self, own: int, request_of_each: dict[str, str], what: str) -> None:
        with pytest.raises(StepError, match=what) as caught:
            with_own_ranks(self.nodes(own), 2, "step 1.0", JOB, request_of_each)
        assert "Give exec" in caught.value.remedy


def test_sb_08_a_failure_is_told_by_its_rank_in_the_whole_job() -> None:
    """In messages srun counts the tasks of each component from 0."""
    shell = RECORDED["het_batch_reversed"]["shells"][0]
    first = first_tasks(components(shell))
    said = "srun: error: gpu-n01: tasks 2-3: Exited with exit code 7\n"
    ends = read_ends([said, "srun: error: gpu-n02: task 0: Terminated\n"], first_tasks=first)
    assert ends.said == "ranks 3-4 on gpu-n01 failed first: Exited with exit code 7"
    assert ends.by_rank == {3: 7, 4: 7, 0: 143}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    return tmp_path


def script(folder: Path, *parts: str, **options: Any) -> Script:
    """Return the script of a job that is typed with `--part PART` for each."""
    said = {"boot": "train.py", "contract": "env", "gpus_per_node": 2, **options}
    job = job_from_options(JobOptions(**said, components=read_components(parts)), str(folder))
    return make_script(job, ["slurm-adapter"], str(folder))


def components_of(text: str) -> list[dict[str, str]]:
    """Return the directives of each component, by name."""
    return [
        dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", part, re.MULTILINE))
        for part in text.split("#SBATCH hetjob\n")
    ]


class TestAScript:
    def test_asks_for_each_part_what_its_nodes_need(self, folder: Path) -> None:
        made = script(
            folder,
            'nodes=3 flavor="GPU: 2*NVIDIA-A100 | CPU: 16 cores | Memory: 64 GB"'
            " partition=other contiguous time=90",
            "gpus-per-node=0 --mem=8G",
            nodes=2,
            gpus_per_node=4,
            exclusive=True,
            warn="60",
            slurm={
                "partition": "train",
                "account": "lab",
                "time": "02:00:00",
                "cpus-per-task": "6",
                "constraint": "v100",
            },
        )
        first, second, third = components_of(made.text)
        assert (first["nodes"], first["ntasks-per-node"], first["gpus-per-node"]) == ("2", "4", "4")
        shared = {"account": "lab", "signal": "USR2@60", "exclusive": ""}
        of_second = "nodes=3 ntasks-per-node=2 gpus-per-node=2 cpus-per-task=8 mem=61035M"
        of_second += " partition=other contiguous= time=01:30:00"
        of_third = "nodes=1 ntasks-per-node=1 cpus-per-task=6 mem=8G partition=train time=02:00:00"
        assert second == shared | dict(word.split("=") for word in of_second.split())
        assert third == shared | dict(word.split("=") for word in of_third.split())

    @pytest.mark.parametrize(
        ("cpus", "srun"),
        [
            (
                "6",
                "srun --label --kill-on-bad-exit=1 --export=ALL --het-group=0,1"
                " --cpus-per-task=6 \\\n",
            ),
            (
                "3",
                "srun --label --kill-on-bad-exit=1 --export=ALL --het-group=0"
                " --cpus-per-task=6 : \\\n    --label --kill-on-bad-exit=1 --export=ALL"
                " --het-group=1 --cpus-per-task=3 \\\n",
            ),
        ],
    )
    def test_has_one_step_over_all_parts(self, folder: Path, cpus: str, srun: str) -> None:
        part = f"gpus-per-node=1 cpus-per-task={cpus}"
        assert srun in script(folder, part, slurm={"cpus-per-task": "6"}).text

    def test_runs_every_part_in_the_image(self, folder: Path) -> None:
        image = {"gpus_per_node": 0, "container": "img"}
        part = "gpus-per-node=1 cpus-per-task=3"
        pyxis = script(folder, part, container_runtime="pyxis", **image).text
        told = re.findall(r"--(het-group=.|container-image=\w+)", pyxis)
        assert told == ["het-group=0", "container-image=img", "het-group=1", "container-image=img"]
        apptainer = script(folder, part, container_runtime="apptainer", **image).text
        assert "--het-group=1 --cpus-per-task=3 \\\n    apptainer exec --nv \\\n" in apptainer

    def test_is_the_same_from_a_job_file(self, folder: Path) -> None:
        (folder / "job.toml").write_text(
            'boot = "train.py"\nnodes = 2\ngpus_per_node = 4\ncontract = "torchrun"\n'
            '[slurm]\npartition = "a"\n'
            "[[parts]]\nnodes = 2\ngpus_per_node = 2\n"
            '[parts.slurm]\npartition = "b"\ncontiguous = true\n'
            "[[parts]]\ngpus_per_node = 1\n"
        )
        by_file = adapter("sbatch", "-q", "--script", "-", "--job", "job.toml", cwd=folder)
        assert by_file.status == 0, by_file.err
        typed = adapter(
            *("sbatch", "-q", "--script", "-", "-N", "2", "--gpus-per-node", "4"),
            *("--contract", "torchrun", "--sbatch", "partition=a"),
            *("--part", "nodes=2 gpus-per-node=2 partition=b contiguous"),
            *("--part", "gpus-per-node=1", "train.py"),
            cwd=folder,
        )
        assert by_file.out == typed.out

    def test_is_shown_with_the_nodes_of_each_part(self, folder: Path) -> None:
        shown = adapter(
            *("sbatch", "--dry-run", "--format", "plain", "--contract", "env", "-N", "6"),
            *("--gpus-per-node", "2", "--part", "gpus-per-node=1"),
            *("--preview-nodes", "a[1-6],b1", "train.py"),
            cwd=folder,
        )
        assert shown.status == 0, shown.err
        lines = shown.out.splitlines()
        sizes = "7 nodes (6 with 2 GPUs, 1 with 1 GPU), 13 ranks, contract env"
        assert lines[0] == f"train: {sizes}"
        assert "... 3 nodes more, alike ..." in lines
        assert lines[lines.index("node 6  b1  1 GPU") + 1] == "  rank 12"


class TestIsRefused:
    @pytest.mark.parametrize(
        ("part", "options", "said", "remedy"),
        [
            ("nodes=1", {"contract": "modelarts"}, "have one flavor", "Give --contract env"),
            (
                "nodes=1",
                {"contract": "torchrun", "elastic": "1:1"},
                "--elastic goes on with fewer nodes that are alike",
                "Leave --elastic out",
            ),
            (
                "gpus-per-node=2",
                {"slurm": {"array": "0-3"}},
                "Slurm has no arrays of jobs with nodes of several kinds",
                "Leave --sbatch array out",
            ),
            ("nodes=2", {}, "part 1: the env contract starts", "Give gpus-per-node="),
            ("nodes=two", {}, "nodes=two is not a number of nodes", "Write nodes="),
            ("nodes=0 gpus-per-node=1", {}, "part 1: 0 nodes", "from 1 up"),
            ("", {}, "--part is empty", "Say which nodes"),
            ("a='b", {}, "No closing quotation", "--part 'nodes=1"),
            ("mem=1G --mem=2G", {}, "says mem twice", "Say it once"),
            (
                "gpus-per-node=1 partitoin=x",
                {},
                "part 1: sbatch has no long option 'partitoin'",
                "Did you mean partition?",
            ),
            (
                "hardware=v100",
                {},
                "part 1: sbatch has no long option 'hardware'",
                "It may say nodes, gpus-per-node, flavor and sbatch's options",
            ),
            (
                "gpus-per-node=1 partition",
                {},
                "part 1: the sbatch option partition wants a value",
                "Write partition=VALUE.",
            ),
            (
                "gpus-per-node=1 output=x.out",
                {},
                "part 1: the sbatch option output is for the whole job",
                "--sbatch output=VALUE.",
            ),
            (
                "gpus-per-node=1 gres=gpu:2",
                {},
                "part 1: the job asks for 1 GPUs per node, and so does the sbatch option gres",
                "Leave one of them out",
            ),
            (
                "gpus-per-node=1 mem-per-cpu=1G",
                {"slurm": {"mem": "4G"}},
                "asks for memory with mem-per-cpu, and the first nodes with mem",
                "Write mem=SIZE in it",
            ),
            (
                "gpus-per-node=1 mem=4G mem-per-cpu=1G",
                {},
                "part 1: sbatch takes one of mem and mem-per-cpu",
                "Leave one of them out",
            ),
        ],
    )
    def test_what_cannot_be_meant(
        self, folder: Path, part: str, options: dict[str, Any], said: str, remedy: str
    ) -> None:
        with pytest.raises(BadValueError) as caught:
            script(folder, part, **options)
        assert said in caught.value.found
        assert remedy in caught.value.remedy

    @pytest.mark.parametrize("command", [("local",), ("ssh", "-H", "n1")])
    def test_where_no_slurm_is_asked(self, folder: Path, command: tuple[str, ...]) -> None:
        text = 'boot = "train.py"\ncontract = "env"\n[[parts]]\ngpus_per_node = 2\n'
        (folder / "job.toml").write_text(text)
        done = adapter(*command, "--job", "job.toml", cwd=folder)
        assert done.status == 2
        assert "[[parts]] are nodes that Slurm is asked for" in done.err

    def test_a_key_that_no_part_has(self, folder: Path) -> None:
        (folder / "job.toml").write_text('boot = "train.py"\n[[parts]]\ngpu_per_node = 2\n')
        with pytest.raises(
            BadValueError, match=r"there is no key 'parts.0.gpu_per_node'"
        ) as caught:
            read_job_file(folder / "job.toml")
        assert caught.value.remedy == "Did you mean gpus_per_node?"


TELL = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $MASTER_PORT"
TWO_AND_ONE = ("--contract", "env", "-N", "2", "--gpus-per-node", "2", "--part")


class TestOnSlurm:
    """Two nodes with two ranks each and one node with one."""

    def told(self, text: str) -> list[list[str]]:
        """Return what each rank told, by rank: its label, then its variables."""
        lines = [line.split() for line in text.splitlines() if re.match(r"\d: ", line)]
        return sorted(lines, key=lambda words: int(words[1]))

    def test_all_ranks_are_in_one_world(self, user: User) -> None:
        out = user.run(
            *("slurm-adapter", "sbatch", "--follow", "--sbatch", "partition=debug", *TWO_AND_ONE),
            *("gpus-per-node=1 partition=train cpus-per-task=3", "--command", TELL),
        )
        port = self.told(out)[0][7]
        assert self.told(out) == [
            ["0:", "0", "5", "0", "2", "0", "gpu-n00", port],
            ["1:", "1", "5", "1", "2", "0", "gpu-n00", port],
            ["2:", "2", "5", "0", "2", "1", "gpu-n00", port],
            ["3:", "3", "5", "1", "2", "1", "gpu-n00", port],
            ["4:", "4", "5", "0", "1", "2", "gpu-n00", port],
        ]
        job = out.split()[3]
        shown = user.run("scontrol", "show", "job", job)
        assert re.findall(r"Partition=(\w+)", shown) == ["debug", "train"]
        rows = map(str.split, user.run("slurm-adapter", "jobs").splitlines())
        assert [row[4:6] for row in rows if row[0] == job] == [["5", "done"]]

    def test_each_node_starts_its_ranks_whatever_the_order_of_names(self, user: User) -> None:
        out = user.run(
            *("slurm-adapter", "sbatch", "--follow", "--sbatch", "nodelist=gpu-n02"),
            *("--contract", "env", "--ranks-by", "node", "--gpus-per-node", "1"),
            *("--part", "nodes=2 gpus-per-node=2", "--command", TELL),
        )
        told = self.told(out)
        assert [words[1:6] for words in told] == [
            *(["0", "5", "0", "1", "0"], ["1", "5", "0", "2", "1"], ["2", "5", "1", "2", "1"]),
            *(["3", "5", "0", "2", "2"], ["4", "5", "1", "2", "2"]),
        ]
        assert {tuple(words[6:]) for words in told} == {("gpu-n02", told[0][7])}

    def test_a_torchrun_starts_as_many_ranks_as_its_node_has_gpus(self, user: User) -> None:
        user.write("python", '#!/bin/sh\nshift 2; echo "$@"\n', 0o755)
        user.write("train.py", "")
        out = user.run(
            *("slurm-adapter", "sbatch", "--follow", "--contract", "torchrun", "-N", "2"),
            *("--gpus-per-node", "2", "--part", "gpus-per-node=1", "--python", "./python"),
            "train.py",
        )
        words = [line.split() for line in sorted(out.splitlines()) if " --nnodes=3 " in line]
        assert [one[2:4] for one in words] == [
            *(["--node-rank=0", "--nproc-per-node=2"], ["--node-rank=1", "--nproc-per-node=2"]),
            ["--node-rank=2", "--nproc-per-node=1"],
        ]
        assert len({tuple(one[4:8]) for one in words}) == 1
        assert "--master-addr=gpu-n00" in words[2]

    def test_a_failure_in_one_part_ends_all_with_its_status(self, user: User) -> None:
        command = 'test "$RANK" = 4 && exit 7; exec sleep 1000'
        words = ["slurm-adapter", "sbatch", "--follow", *TWO_AND_ONE, "gpus-per-node=1"]
        done = user.cluster.run(
            [*words, "--command", command], cwd=str(user.folder), env=user.environment
        )
        assert done.returncode == 7, done.stderr
        assert "rank 4 on gpu-n02 failed first: Exited with exit code 7" in done.stdout
        assert done.stderr.splitlines()[-1].endswith("ended: FAILED, exit status 7")

    def test_is_shown_as_one_job_and_stopped(self, user: User) -> None:
        words = ["slurm-adapter", "sbatch", "--parsable", *TWO_AND_ONE, "gpus-per-node=1"]
        job = user.run(*words, "--command", "echo up; exec sleep 1000").strip()
        pattern = "slurm-adapter/job/log/job-*.out"
        assert until(
            lambda: (
                bool(list(user.outside(".").glob(pattern))) and user.log(pattern).count(": up") == 5
            )
        )
        listed = [line.split() for line in user.run("slurm-adapter", "jobs").splitlines()]
        (row,) = [cells for cells in listed if cells and cells[0] == job]
        assert row[5:] == ["running", "gpu-n[00-01],gpu-n02"]
        keys = [row.split()[0] for row in user.run("slurm-adapter", "jobs", "--all").splitlines()]
        assert [key for key in keys if key.partition("+")[0] == job] == [job]
        user.run("slurm-adapter", "stop", job)
        ended = user.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", job)
        assert ended.split() == ["CANCELLED", "CANCELLED"]

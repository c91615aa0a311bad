"""`slurm-adapter sbatch` on a real cluster, as an ordinary user types it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from commandline import ADAPTER, BIN, Done
from conftest import read_worker_logs
from testbed import SlurmCluster

PATH = f"{BIN}:/usr/local/bin:/usr/bin:/bin"
ENDED = "slurm-adapter: worker-{} ended, return code {}\n"
TOLD = "0: slurm-adapter: each node's output is in its file: "
SHOW = """\
import json, os, sys
print(json.dumps([sys.argv[1:], {name: os.environ.get(name) for name in "ABCDE"}]))
"""


class User:
    """ada on the head, in a folder of her own."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder

    def types(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        done = self.slurm.run(words, cwd=self.folder, env={"PATH": PATH, **(env or {})})
        return Done(done.returncode, done.stdout, done.stderr)

    def sbatch(self, *words: str, env: Mapping[str, str] | None = None) -> Done:
        return self.types(ADAPTER, "sbatch", *words, env=env)

    def submits(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """Submit a job and return its id."""
        done = self.sbatch("--parsable", *words, env=env)
        assert done.status == 0, done.err
        return done.out.strip()

    def reads(self, path: str) -> str:
        """Return a file's text; a log's without the line that the script begins with."""
        text = self.slurm.outside(self.folder / path).read_text()
        begun = text.startswith("slurm-adapter: starting job ")
        return text.partition("\n")[2] if begun else text

    def outputs(self, job: str) -> list[str]:
        """Return what stands in each worker's log file of a job of that name, in order."""
        return read_worker_logs(self.slurm.outside(self.folder / f"slurm-adapter/{job}/log"))

    def sees(self, job: str) -> str:
        return self.types("scontrol", "show", "job", job).out

    def jobs(self) -> str:
        shown = self.types("squeue", "--noheader", "--all", "--states=all", "--format=%i").out
        return "\n".join(sorted(shown.splitlines()))  # their order changes as they end


@pytest.fixture
def ada(slurm: SlurmCluster, tmp_path: Path) -> User:
    """Give ada a folder that no other test uses, with a boot file in it."""
    return User(slurm, slurm.write(f"{tmp_path.name}/show.py", SHOW).parent)


class TestWhatIsPrinted:
    def test_is_the_line_that_sbatch_itself_prints(self, ada: User) -> None:
        done = ada.sbatch("show.py")
        assert done.status == 0
        assert re.fullmatch(r"Submitted batch job \d+\n", done.out)

    def test_is_the_job_id_alone_where_a_program_reads_it(self, ada: User) -> None:
        done = ada.sbatch("--parsable", "show.py")
        assert re.fullmatch(r"\d+\n", done.out)

    def test_tells_on_stderr_where_the_output_goes(self, ada: User) -> None:
        done = ada.sbatch("--parsable", "--gpus-per-node", "1", "show.py")
        job = done.out.strip()
        folder = f"{ada.folder}/slurm-adapter/show/log"
        log = f"{folder}/show-{job}.out"
        assert done.err == (
            f"slurm-adapter: output: {folder}/modelarts-job-<uuid>-worker-<index>.log\n"
            f"slurm-adapter: the job's log: {log}\n"
        )
        assert f"StdOut={log}\n" in ada.sees(job)

    def test_is_nothing_else_when_quiet(self, ada: User) -> None:
        done = ada.sbatch("--quiet", "--sbatch", "time=1:30", "show.py")
        assert (done.status, done.err) == (0, "")

    def test_warns_of_a_time_limit_that_looks_like_hours(self, ada: User) -> None:
        done = ada.sbatch("--sbatch", "time=1:30", "show.py")
        assert done.status == 0
        assert "warning: time=1:30 is minutes:seconds to Slurm: 00:02:00" in done.err


class TestWhatIsMade:
    def test_is_readable_by_its_owner_only(self, ada: User) -> None:
        ada.submits("show.py")
        shown = ada.types("sh", "-c", "cd slurm-adapter && stat -c '%a %n' . show show/*").out
        assert shown.splitlines() == [
            *("700 .", "700 show", "700 show/log", "600 show/show.sbatch")
        ]

    def test_sb_02_includes_the_folder_of_the_log(self, ada: User) -> None:
        job = ada.submits("--sbatch", "output=logs/a b/%j.out", "show.py")
        assert ada.slurm.wait_for_job(job).state == "COMPLETED"
        log = f"{ada.folder}/slurm-adapter/show/log/modelarts-job-"
        assert ada.reads(f"logs/a b/{job}.out").startswith(f"{TOLD}{log}")

    def test_is_nothing_but_a_script_where_only_that_is_asked_for(self, ada: User) -> None:
        before = ada.jobs()
        done = ada.sbatch("--script", "my.sbatch", "show.py", "--epochs", "5")
        assert (done.status, done.out) == (0, "")
        assert ada.jobs() == before
        job = ada.types("sbatch", "--parsable", "my.sbatch").out.strip()
        assert ada.slurm.wait_for_job(job).state == "COMPLETED"
        (log,) = ada.outputs("show")
        assert log.startswith('[["--epochs", "5"], ')
        assert log.endswith("\n" + ENDED.format(0, 0))


class TestADryRun:
    def test_shows_what_slurm_says_and_does_nothing(self, ada: User) -> None:
        before = ada.jobs()
        done = ada.sbatch("--dry-run", "--format", "json", "-N", "2", "show.py")
        slurm = done.json["slurm"]
        assert slurm["accepts"] is True
        assert "using 2 processors on nodes gpu-n[00-01] in partition train" in slurm["says"]
        assert ada.jobs() == before
        assert ada.types("ls").out == "show.py\n"

    def test_shows_why_slurm_would_refuse(self, ada: User) -> None:
        done = ada.sbatch("--dry-run", "--format", "json", "-N", "9", "show.py")
        slurm = done.json["slurm"]
        assert slurm["accepts"] is False
        assert "Requested node configuration is not available" in slurm["says"]


class TestOptions:
    def test_reach_slurm(self, ada: User) -> None:
        given = ["partition=debug", "comment=a # b", "time=90", "hold"]
        options = [word for option in given for word in ("--sbatch", option)]
        shown = ada.sees(ada.submits(*options, "show.py"))
        assert "Partition=debug " in shown
        assert "TimeLimit=01:30:00 " in shown
        assert "Comment=a # b " in shown
        assert "JobState=PENDING Reason=JobHeldUser " in shown

    def test_that_slurm_refuses_are_answered_with_its_words(self, ada: User) -> None:
        done = ada.sbatch("--sbatch", "partition=nope", "show.py")
        assert (done.status, done.out) == (3, "")
        assert "invalid partition specified: nope" in done.err

    @pytest.mark.parametrize("name", ["big sim", "lab/exp 7", 'it\'s "#1"', "é 日本 %j", "$HOME"])
    def test_sb_01_a_name_arrives_and_the_log_is_written(self, ada: User, name: str) -> None:
        job = ada.submits("--name", name, "show.py")
        assert f"JobId={job} JobName={name}\n" in ada.sees(job)
        assert ada.slurm.wait_for_job(job).state == "COMPLETED"
        stem = name.replace("/", "_").replace("%", "_")
        assert ada.reads(f"slurm-adapter/{stem}/log/{stem}-{job}.out").startswith(
            f"{TOLD}{ada.folder}/slurm-adapter/{stem}/log/modelarts-job-"
        )
        (log,) = ada.outputs(stem)
        assert log == f"[[], {json.dumps(dict.fromkeys('ABCDE'))}]\n{ENDED.format(0, 0)}"


class TestARank:
    @pytest.mark.parametrize("text", ["two\nlines", "dos\r\nlines"], ids=ascii)
    def test_sb_03_gets_words_and_variables_byte_for_byte(self, ada: User, text: str) -> None:
        args = ["--prompt", 'say "hi" & $HOME', "", "*", text]
        values = {"A": "organism part", "B": "it's $5; ok", "C": text, "D": ""}
        options = [word for pair in values.items() for word in ("--env", "=".join(pair))]
        job = ada.submits(*options, "show.py", *args, env={"E": "inherited\nlines"})
        assert ada.slurm.wait_for_job(job).state == "COMPLETED"
        (log,) = ada.outputs("show")
        shown = json.loads(log.removesuffix(ENDED.format(0, 0)))
        assert shown == [args, {**values, "E": "inherited\nlines"}]

    def test_gets_a_secret_that_stands_in_no_script(self, ada: User) -> None:
        job = ada.submits("--env", "MY_TOKEN=abc-123", "--command", "echo ${#MY_TOKEN} characters")
        assert ada.slurm.wait_for_job(job).state == "COMPLETED"
        assert ada.outputs("job") == ["7 characters\n" + ENDED.format(0, 0)]
        written = ada.reads("slurm-adapter/job/job.sbatch")
        kept = ada.types("scontrol", "write", "batch_script", job, "-").out
        assert "MY_TOKEN" in kept
        assert "abc-123" not in written + kept

    @pytest.mark.parametrize(
        ("failure", "status", "said"),
        [
            pytest.param("exit 3", 3, "Exited with exit code 3", id="SB-08 exit 3"),
            pytest.param("kill -SEGV $$", 139, "Segmentation fault", id="SB-08 a signal"),
        ],
    )
    def test_that_fails_ends_the_others_and_gives_the_job_its_status(
        self, ada: User, failure: str, status: int, said: str
    ) -> None:
        command = f'test "$VC_TASK_INDEX" = 0 || {failure}; exec sleep 1000'
        job = ada.submits("-N", "2", "--command", command)
        end = ada.slurm.wait_for_job(job)
        assert (end.state, end.exit_status) == ("FAILED", status)
        node = ada.slurm.nodes[1]
        assert ada.reads(f"slurm-adapter/job/log/job-{job}.out").endswith(
            f"\nslurm-adapter: rank 1 on {node} failed first: {said}\n"
        )

    def test_may_submit_a_job_itself(self, ada: User) -> None:
        nested = [ADAPTER, "sbatch", "--parsable", "-N", "2"]
        nested += ["--command", 'echo "$VC_TASK_INDEX of $MA_NUM_HOSTS, $MA_NUM_GPUS GPUs"']
        outer = ["srun", "--nodes=1", "--cpus-per-task=4", "--gres=gpu:2"]
        done = ada.types(*outer, *nested)
        job = done.out.strip()
        assert ada.slurm.wait_for_job(job).state == "COMPLETED"
        assert ada.outputs("job") == [
            f"{index} of 2, 0 GPUs\n{ENDED.format(index, 0)}" for index in range(2)
        ]

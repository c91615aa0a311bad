"""A dry run shows what would happen, in three forms, and does nothing."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from commandline import WITHOUT_SLURM, Done, adapter, environment

SHOW = "import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))\n"
ESCAPE = "\x1b"
BOX = re.compile("[\u2500-\u257f]")
FORMS = ["plain", "json", "rich"]
COMMANDS = ["local", "sbatch"]
# Made anew by each run.
OWN_NAMES = {"MA_VJ_NAME", "MA_CURRENT_INSTANCE_NAME", "HOSTNAME"}


SECRETS = {"MY_TOKEN": "abc-123", "AWS_SECRET_KEY": "abc-123"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a boot file that shows its arguments, variables and directory."""
    (tmp_path / "show.py").write_text(SHOW)
    return tmp_path


def dry_run(folder: Path, command: str, form: str, *words: str, **env: str) -> Done:
    """Return what a dry run printed; Slurm's own answer is tested on a cluster."""
    env = {"PATH": WITHOUT_SLURM, **env}
    done = adapter(command, "--dry-run", "--format", form, *words, cwd=folder, env=env)
    assert (done.status, done.err) == (0, "")
    return done


@pytest.fixture(scope="module", params=[(c, f) for c in COMMANDS for f in FORMS], ids=" ".join)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the output of one dry run, which made nothing."""
    folder = tmp_path_factory.mktemp("dry")
    (folder / "code").mkdir()
    (folder / "code/show.py").touch()
    options = [f"--env={name}={value}" for name, value in SECRETS.items()]
    words = [*request.param, "-N", "2", *options, "code/show.py", "--epochs", "5"]
    out = dry_run(folder, *words, COLUMNS="200").out
    assert sorted(folder.rglob("*")) == [folder / "code", folder / "code/show.py"]
    return out.replace(str(folder), "/here")


class TestEveryForm:
    @pytest.mark.parametrize(
        "text",
        [
            *("/home/ma-user/modelarts/user-job-dir/code/show.py", "/here/code"),
            *("--world_size", "--epochs", "VC_TASK_INDEX", "MASTER_ADDR"),
        ],
    )
    def test_shows_commands_and_variables(self, shown: str, text: str) -> None:
        assert text in shown

    def test_names_secrets_and_masks_their_values(self, shown: str) -> None:
        for name, value in SECRETS.items():
            assert name in shown
            assert value not in shown

    def test_has_no_escape_codes_where_a_program_reads_it(self, shown: str) -> None:
        assert ESCAPE not in shown


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_bytes_that_are_no_text(folder: Path, form: str) -> None:
    strict = {"PYTHONIOENCODING": "utf-8:strict"}  # as in most locales
    assert "show.py" in dry_run(folder, "local", form, "show.py", "\udcff", **strict).out


class TestPlain:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_is_plain(self, folder: Path, command: str) -> None:
        out = dry_run(folder, command, "plain", "-N", "3", "show.py", FORCE_COLOR="1").out
        assert not BOX.search(out)
        assert ESCAPE not in out
        assert [line for line in out.splitlines() if line != line.rstrip()] == []

    @pytest.mark.parametrize("contract", ["modelarts", "env"])
    def test_gives_commands_that_do_the_same_by_hand(self, folder: Path, contract: str) -> None:
        outer = {"RANK": "7", "TORCHELASTIC_RUN_ID": "x"}
        words = ["-N", "2", "--contract", contract, "--env", "A=it's\n$HOME", "show.py", "a b", ""]
        # A shell is outside any view: it has the real paths and the nodes' own addresses.
        planned = dry_run(folder, "local", "json", "--view", "off", *words, **outer).json["plan"]
        rank = planned["nodes"][1]["ranks"][0]
        port = re.findall(r"tcp://127.0.0.10:(\d+)", json.dumps(planned))[0]
        out = dry_run(folder, "local", "plain", "--port", port, *words, **outer).out
        command = out.partition("# node 1  node1  127.0.0.11")[2].partition("\n")[2]

        done = subprocess.run(
            ["sh", "-c", command], env=environment(**outer), capture_output=True, check=True
        )
        argv, variables, cwd = json.loads(done.stdout)
        shown = rank.get("argv") or planned["nodes"][0]["ranks"][0]["argv"]
        assert argv == [word["value"] for word in shown][2:]
        assert cwd == planned["cwd"]["value"]
        settings = [*planned["environment"], *rank["environment"]]
        expected = {item["name"]: item["value"] for item in settings}
        for name in expected.keys() - OWN_NAMES:
            assert variables[name] == expected[name]
        assert "TORCHELASTIC_RUN_ID" not in variables
        assert variables.get("RANK") == expected.get("RANK")

    def test_gives_commands_that_leave_secrets_as_they_are(self, folder: Path) -> None:
        options = [f"--env={name}={value}" for name, value in SECRETS.items()]
        out = dry_run(folder, "local", "plain", *options, "show.py").out
        command = out.rpartition("\n# node 0")[2].partition("\n")[2]
        done = subprocess.run(
            ["sh", "-c", command], env=environment(**SECRETS), capture_output=True, check=True
        )
        variables = json.loads(done.stdout)[1]
        assert {name: variables[name] for name in SECRETS} == SECRETS


class TestJson:
    def document(self, folder: Path, command: str, *words: str) -> Any:
        return dry_run(folder, command, "json", *words, "show.py").json

    def test_has_a_schema_number(self, folder: Path) -> None:
        document = self.document(folder, "sbatch", "-N", "2")
        assert (document["schema"], document["plan"]["schema"]) == (1, 1)
        assert document["plan"]["world_size"] == 2
        assert [len(node["ranks"]) for node in document["plan"]["nodes"]] == [1, 1]

    def test_gives_a_reason_for_every_value(self, folder: Path) -> None:
        document = self.document(folder, "sbatch", "--sbatch", "time=90", "--env", "A=1")
        items = [
            *document["plan"]["environment"],
            document["plan"]["cwd"],
            *document["plan"]["removed"],
        ]
        assert all(item["reason"] for item in [*items, *document["directives"]])
        assert {"name": "time", "value": "01:30:00", "reason": "given by you"} in document[
            "directives"
        ]

    def test_holds_the_very_script_that_would_be_submitted(self, folder: Path) -> None:
        words = ["-N", "2", "--env", "A=1", "show.py"]
        written = adapter("sbatch", "--script", "-", *words, cwd=folder).out
        assert dry_run(folder, "sbatch", "json", *words).json["script"] == written

    def test_names_what_would_be_made(self, folder: Path) -> None:
        job = f"{folder}/slurm-adapter/show"
        code = self.document(folder, "local")["plan"]["cwd"]["value"].rpartition("/")[2]
        on_nodes = [
            f"{job}/modelarts/log/",
            f"{job}/modelarts/user-job-dir/{code}/",
            f"{job}/run/",
        ]
        assert self.document(folder, "local")["files"] == [f"{job}/log/", *on_nodes]
        submitted = [f"{job}/log/", f"{job}/show.sbatch"]
        assert self.document(folder, "sbatch")["files"] == [*submitted, *on_nodes]


class TestNodesThatSlurmHasNotChosen:
    @pytest.mark.parametrize(
        ("view", "master"),
        [("full", "ma-job-<uuid>-worker-0.ma-job-<uuid>"), ("off", "<node 0>")],
    )
    def test_are_placeholders(self, folder: Path, view: str, master: str) -> None:
        words = ["-N", "2", "--view", view, "show.py"]
        plan = dry_run(folder, "sbatch", "json", *words).json["plan"]
        assert plan["known"] is False
        assert [node["name"] for node in plan["nodes"]] == ["<node 0>", "<node 1>"]
        method = plan["nodes"][1]["ranks"][0]["argv"][3]
        assert (method["value"], method["known"]) == (f"tcp://{master}:<port>", False)

    @pytest.mark.parametrize(
        ("view", "master", "known"),
        [("full", "ma-job-<uuid>-worker-0.ma-job-<uuid>", False), ("off", "gpu08", True)],
    )
    def test_may_be_named_for_the_preview(
        self, folder: Path, view: str, master: str, *, known: bool
    ) -> None:
        words = ["-N", "2", "--preview-nodes", "gpu[08-09]", "--port", "29400", "--view", view]
        words += ["show.py"]
        plan = dry_run(folder, "sbatch", "json", *words).json["plan"]
        assert plan["known"] is True
        assert [node["name"] for node in plan["nodes"]] == ["gpu08", "gpu09"]
        method = plan["nodes"][1]["ranks"][0]["argv"][3]
        assert (method["value"], method["known"]) == (f"tcp://{master}:29400", known)


class TestTenThousandNodes:
    @pytest.mark.parametrize("form", ["plain", "rich"])
    @pytest.mark.parametrize("contract", ["modelarts", "torchrun", "env"])
    def test_are_folded(self, folder: Path, form: str, contract: str) -> None:
        words = ["-N", "10000", "--gpus-per-node", "8", "--contract", contract, "show.py"]
        out = dry_run(folder, "sbatch", form, *words, COLUMNS="10000").out
        assert len(out.splitlines()) < 200
        assert "... 9,997 nodes more" in out
        assert "node 9999" in out


class TestRich:
    @pytest.mark.parametrize("columns", [80, 160])
    @pytest.mark.parametrize("command", COMMANDS)
    def test_keeps_to_the_width_of_the_terminal(
        self, folder: Path, command: str, columns: int
    ) -> None:
        long = ["--env", f"LONG={'x' * 300}", "--env", f"CJK={'日本' * 60}", "show.py", "y" * 300]
        out = dry_run(folder, command, "rich", "-N", "6", *long, COLUMNS=str(columns)).out
        assert max(map(cell_len, out.splitlines())) <= columns
        assert BOX.search(out)

    def test_takes_no_text_for_its_own_markup(self, folder: Path) -> None:
        words = ["--env", "A=[red]a[/red]", "show.py", "[bold]b[/bold]"]
        out = dry_run(folder, "local", "rich", *words, COLUMNS="200").out
        assert "[red]a[/red]" in out
        assert "[bold]b[/bold]" in out

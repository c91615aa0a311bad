"""What the README, the pages and the scripts in the project show is what the program does."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from commandline import adapter
from conftest import ADAPTER, PROJECT
from generate import commands, generated
from slurm_adapter.job.option import options_of
from slurm_adapter.job.options import CLASSES
from slurm_adapter.launch.records import End, SlurmRecord, SshHost, SshRecord
from slurm_adapter.launch.store import SshEntry, Store
from slurm_adapter.node.agent import leftovers, run_folder
from slurm_adapter.node.system.identity import identity
from slurm_adapter.remote.code.files import LIMITS
from slurm_adapter.remote.transport.connect_all import OPENINGS
from slurm_adapter.remote.transport.ssh_settings import ALIVE_INTERVAL_S, CONNECT_TIMEOUT_S

README = (PROJECT / "README.md").read_text()
SSH = (PROJECT / "docs" / "ssh.md").read_text()
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^    (slurm-adapter .*?)(?: +# .*)?$", re.MULTILINE)
SHOWN = [(page.name, command) for page in PAGES for command in COMMAND.findall(page.read_text())]
STARTING = ("sbatch", "ssh", "local")
# Options of other programs that pages name.
FOREIGN = {
    *(
        "--add",
        "--export",
        "--global",
        "--gres",
        "--label",
        "--mem",
        "--no-python",
        "--test-only",
        "--write",
    ),
    *("--dependency", "-d", "-j"),
    *("--help", "--version", "-F", "-G", "-I", "-S", "-m", "-r"),
    *("--NAME", "--init_method", "--n", "--rank", "--world_size"),  # of scripts
    *("--gpu-bind", "--gpus-per-task", "--het-group", "--kill-on-bad-exit", "--nv", "--rocm"),
    *("--boot", "--in-container", "--log"),  # of `exec`, which typer does not know
}


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    """`make generated` would change nothing."""
    assert path.read_text() == generated()[path]


def test_pages_show_commands_at_all() -> None:
    assert len(SHOWN) == 40
    assert [page for page, _ in SHOWN].count("README.md") == 12


def is_start(shown: tuple[str, str]) -> bool:
    return shown[1].split()[1] in STARTING


@pytest.mark.parametrize(("page", "command"), [shown for shown in SHOWN if is_start(shown)])
def test_every_start_that_is_shown_is_understood(page: str, command: str, tmp_path: Path) -> None:
    assert page
    (tmp_path / "train.py").write_text("")
    _, action, *words = shlex.split(command)
    words = [word for word in words if word != "--probe"]  # there are no such hosts
    done = adapter(action, "--dry-run", "--format", "plain", *words, cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert re.match(r"train: [24] nodes", done.out)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Give records of two jobs that have ended."""
    store = Store({"XDG_STATE_HOME": str(tmp_path)})
    entry = store.new_ssh()
    hosts = (SshHost("gpu01", None, None, None, "python", 0, 1),)
    head = identity(os.getpid())
    entry.write(SshRecord("train", "run", hosts, 0.0, False, 10.0, 30.0, head))  # noqa: FBT003
    entry.rank_file(0).write_text("epoch 1\n")
    entry.end(End(0, "done"), print)
    job = SlurmRecord(
        job_id="4711",
        cluster="",
        name="train",
        folder="/none",
        log="",
        nodes=2,
        ranks=2,
        node_logs=True,
        submitted_s=0.0,
        state="COMPLETED",
        status=0,
    )
    store.keep(job, print)
    return tmp_path


@pytest.mark.parametrize(("page", "command"), [shown for shown in SHOWN if not is_start(shown)])
def test_every_other_command_that_is_shown_is_understood(
    page: str, command: str, state: Path
) -> None:
    assert page
    _, *words = shlex.split(command)
    words = [re.sub("^ssh-[0-9]+$", "ssh-1", word) for word in words]
    assert adapter(*words, cwd=state, env={"XDG_STATE_HOME": str(state)}).status == 0


def code_of(page: Path) -> str:
    """Return what stands between backticks, a line for each."""
    text = re.sub(r"^    .*$", "", page.read_text(), flags=re.MULTILINE)
    return "\n".join(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_are_named_exist(page: Path) -> None:
    ours = {name for one in commands().values() for param in one.params for name in param.opts}
    named = set(re.findall(r"(?<![\w<>}-])--?[A-Za-z][\w-]*", code_of(page)))
    assert named - ours - FOREIGN == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_that_are_named_exist(page: Path) -> None:
    options = {one.variable for one in options_of(*CLASSES)}
    source = "".join(path.read_text() for path in (PROJECT / "slurm_adapter").rglob("*.py"))
    named = set(re.findall(r"(?:SLURM_ADAPTER|XDG)_\w+", page.read_text())) - options
    for name in named:
        assert name in source, name


def test_files_that_the_page_on_ssh_names_are_the_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/~")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    entry = SshEntry(Store({}).ssh_folder / "ssh-N")
    mark = leftovers._folder()  # noqa: SLF001 - nobody else needs it
    run = Path(run_folder.RunFolder("RUN", 0).path).parents[1]
    for path in (entry.folder, f"{entry.folder}/rank-R.log", run, mark):
        assert f"`{path}`".replace("/~", "~") in SSH


def test_figures_of_the_page_on_ssh_are_the_ones() -> None:
    defaults = {
        param.opts[0]: f"`{param.opts[0]}` ({param.default:g} s)"
        for param in commands()["ssh"].params
        if isinstance(param.default, float)
    }
    assert len(defaults) == 3
    said = " ".join(SSH.split())
    for text in (
        *defaults.values(),
        f"up to {OPENINGS} at a time",
        f"`ConnectTimeout` at most ({CONNECT_TIMEOUT_S:g} s if unset)",
        f"`ServerAliveInterval` or {ALIVE_INTERVAL_S} s",
        f"More than {LIMITS.size >> 30} GiB or {LIMITS.files:,} files",
    ):
        assert text in said


def test_modules_that_are_named_exist() -> None:
    named = re.findall(r"^[\w/]+\.py$", code_of(PROJECT / "docs/development.md"), re.MULTILINE)
    assert len(named) > 40
    for name in named:
        there = PROJECT if name.startswith("tests/") else PROJECT / "slurm_adapter"
        assert list(there.rglob(name)), name


def test_the_job_file_of_the_page_is_understood(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "command-line.md").read_text()
    example = page[page.index("## The job file") :].split("\n## ")[0]
    lines = [line[4:] for line in example.splitlines() if line.startswith("    ") or not line]
    (tmp_path / "gpu-train").mkdir()
    (tmp_path / "gpu-train" / "train.py").write_text("")
    (tmp_path / "job.toml").write_text("\n".join(lines))
    done = subprocess.run(
        [ADAPTER, "sbatch", "--script", "-", "-q", "--job", tmp_path / "job.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "#SBATCH --partition=train\n#SBATCH --time=02:00:00\n#SBATCH --requeue\n" in done.stdout
    over_ssh = adapter("ssh", "--dry-run", "--format", "json", "--job", "job.toml", cwd=tmp_path)
    plan = json.loads(over_ssh.out)["plan"]
    assert [node["name"] for node in plan["nodes"]] == ["gpu01", "gpu02"]


@pytest.mark.parametrize("target", re.findall(r"make (\w+)", README))
def test_every_make_target_of_the_readme_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (PROJECT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, heading = target.partition("#")
        there = page.parent / path
        assert there.exists()
        headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE) if heading else []
        anchors = [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings]
        assert not heading or heading in anchors


@pytest.mark.parametrize("script", sorted((PROJECT / "sbatch").glob("*.sbatch")), ids=str)
def test_the_shown_scripts_are_sound_shell(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    subprocess.run(["shellcheck", "--severity=warning", script], check=True)

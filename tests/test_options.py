"""The table of options: what is declared once is there everywhere it is said to be."""

import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from commandline import adapter
from conftest import PROJECT
from slurm_adapter.cli.options import Given, with_options
from slurm_adapter.cli.request import job_from_options
from slurm_adapter.config.jobfile import EXAMPLES, read_job_file
from slurm_adapter.errors import BadValueError
from slurm_adapter.job import option as kinds
from slurm_adapter.job.option import Option, options_of
from slurm_adapter.job.options import CLASSES, LAUNCHERS, NODE, ComponentOptions, JobOptions
from slurm_adapter.launch.script.sbatch import make_script
from slurm_adapter.node.step.options import read_words, step_job
from slurm_adapter.record import replace

ROWS = [
    row
    for row in (PROJECT / "docs" / "command-line.md").read_text().splitlines()
    if row.startswith("| `")
]
OPTIONS = options_of(*CLASSES)
KEYED = [one for one in OPTIONS if one.key]
OF_JOBS = options_of(JobOptions)

# For each kind the type of its fields, a value as it is typed and as a file has it, and the value.
TEXTS = "tuple[str, ...]"
KINDS: dict[str, tuple[str, str, str, Any]] = {
    kinds.COUNT: ("int", "2000", "2000", 2000),
    kinds.COUNTS: ("tuple[int, ...]", "3,4", "", (3, 4)),
    kinds.SECONDS: ("float", "0.5", "", 0.5),
    kinds.FLAG: ("bool", "", "true", True),
    kinds.TEXT: ("str", "1:3", '"1:3"', "1:3"),
    kinds.PATH_HERE: ("str", "/here", '"/here"', "/here"),
    kinds.PATH_THERE: ("str", "/there", '"/there"', "/there"),
    kinds.PATH_ON_NODE: ("str", "$TMPDIR", '"$TMPDIR"', "$TMPDIR"),
    kinds.PROGRAM: ("str", "name", '"name"', "name"),
    kinds.IMAGE: ("str", "image", '"image"', "image"),
    kinds.LIST: (TEXTS, "text", '["text"]', ("text",)),
    kinds.NAMES: (TEXTS, "", '["NAME"]', ("NAME",)),
    kinds.ARGUMENTS: (TEXTS, "text", '["text", 5]', ("text", "5")),
    kinds.MOUNTS: (TEXTS, "/a:/b", '["/a:/b"]', ("/a:/b",)),
    kinds.CHANNELS: ("Mapping[str, str]", "a=/b", '{a = "/b"}', {"a": "/b"}),
    kinds.VARIABLES: ("Mapping[str, str]", "A=b", '{A = "b"}', {"A": "b"}),
    kinds.SBATCH: ("Mapping[str, str | None]", "qos=high", '{qos = "high"}', {"qos": "high"}),
    kinds.NETWORK: ("Mapping[str, Any]", "", "{gid_index = 3}", {"gid_index": 3}),
    kinds.COMPONENTS: (
        "tuple[ComponentOptions, ...]",
        "nodes=2",
        "[{nodes = 2}]",
        (ComponentOptions(nodes=2),),
    ),
}


def of_kind(option: Option) -> tuple[str, str, str, Any]:
    if option.kind != kinds.CHOICE:
        return KINDS[option.kind]
    choice = option.choices[-1]
    return "str", choice, f'"{choice}"', choice


def by_name(options: list[Option] | tuple[Option, ...]) -> Any:
    return pytest.mark.parametrize("option", options, ids=lambda one: one.long or one.key)


def given(command: str, *words: str) -> Given:
    """Return what a command is told of a job by words and by this process's variables."""
    told: list[Given] = []

    def take(said: Given) -> int:
        told.append(said)
        return 0

    app = typer.Typer()
    settings = {"allow_interspersed_args": False}
    app.command(context_settings=settings)(with_options(command, JobOptions)(take))
    app(args=list(words), standalone_mode=False)
    return told[0]


class TestADeclaration:
    @pytest.mark.parametrize("cls", [*CLASSES, ComponentOptions])
    def test_is_of_the_kind_that_its_type_says(self, cls: type) -> None:
        for option in options_of(cls):
            annotation = inspect.get_annotations(cls)[option.name]
            assert annotation.removesuffix(" | None") == of_kind(option)[0], option.name
            may_be_silent = option.default is None and not option.required
            assert annotation.endswith(" | None") == may_be_silent, option.name

    @by_name(OPTIONS)
    def test_says_what_it_is_for_and_how_it_is_spelled(self, option: Option) -> None:
        assert option.help.endswith(".")
        assert option.metavar or option.kind == kinds.FLAG or not option.flags
        assert bool(option.choices) == (option.kind == kinds.CHOICE)
        assert option.commands or option.node or option.key

    def test_shares_no_name_with_another(self) -> None:
        for command in {*(one for option in OPTIONS for one in (*option.commands, *option.node))}:
            mine = [one for one in OPTIONS if command in (*one.commands, *one.node)]
            flags = [flag for one in mine for flag in one.flags]
            assert len(flags) == len(set(flags)), command
        for names in ([one.key for one in KEYED], [one.variable for one in OPTIONS]):
            told = list(filter(None, names))
            assert len(told) == len(set(told))


class TestThePage:
    """docs/command-line.md has a row for each option, with its key and its variable."""

    @by_name(OPTIONS)
    def test_has_it(self, option: Option) -> None:
        key = option.into or option.key.rpartition(".")[2]
        rows = [row for row in ROWS if option.help in row and (option.long or key) in row]
        assert rows
        assert any(option.variable in row for row in rows)
        assert any(key in row for row in rows)

    def test_has_no_row_for_what_is_gone(self) -> None:
        spelled = [row.split("`")[1] for row in ROWS]
        shown = {flag for one in spelled for flag in re.findall(r"(?<![\w|-])--?\w[\w-]*", one)}
        assert shown == {flag for one in OPTIONS for flag in one.flags}


@pytest.mark.parametrize("command", [*LAUNCHERS, "jobs", "logs", "stop", *NODE])
def test_help_shows_all_of_a_command(command: str, tmp_path: Path) -> None:
    shown = adapter(command, "--help", cwd=tmp_path).out
    for one in OPTIONS:
        if command in (*one.commands, *one.node):
            assert (one.argument if one.argument and command not in NODE else one.long) in shown


@by_name([one for one in OF_JOBS if one.flags and not one.argument and not one.into])
def test_words_say_it(option: Option) -> None:
    _, typed, _, value = of_kind(option)
    words = [option.long] if option.kind == kinds.FLAG else [option.long, typed]
    said = given(option.commands[0], *words)
    assert said == Given(JobOptions(**{option.name: value}), JobOptions())


@by_name([one for one in OF_JOBS if one.variable and not one.into])
def test_its_variable_says_it(option: Option, monkeypatch: pytest.MonkeyPatch) -> None:
    _, typed, _, value = of_kind(option)
    monkeypatch.setenv(option.variable, typed)
    said = given(option.commands[0])
    assert said == Given(JobOptions(), JobOptions(**{option.name: value}))


class TestAJobFile:
    @by_name(KEYED)
    def test_takes_it(self, option: Option, tmp_path: Path) -> None:
        _, _, written, value = of_kind(option)
        found = getattr(read(tmp_path, option, written), option.name)
        assert found in (value, f"{tmp_path}/{value}")

    @by_name(KEYED)
    def test_shows_what_is_right_where_it_is_wrong(self, option: Option, tmp_path: Path) -> None:
        with pytest.raises(BadValueError) as caught:
            read(tmp_path, option, "1979-05-27")
        assert f"{option.key} = 1979-05-27 is not " in caught.value.found
        assert caught.value.remedy == f"Write it as in: {EXAMPLES[option.key.partition('.')[0]]}"

    @pytest.mark.parametrize("example", EXAMPLES.values())
    def test_takes_what_it_shows_as_right(self, example: str, tmp_path: Path) -> None:
        table, _, lines = example.partition(";")[0].partition(" with lines such as ")
        file = tmp_path / "job.toml"
        file.write_text("\n".join([table, *lines.split(" and ")]) if lines else example)
        assert read_job_file(file) != JobOptions()


def read(folder: Path, option: Option, written: str) -> JobOptions:
    table, _, key = option.key.rpartition(".")
    file = folder / "job.toml"
    file.write_text(f"[{table}]\n{key} = {written}\n" if table else f"{key} = {written}\n")
    return read_job_file(file)


@by_name([one for one in OF_JOBS if one.node and one.job_field != "program"])
def test_a_script_tells_it_to_its_ranks(option: Option, tmp_path: Path) -> None:
    """What `exec` makes of the words in a script is the job that the script was made of."""
    for name in ("train.py", "pip-requirements.txt"):
        (tmp_path / name).touch()
    said = JobOptions(boot="train.py", job_folder=str(tmp_path / "job"), gpus_per_node=1)
    words = {"contract": contract_for(option), option.name: of_kind(option)[3]}
    if option.into:
        words = {option.into: {"traffic_class": 106, "subnet": "10.0.0.0/8", "master_suffix": ".x"}}
    if option.name == "code":
        words["code"] = str(tmp_path)
    job = job_from_options(replace(said, **words), str(tmp_path))
    text = make_script(job, ["ADAPTER"], str(tmp_path)).text
    line = text[text.index("ADAPTER exec") :].split(" || ")[0]
    _, _, *rest = shlex.split(line.replace("\\\n", ""))
    options, step, strays = read_words("exec", rest)
    assert strays == []
    again = step_job(options, step, (), str(tmp_path))
    asked = again.gpus_per_node  # of Slurm, for the most part
    assert again == replace(job, env={}, keep=tuple(job.env), gpus_per_node=asked)


class TestTheParserOfExec:
    def test_takes_a_value_in_either_form_and_what_is_no_option_apart(self) -> None:
        words = [
            "--port",
            "2000",
            "x",
            "--name=a=b",
            "--env",
            "A=1",
            "--env=B",
            "--log",
            "--nope=1",
        ]
        options, step, strays = read_words("exec", words)
        assert options == JobOptions(port=2000, name="a=b", env={"A": "1"}, keep=("B",))
        assert step.log
        assert strays == ["x", "--nope=1"]

    def test_takes_the_last_of_several_where_one_is_meant(self) -> None:
        assert read_words("exec", ["--port=1", "--port", "2"])[0].port == 2

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (["--port"], "--port: expected one argument"),
            (["--port", "--name"], "--port: expected one argument"),
            (["--name", "-x"], "--name: expected one argument"),
            (["--log=yes"], "--log: ignored explicit argument 'yes'"),
            (["--gpus-per-node", "4,x"], "--gpus-per-node: 'x' is not a whole number"),
            (["--view", "some"], "invalid choice: 'some' (choose from 'full', 'hosts', 'off')"),
        ],
    )
    def test_refuses_what_is_no_value(self, words: list[str], found: str) -> None:
        with pytest.raises(BadValueError) as caught:
            read_words("exec", words)
        assert caught.value.found == f"argument {found}" or found in caught.value.found
        assert caught.value.remedy == "slurm-adapter exec --help lists the options."

    def test_takes_negative_numbers_and_texts_that_begin_with_a_dash(self) -> None:
        options, step, _ = read_words("exec", ["--gpus-per-node", "-1", "--command", "- a b"])
        assert (step.gpus_by_component, options.command) == ((-1,), "- a b")


def contract_for(option: Option) -> str:
    return {"elastic": "torchrun", "max_restarts": "torchrun", "ranks_by": "env"}.get(
        option.name, "modelarts"
    )

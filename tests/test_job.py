"""What a job refuses before anything starts, and what its records promise."""

from typing import Any

import pytest

from slurm_adapter import AdapterError, Argv, Boot, Command, Job, Node
from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import Channel
from slurm_adapter.record import as_dict, record, replace

JOB = Job(program=Boot("/c/train.py"), code="/c", folder="/f")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("nodes", 0, "a job on 0 nodes"),
        ("nodes", -1, "a job on -1 nodes"),
        ("nodes", 100_001, "a job on 100001 nodes"),
        ("gpus_per_node", -1, "-1 GPUs per node"),
        ("port", 0, "0 cannot be the rendezvous port"),
        ("port", 80, "80 cannot be the rendezvous port"),
        ("port", 1023, "1023 cannot be the rendezvous port"),
        ("port", 65_536, "65536 cannot be the rendezvous port"),
        ("name", "", "'' cannot be a job's name"),
        ("name", " ", "' ' cannot be a job's name"),
        ("name", "a\nb", "line break"),
        ("name", "a\rb", "line break"),
        ("name", "a\0b", "control character"),
        ("name", "..", "cannot be a job's name"),
        ("name", "a/../b", "cannot be a job's name"),
        ("name", "/etc/passwd", "cannot be a job's name"),
        ("name", "--wrap=id", "cannot be a job's name"),
        ("env", {"BAD-NAME": "1"}, "'BAD-NAME' cannot be the name"),
        ("env", {"": "1"}, "'' cannot be the name"),
        ("env", {"1A": "1"}, "'1A' cannot be the name"),
        ("env", {"A B": "1"}, "'A B' cannot be the name"),
        ("env", {"A": "1\0"}, "NUL byte"),
        ("keep", ("BAD-NAME",), "'BAD-NAME' cannot be the name"),
        ("args", ("a\0b",), "NUL byte"),
        ("program", Argv(("echo", "a\0b")), "NUL byte"),
        ("program", Command("echo a\0b"), "NUL byte"),
        ("inputs", (Channel("data_url", "/d\0"),), "NUL byte"),
        ("inputs", (Channel("url", "/a"), Channel("url", "/b")), "url is given twice"),
        ("inputs", (Channel("data url", "/a"),), "'data url' cannot be the name of an input"),
        ("inputs", (Channel("", "/a"),), "'' cannot be the name of an input"),
        ("outputs", (Channel("1st", "/a"),), "'1st' cannot be the name of an input"),
        ("contract", "mpi", "there is no contract 'mpi'"),
        ("accelerator", "tpu", "there is no accelerator 'tpu'"),
        ("channels_as", "file", "there is no way to deliver channels 'file'"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_refuses(field: str, value: Any, said: str) -> None:
    with pytest.raises(BadValueError) as caught:
        replace(JOB, **{field: value})
    assert said in caught.value.found
    assert caught.value.remedy
    assert caught.value.exit_status == 2


def test_refuses_a_channel_given_as_input_and_output() -> None:
    with pytest.raises(AdapterError, match="url is given twice"):
        replace(JOB, inputs=(Channel("url", "/a"),), outputs=(Channel("url", "/b"),))


def test_refuses_channels_as_options_of_a_command() -> None:
    with pytest.raises(AdapterError, match="nothing is appended"):
        replace(JOB, program=Command("run.sh"), channels_as="option")


def test_refuses_a_channel_that_no_variable_can_carry() -> None:
    as_option = (Channel("data-url", "/d"),)
    assert replace(JOB, inputs=as_option).delivery == "option"
    with pytest.raises(BadValueError, match="'data-url' cannot be the name of an environment"):
        replace(JOB, inputs=as_option, channels_as="variable")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodes", 1),
        ("nodes", 100_000),
        ("gpus_per_node", 0),
        ("port", 1024),
        ("port", 65_535),
        ("name", "exp 7: lr=1e-3 (é) 'q' $HOME"),
        ("name", "lab/a.b"),
        ("env", {"A": "", "_b1": "\n'\"$\\"}),
        ("args", ("", "-x", "\n", "é\udcff")),
    ],
)
def test_takes(field: str, value: Any) -> None:
    assert getattr(replace(JOB, **{field: value}), field) == value


@pytest.mark.parametrize(
    ("name", "stem"), [("train", "train"), ("lab/a b", "lab_a b"), ("100%", "100_")]
)
def test_has_a_file_name_made_from_its_name(name: str, stem: str) -> None:
    assert replace(JOB, name=name).file_stem == stem


@pytest.mark.parametrize(
    ("program", "delivery"),
    [(Boot("/c/t.py"), "option"), (Command("t"), "variable"), (Argv(("t",)), "variable")],
)
def test_tells_its_channels_by_its_program(program: Boot | Command | Argv, delivery: str) -> None:
    assert replace(JOB, program=program).delivery == delivery


@record
class Point:
    x: int
    y: int = 0


class TestARecord:
    def test_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError, match="nodes cannot be changed"):
            JOB.nodes = 2  # type: ignore[misc]
        with pytest.raises(AttributeError, match="nodes cannot be taken away"):
            del JOB.nodes
        with pytest.raises(AttributeError, match="colour cannot be changed"):
            JOB.colour = "red"  # type: ignore[attr-defined]
        assert JOB.nodes == 1

    def test_equals_by_class_and_values(self) -> None:
        assert Node("n", gpus=8) == Node("n", None, 8)
        assert Node("n") != Node("m")
        assert Boot("x") != Command("x")
        assert Boot("x") != ("x",)
        assert {Node("n"), Node("n")} == {Node("n")}

    def test_is_replaced_by_a_checked_copy(self) -> None:
        assert replace(JOB, nodes=2, port=29_400) == Job(
            program=Boot("/c/train.py"), code="/c", folder="/f", nodes=2, port=29_400
        )
        assert Job(Boot("/c/train.py"), "/c", "/f") == JOB
        assert JOB.with_nodes(4, 8) == replace(JOB, nodes=4, gpus_per_node=8)
        with pytest.raises(BadValueError, match="port"):
            replace(JOB, port=80)

    @pytest.mark.parametrize(
        ("values", "named", "said"),
        [
            ((), {}, "Point lacks x"),
            ((), {"y": 1}, "Point lacks x"),
            ((1,), {"z": 1}, "Point has no field, or got twice: z"),
            ((1,), {"x": 1}, "Point has no field, or got twice: x"),
            ((1, 2, 3), {}, "Point takes 2 values, got 3"),
        ],
    )
    def test_takes_its_own_fields_only(
        self, values: tuple[int, ...], named: dict[str, int], said: str
    ) -> None:
        with pytest.raises(TypeError, match=said):
            Point(*values, **named)

    def test_replaces_its_own_fields_only(self) -> None:
        with pytest.raises(TypeError, match="Job has no field, or got twice: node"):
            replace(JOB, node=2)

    def test_shows_and_lists_its_fields_in_order(self) -> None:
        assert repr(Point(1)) == "Point(x=1, y=0)"
        assert list(as_dict(Point(y=2, x=1)).items()) == [("x", 1), ("y", 2)]

    def test_is_taken_apart_by_match(self) -> None:
        match Point(1, 2):
            case Point(x, y):
                assert (x, y) == (1, 2)
            case _:
                pytest.fail("did not match")

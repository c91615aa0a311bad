"""The picture below the lines: a row for each node, folded where there are many, for any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from livejob import LOSS, golden, job, names
from slurm_adapter.node.ranks.events import Ended, Lost, Output
from slurm_adapter.show.panel import draw
from slurm_adapter.show.progress import Progress

PER_NODE = 8
SIZES = [(80, 24), (160, 50)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_three_nodes_have_a_row_each(size: tuple[int, int]) -> None:
    with job(3, PER_NODE, size) as it:
        it.screen.state(0, "looking")
        it.wait(3.0)
        it.run(3)
        it.wait_long(250.0)
        it.print(16, b"Traceback (most recent call last):\nRuntimeError: no\tluck\n", is_error=True)
        it.screen.show(Ended(16, 1))
        it.screen.show(Ended(17, 0))
        it.print(
            9,
            "第 5 轮 损失 0.123 训练进行中 训练进行中 训练进行中 训练进行中 训练进行中\n".encode(),
        )
        it.screen.say("rank 16 on gpu-n3 failed first: exit status 1; ending the others")
        it.screen.state(2, "ending")
        it.print(3, LOSS)
        it.wait(2.0)
        golden(f"three-{size[0]}x{size[1]}", it.terminal.rows())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_of_many_nodes_those_are_shown_that_deviate(size: tuple[int, int]) -> None:
    with job(250, PER_NODE, size) as it:
        it.wait(2.0)
        it.run(250)
        it.print(0, LOSS)
        it.screen.state(17, "ending")
        it.screen.show(Lost(77, tuple(range(616, 624)), "it was silent", 4))
        it.print(700, b"CUDA out of memory\n", is_error=True)
        it.screen.show(Ended(700, 137))
        it.wait_long(3600.0)
        golden(f"many-{size[0]}x{size[1]}", it.terminal.rows())


def test_nodes_that_deviate_are_counted_where_there_is_no_room_for_them() -> None:
    with job(100, 1, (80, 16)) as it:
        it.run(100)
        for rank in range(20, 40):
            it.screen.show(Ended(rank, 9))
        it.wait(1.0)
        assert len(it.panel) == 8
        assert it.panel[1].startswith(" gpu-n001 running")
        assert [row.split()[0] for row in it.panel[2:-1]] == [f"gpu-n{n:03}" for n in range(21, 26)]
        assert it.panel[-1] == " … 94 more: 79 running, 15 ending"


@given(
    nodes=st.integers(1, 40),
    deviating=st.sets(st.integers(0, 39), max_size=30),
    columns=st.integers(10, 200),
    rows=st.integers(1, 60),
)
def test_never_takes_more_than_half_of_the_height_nor_more_than_the_width(
    nodes: int, deviating: set[int], columns: int, rows: int
) -> None:
    progress = Progress(names(nodes), 0.0)
    progress.begin([[rank] for rank in range(nodes)])
    for index in deviating & set(range(nodes)):
        progress.take(Output(index, LOSS, is_error=False), 1.0)
        progress.take(Lost(index, (index,), "silent", 4), 1.0)
    drawn = draw(progress, 1e6, (columns, rows), colour=False)
    assert len(drawn) <= rows // 2
    assert all(cell_len(row) <= columns for row in drawn)
    assert len(drawn) > 1 or rows < 4


def test_twenty_columns_are_enough() -> None:
    with job(3, PER_NODE, (20, 24)) as it:
        it.run(3)
        it.print(0, b"a line of more than twenty columns\n")
        it.wait(1.0)
        assert it.terminal.rows() == [
            "[ 0] a line of more",
            "than twenty columns",
            "── 0:02 · 3 nodes… ─",
            " gpu-n1 running",
            " gpu-n2 running",
            " gpu-n3 running",
        ]


@pytest.mark.parametrize("size", [(40, 24), (100, 24), (80, 12), (200, 60), (20, 8)])
def test_a_resize_leaves_one_panel_of_the_new_size(size: tuple[int, int]) -> None:
    with job(3, PER_NODE) as it:
        it.run(3)
        it.print(0, b"before\n")
        it.wait(1.0)
        it.terminal.look()
        it.terminal.resize(*size)
        it.wait(0.5)
        it.print(0, b"after\n")
        it.wait(1.0)
        rows = it.terminal.rows()
        assert rows[:2] == ["[ 0] before", "[ 0] after"]
        assert rows[2].startswith("── 0:0")
        assert len(rows) == 3 + 3
        assert {row[:7] for row in rows[3:]} == {" gpu-n1", " gpu-n2", " gpu-n3"}

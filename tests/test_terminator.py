"""Who is to end gets SIGTERM, after a grace SIGKILL, and that again: a table of moments."""

from signal import SIGKILL, SIGTERM

from slurm_adapter.node.ranks.terminator import Terminator

INFINITE = float("inf")


def test_nothing_is_due_before_it_begins() -> None:
    terminator = Terminator(again_s=1.0)
    assert (terminator.due(1e9), terminator.wait_s(0.0)) == (None, INFINITE)
    assert (terminator.begun, terminator.killed_at_s) == (False, INFINITE)


def test_the_grace_stands_between_the_two_signals() -> None:
    terminator = Terminator(again_s=1.0)
    terminator.begin(100.0, grace_s=10.0)
    assert (terminator.begun, terminator.wait_s(100.0)) == (True, 0.0)
    assert [terminator.due(at) for at in (100.0, 100.0, 109.9)] == [SIGTERM, None, None]
    assert terminator.wait_s(109.0) == 1.0
    assert [terminator.due(at) for at in (110.0, 110.9, 111.0)] == [SIGKILL, None, SIGKILL]
    assert terminator.killed_at_s == 110.0


def test_a_second_beginning_does_not_lengthen_it() -> None:
    terminator = Terminator(again_s=1.0)
    terminator.begin(0.0, grace_s=5.0)
    terminator.begin(4.0, grace_s=5.0)
    assert [terminator.due(at) for at in (4.0, 5.0)] == [SIGTERM, SIGKILL]


def test_without_a_grace_both_are_due() -> None:
    terminator = Terminator(again_s=1.0)
    terminator.begin(3.0, grace_s=0.0)
    assert [terminator.due(3.0) for _ in range(3)] == [SIGTERM, SIGKILL, None]


def test_to_kill_is_not_to_ask_first() -> None:
    terminator = Terminator(again_s=1.0)
    terminator.kill(7.0)
    assert [terminator.due(7.0) for _ in range(2)] == [SIGKILL, None]
    terminator.begin(7.0, grace_s=60.0)  # said to an end that is under way: nothing is put off
    assert terminator.wait_s(7.5) == 0.5


def test_to_kill_ends_the_grace() -> None:
    terminator = Terminator(again_s=1.0)
    terminator.begin(0.0, grace_s=60.0)
    terminator.due(0.0)
    terminator.kill(2.0)
    assert (terminator.due(2.0), terminator.killed_at_s) == (SIGKILL, 2.0)

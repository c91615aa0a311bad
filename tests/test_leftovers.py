"""What sees to it that no test leaves anything behind."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import leftovers


def a_running_child() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"])


def a_child_that_has_ended() -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    return child


def a_forked_one() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return pid


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it forks beside threads
@pytest.mark.parametrize("leave", [a_running_child, a_child_that_has_ended, a_forked_one])
def test_a_child_that_is_left_is_told_and_ended(leave: Callable[[], object]) -> None:
    with (
        pytest.raises(AssertionError, match=r"the test leaves process \d+ \("),
        leftovers.none(set),
    ):
        left = leave()
    assert not isinstance(left, subprocess.Popen) or left.returncode is not None


def test_a_forgotten_one_is_told_once(recwarn: pytest.WarningsRecorder) -> None:
    with (
        pytest.raises(AssertionError, match=r"the test leaves process \d+ \("),
        pytest.warns(ResourceWarning, match="still running"),
        leftovers.none(set),
    ):
        a_running_child()
    assert not recwarn.list


def test_a_child_that_may_stay_is_left_alone() -> None:
    children: list[subprocess.Popen[bytes]] = []
    with leftovers.none(lambda: {child.pid for child in children}):
        children.append(a_running_child())
    (child,) = children
    with child:
        assert child.poll() is None
        child.kill()


def test_a_thread_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "LONG_S", 0.1)
    over = threading.Event()
    with pytest.raises(AssertionError, match="the test leaves thread lazy"), leftovers.none(set):
        threading.Thread(target=over.wait, name="lazy").start()
    over.set()


def test_a_thread_that_is_about_to_end_is_waited_for() -> None:
    with leftovers.none(set):
        threading.Thread(target=lambda: subprocess.run(["true"], check=True)).start()

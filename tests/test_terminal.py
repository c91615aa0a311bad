"""At a terminal output is coloured, unless the user wants none (https://no-color.org)."""

import os
import re
from pathlib import Path

import pytest

from commandline import ADAPTER, environment
from testbed.child import Child


def typed(folder: Path, *words: str, **env: str) -> str:
    """Return what a terminal of 100 columns shows of a command."""
    ours, theirs = os.openpty()
    with Child(
        [ADAPTER, *words],
        cwd=folder,
        env=environment(**{"TERM": "xterm-256color", "COLUMNS": "100", **env}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65_536):
                shown += data
        except OSError:  # the terminal's other end is closed: Linux says EIO
            pass
        finally:
            process.kill()
            os.close(ours)
    return shown.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    return tmp_path


DRY_RUN = ["local", "--dry-run", "-N", "2", "train.py"]


def test_a_dry_run_is_coloured(folder: Path) -> None:
    assert "\x1b[" in typed(folder, *DRY_RUN)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_a_dry_run_is_not_coloured_for_those_who_want_none(
    folder: Path, env: dict[str, str]
) -> None:
    assert "\x1b" not in typed(folder, *DRY_RUN, **env)


@pytest.mark.parametrize("form", ["plain", "json"])
def test_the_other_forms_are_never_coloured(folder: Path, form: str) -> None:
    assert "\x1b" not in typed(folder, *DRY_RUN[:-1], "--format", form, "train.py")


def test_ranks_have_colours(folder: Path) -> None:
    assert typed(folder, "local", "--command", "echo a; exit 0") == "\x1b[36m[0] \x1b[0ma\r\n"


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_ranks_have_none_for_those_who_want_none(folder: Path, env: dict[str, str]) -> None:
    assert typed(folder, "local", "--command", "echo a", **env) == "[0] a\r\n"


def test_help_fits_the_terminal(folder: Path) -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", typed(folder, "local", "--help"))
    assert max(map(len, shown.splitlines())) <= 100
    assert "--gpus-per-node" in shown

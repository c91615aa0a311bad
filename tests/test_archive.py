"""The agent's code: one file that a Python of the right age runs, with nothing installed."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from slurm_adapter.node.protocol import framing
from slurm_adapter.remote.agent_archive import agent_files, interpreter_words
from testbed.child import Child
from testbed.waiting import LONG_S

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
TOO_OLD = ("3.6", "3.9")


@cache
def interpreter(version: str) -> str:
    """Return the path of an interpreter of that version; skip where there is none."""
    by_pyenv = Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python{version}")
    found = [sys.executable] if version == HERE else []
    found += [path for path in (shutil.which(f"python{version}"),) if path]
    for path in (*found, *map(str, by_pyenv)):
        # What stands in the PATH may only be a stand-in for one that is not installed.
        if not subprocess.run([path, "-c", "pass"], check=False, capture_output=True).returncode:
            return path
    pytest.skip(f"there is no Python {version} here")


@contextmanager
def agent(python: str, cache_home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start an agent as a login shell would, and give it what it reads first."""
    process = Child(
        ["sh", "-c", 'exec "$@"', "sh", *interpreter_words(python, "some-run")[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, "XDG_CACHE_HOME": str(cache_home)},
    )
    with process:
        try:
            assert process.stdin
            process.stdin.write(agent_files().first)
            yield process
        finally:
            process.kill()


def greeting(process: "subprocess.Popen[bytes]") -> bytes:
    """Return the word with which it greets; whatever start-up files print stands before it."""
    assert process.stdout
    assert process.stdout.readline() == b"\n"
    return process.stdout.readline().removeprefix(framing.GREETING).strip()


def wanted(version: str) -> tuple[bytes, bytes]:
    """Return what a Python of that version asks for, and what it gets then."""
    same = version == HERE
    return (
        (framing.NEED, agent_files().code) if same else (framing.NEED_SOURCE, agent_files().archive)
    )


def provide(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    """Send the code, whole."""
    assert process.stdin
    rest = memoryview(data)
    while rest:
        rest = rest[process.stdin.write(rest) :]


def end(process: "subprocess.Popen[bytes]") -> tuple[int, bytes]:
    """End its input; return its exit status and what it said on stderr."""
    _, said = process.communicate(timeout=LONG_S)
    return process.returncode, said


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "agent.pyz"
    path.write_bytes(agent_files().archive)
    return path


class TestAsAProgram:
    @pytest.mark.parametrize("version", SUPPORTED)
    def test_is_the_node_side_s_own_command_line(self, archive: Path, version: str) -> None:
        done = subprocess.run(
            [interpreter(version), "-I", "-S", archive, "env", "--contract", "env"],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        assert done.stderr.startswith("slurm-adapter: this process was not started by Slurm")
        assert "srun" in done.stderr

    def test_holds_the_floors_below_the_head_and_no_more(self, archive: Path) -> None:
        with zipfile.ZipFile(archive) as opened:
            rooms = {name.split("/")[1] for name in opened.namelist() if name.count("/") > 1}
            assert opened.testzip() is None
        assert rooms == {"node", "contracts", "cluster", "network", "job"}


class TestMaking:
    PROGRAM = (
        "from hashlib import sha256; from slurm_adapter.remote.agent_archive import *;"
        "print(sha256(agent_files().code).hexdigest(), sha256(agent_files().archive).hexdigest())"
    )

    def digests(self, cache_home: Path) -> list[str]:
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache_home)}
        done = subprocess.run(
            [sys.executable, "-c", self.PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        return done.stdout.split()

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 writes sets in any order")
    def test_same_sources_same_digest(self, tmp_path: Path) -> None:
        first = self.digests(tmp_path / "one")
        assert self.digests(tmp_path / "two") == first  # made anew
        # In a process that has loaded much else.
        files = agent_files().code, agent_files().archive
        assert [hashlib.sha256(file).hexdigest() for file in files] == first
        assert self.digests(tmp_path / "one") == first  # kept from the first time
        assert len(list((tmp_path / "one" / "slurm-adapter").iterdir())) == 1

    def test_needs_no_place_to_keep_it(self) -> None:
        assert len(self.digests(Path("/proc/none"))) == 2


class TestGreeting:
    @pytest.mark.parametrize("version", SUPPORTED)
    def test_asks_for_the_code_once(self, tmp_path: Path, version: str) -> None:
        python = interpreter(version)
        word, data = wanted(version)
        with agent(python, tmp_path) as process:
            assert greeting(process) == word
            provide(process, data)
            assert end(process) == (0, b"")
        (kept,) = (tmp_path / "slurm-adapter").iterdir()
        assert kept.read_bytes() == data
        with agent(python, tmp_path) as process:
            assert greeting(process) == framing.HAVE
            assert end(process) == (0, b"")

    @pytest.mark.parametrize("version", SUPPORTED)
    @pytest.mark.parametrize("broken", [b"", b"something else", None])
    def test_replaces_what_is_broken(
        self, tmp_path: Path, version: str, broken: bytes | None
    ) -> None:
        python = interpreter(version)
        word, data = wanted(version)
        with agent(python, tmp_path) as process:
            greeting(process)
            provide(process, data)
            end(process)
        (kept,) = (tmp_path / "slurm-adapter").iterdir()
        kept.write_bytes(data[:-1] + b"?" if broken is None else broken)
        with agent(python, tmp_path) as process:
            assert greeting(process) == word
            provide(process, data)
            assert end(process) == (0, b"")
        assert kept.read_bytes() == data
        assert [path.name for path in kept.parent.iterdir()] == [kept.name]

    @pytest.mark.parametrize("version", SUPPORTED)
    def test_needs_no_place_to_keep_it(self, version: str) -> None:
        word, data = wanted(version)
        with agent(interpreter(version), Path("/proc/none")) as process:
            assert greeting(process) == word
            provide(process, data)
            assert end(process) == (0, b"")

    def test_refuses_what_did_not_arrive_whole(self, tmp_path: Path) -> None:
        with agent(sys.executable, tmp_path) as process:
            assert greeting(process) == framing.NEED
            provide(process, bytes(len(agent_files().code)))
            assert end(process) == (1, b"the agent's code did not arrive whole\n")
        assert not (tmp_path / "slurm-adapter").exists()

    @pytest.mark.parametrize("version", TOO_OLD)
    def test_an_old_python_says_so(self, tmp_path: Path, version: str) -> None:
        with agent(interpreter(version), tmp_path) as process:
            assert greeting(process).startswith(framing.OLD + b" " + version.encode() + b".")
            process.wait(LONG_S)
            assert process.returncode == 0

    def test_ends_where_nothing_more_comes(self, tmp_path: Path) -> None:
        with agent(sys.executable, tmp_path) as process:
            assert greeting(process) == framing.NEED
            assert end(process)[0] == 1

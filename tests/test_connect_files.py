"""A node's files: the same promises over SFTP and on this machine."""

import io
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loopback import LoopbackSshd, why_no_sshd
from slurm_adapter.cluster.cluster import Node
from slurm_adapter.remote.transport.connect_all import connect_all
from slurm_adapter.remote.transport.here import HereConnection
from slurm_adapter.remote.transport.port import ConnectionLostError, Files, NoAnswerError

pytestmark = pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd())


@pytest.fixture(scope="module")
def sshd() -> Iterator[LoopbackSshd]:
    with LoopbackSshd.start() as server:
        yield server


@pytest.fixture(params=["ssh", "here"])
def files(request: pytest.FixtureRequest, sshd: LoopbackSshd) -> Iterator[Files]:
    if request.param == "here":
        yield HereConnection(Node("here")).files()
        return
    with closing(
        connect_all([Node("127.0.0.1")], lambda one, _: one.files(), config_file=sshd.config)
    ) as connected:
        (session,) = connected.all()
        yield session
        session.close()


# Names with blanks, quotes, a line break, and letters beyond ASCII.
NAMES = ["plain", "with blank", 'it\'s "quoted"', "new\nline", "é漢", "-dash", "a*?[b]"]


class TestPut:
    @pytest.mark.parametrize("name", NAMES)
    def test_arrives_under_its_name(self, files: Files, tmp_path: Path, name: str) -> None:
        assert files.put(io.BytesIO(b"content"), str(tmp_path / name)) == 7
        assert (tmp_path / name).read_bytes() == b"content"

    def test_a_name_that_is_no_text_arrives(self, files: Files, tmp_path: Path) -> None:
        path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
        files.put(io.BytesIO(b"x"), path)
        assert os.listdir(os.fsencode(tmp_path)) == [b"\xff\xfe"]  # noqa: PTH208 - bytes

    def test_arrives_whole(self, files: Files, tmp_path: Path) -> None:
        data = os.urandom(5_000_000)
        assert files.put(io.BytesIO(data), str(tmp_path / "big")) == len(data)
        assert (tmp_path / "big").read_bytes() == data
        assert files.read(str(tmp_path / "big")) == data

    def test_an_empty_file(self, files: Files, tmp_path: Path) -> None:
        assert files.put(io.BytesIO(), str(tmp_path / "empty")) == 0
        assert files.read(str(tmp_path / "empty")) == b""

    def test_gives_the_mode(self, files: Files, tmp_path: Path) -> None:
        files.put(io.BytesIO(b"x"), str(tmp_path / "tool"), 0o700)
        files.put(io.BytesIO(b"x"), str(tmp_path / "secret"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert modes == {"tool": 0o700, "secret": 0o600}

    def test_replaces_what_was_there(self, files: Files, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("a longer text than the new one")
        files.put(io.BytesIO(b"new"), str(tmp_path / "file"))
        assert (tmp_path / "file").read_text() == "new"


class TestFacts:
    def test_of_a_directory(self, files: Files, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("12345")
        os.utime(tmp_path / "file", (1_000_000_000, 1_000_000_000))
        (tmp_path / "file").chmod(0o640)
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to("nowhere")
        found = {facts.name: facts for facts in files.listdir(str(tmp_path))}
        assert sorted(found) == ["file", "folder", "link"]
        assert (found["file"].size, found["file"].modified_s) == (5, 1_000_000_000)
        assert found["file"].mode == stat.S_IFREG | 0o640
        assert stat.S_ISDIR(found["folder"].mode)
        assert stat.S_ISLNK(found["link"].mode)

    def test_of_one_path(self, files: Files, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("nowhere")
        facts = files.stat(str(tmp_path / "link"))
        assert facts.name == "link"
        assert stat.S_ISLNK(facts.mode)

    def test_relative_paths_start_at_home(self, files: Files) -> None:
        assert stat.S_ISDIR(files.stat(".").mode)
        assert files.stat(".").modified_s == int(Path.home().stat().st_mtime)


class TestChanges:
    def test_are_made(self, files: Files, tmp_path: Path) -> None:
        at = tmp_path.joinpath
        files.mkdir(str(at("d")), 0o750)
        assert at("d").stat().st_mode & 0o777 == 0o750
        files.put(io.BytesIO(b"1"), str(at("d", "a")))
        files.put(io.BytesIO(b"2"), str(at("d", "b")))
        files.rename(str(at("d", "a")), str(at("d", "b")))
        assert at("d", "b").read_text() == "1"
        files.symlink("./b", str(at("d", "l")))
        assert os.readlink(at("d", "l")) == "./b"  # noqa: PTH115 - a Path drops the ./
        assert files.readlink(str(at("d", "l"))) == "./b"
        files.chmod(str(at("d", "b")), 0o400)
        files.utime(str(at("d", "b")), 1_234_567_890)
        facts = files.stat(str(at("d", "b")))
        assert (facts.mode & 0o777, facts.modified_s) == (0o400, 1_234_567_890)
        files.remove(str(at("d", "l")))
        files.remove(str(at("d", "b")))
        files.rmdir(str(at("d")))
        assert list(tmp_path.iterdir()) == []


class TestErrors:
    def test_of_a_missing_path_name_it(self, files: Files, tmp_path: Path) -> None:
        missing = str(tmp_path / "none" / "file")
        for action in (
            lambda: files.stat(missing),
            lambda: files.read(missing),
            lambda: files.listdir(missing),
            lambda: files.put(io.BytesIO(b"x"), missing),
            lambda: files.mkdir(missing),
            lambda: files.remove(missing),
            lambda: files.readlink(missing),
        ):
            with pytest.raises(FileNotFoundError) as caught:
                action()
            assert caught.value.filename is not None
            assert missing in str(caught.value)

    def test_of_what_is_there_already(self, files: Files, tmp_path: Path) -> None:
        with pytest.raises(OSError, match=str(tmp_path)):
            files.mkdir(str(tmp_path))

    def test_of_a_directory_that_is_not_empty(self, files: Files, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "x").touch()
        with pytest.raises(OSError, match="d"):
            files.rmdir(str(tmp_path / "d"))

    def test_of_a_lost_connection(self, sshd: LoopbackSshd) -> None:
        with closing(
            connect_all([Node("127.0.0.1")], lambda one, _: one, config_file=sshd.config)
        ) as connected:
            (connection,) = connected.all()
            session = connection.files()
            with pytest.raises(ConnectionLostError):
                connection.run("kill -9 $PPID; cat")
            with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1"):
                session.stat("/")
            session.close()

    def test_of_a_server_without_sftp(self) -> None:
        with (
            LoopbackSshd.start(Subsystem="") as server,
            closing(
                connect_all([Node("127.0.0.1")], lambda one, _: one, config_file=server.config)
            ) as connected,
        ):
            (connection,) = connected.all()
            with pytest.raises(NoAnswerError, match="SFTP"):
                connection.files()
            assert connection.run("echo on").output == b"on\n"

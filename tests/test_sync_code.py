"""What belongs to the code of a job: ignore files, links, and what is too much."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_adapter.errors import BadValueError, report
from slurm_adapter.node.agent.code_copy import MARKER
from slurm_adapter.remote.code import find_code
from slurm_adapter.remote.code.files import Code, Limits, amount


def make(folder: Path, *paths: str, **texts: str) -> Path:
    """Make files that hold their own names; `texts` are ignore files."""
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        own = {"ours": ".slurm-adapter-ignore", "git": ".gitignore"}[name]
        (folder / own).write_text(text)
    return folder


def found(code: Code) -> set[str]:
    """Return paths of files and links, ignore files left aside."""
    names = {entry.path for entry in code.entries if entry.kind != "folder"}
    return {name for name in names if not name.endswith(("-ignore", ".gitignore"))}


def test_a_file_is_held_by_its_name_or_through_links(tmp_path: Path) -> None:
    make(tmp_path, "real/train.py", "real/out.py", "else.py", git="out.py\n/hidden\n")
    for name, target in {
        "boot.py": "real/train.py",
        "also": "real",
        "away.py": "/nowhere/train.py",
        "lost.py": "real/out.py",
        "hidden": "real",
    }.items():
        (tmp_path / name).symlink_to(target)
    code = find_code(str(tmp_path))
    for path in ("real/train.py", "boot.py", "also/train.py", "away.py"):
        assert code.holds(path), path
    for path in ("real/out.py", "also/out.py", "lost.py", "hidden/train.py", "none.py", "real"):
        assert not code.holds(path), path


class TestIgnoreFiles:
    def test_without_any_everything_is_code(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py", "a/b/c.txt", ".hidden", ".venv/x")
        (tmp_path / "empty").mkdir()
        code = find_code(str(tmp_path))
        assert found(code) == {"train.py", "a/b/c.txt", ".hidden", ".venv/x"}
        assert "empty" in {entry.path for entry in code.entries}

    def test_the_nearest_gitignore_decides(self, tmp_path: Path) -> None:
        make(
            tmp_path, "a.txt", "sub/a.txt", "sub/b.log", "data/x", "sub/data/y", git="*.txt\n/data/"
        )
        make(tmp_path / "sub", git="!*.txt\n*.log\n")
        assert found(find_code(str(tmp_path))) == {"sub/a.txt", "sub/data/y"}

    def test_ours_win_both_ways(self, tmp_path: Path) -> None:
        make(tmp_path, "w.pt", "keep.pt", "notes.md", git="*.pt\n", ours="!keep.pt\nnotes.md\n")
        make(tmp_path, "conf/generated.py", "conf/x.py")
        make(tmp_path / "conf", git="generated.py\n")
        make(tmp_path / "conf", ours="!generated.py\nx.py\n")
        assert found(find_code(str(tmp_path))) == {"keep.pt", "conf/generated.py"}

    def test_what_ours_do_not_mention_is_left_to_git(self, tmp_path: Path) -> None:
        make(tmp_path, "build/a.so", "build/b.py", "x.so", git="build/\n*.so\n", ours="!build/\n")
        assert found(find_code(str(tmp_path))) == {"build/b.py"}
        make(tmp_path, ours="!build/\n!build/**\n")
        assert found(find_code(str(tmp_path))) == {"build/a.so", "build/b.py"}

    def test_git_caches_and_the_jobs_own_folder_are_never_code(self, tmp_path: Path) -> None:
        make(tmp_path, "t.py", ".git/config", "a/__pycache__/t.pyc", "a/.git", ours="!.git\n")
        make(
            tmp_path, "slurm-adapter/job/log/x", "slurm-adapter/other/y", f"copy/{MARKER}", "copy/z"
        )
        code = find_code(str(tmp_path), [f"{tmp_path}/slurm-adapter/job", "/nowhere"])
        assert found(code) == {"t.py", "slurm-adapter/other/y"}

    def test_a_repository_above_has_a_say_and_nothing_above_that(self, tmp_path: Path) -> None:
        make(tmp_path, git="*.py\n")
        make(tmp_path / "repo", git="*.ckpt\n/train/runs/\nruns2\n")
        (tmp_path / "repo/.git").mkdir()
        code = make(tmp_path / "repo/train", "t.py", "a.ckpt", "runs/x", "sub/runs/y", "runs2/z")
        assert found(find_code(str(code))) == {"t.py", "sub/runs/y"}

    def test_a_code_directory_that_the_repository_leaves_out_is_code_all_the_same(
        self, tmp_path: Path
    ) -> None:
        make(tmp_path, "tries/one/t.py", "tries/one/x.log", ".git/config", git="tries/\n*.log\n")
        make(tmp_path / "tries/one", git="*.tmp\n")
        make(tmp_path / "tries/one", "x.tmp")
        assert found(find_code(f"{tmp_path}/tries/one")) == {"t.py", "x.log"}

    def test_a_repository_within_has_only_its_own_say(self, tmp_path: Path) -> None:
        make(tmp_path, "a.bin", "module/b.bin", "module/c.o", git="*.bin\n")
        make(tmp_path / "module", ".git", git="*.o\n")
        assert found(find_code(str(tmp_path))) == {"module/b.bin"}

    def test_any_name_and_any_text(self, tmp_path: Path) -> None:
        names = [b"\xff\xfe.py", b"a\nb.log", b"x.log\n", b"*", b"[a", "名.py".encode()]
        for name in names:
            Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
        (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbf*.log\n[\n\\*\n\xff\xfe.py\n#c\n")
        assert found(find_code(str(tmp_path))) == {"x.log\n", "[a", "名.py"}

    names = st.sampled_from(["a", "b", "ab", "c.x", "d.x"])
    trees = st.lists(st.lists(names, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8)
    parts = st.sampled_from(["a", "b", "*", "**", "?", "*.x", "[ab]", "ab", "c.*"])
    patterns = st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "!"]),
        st.sampled_from(["", "/"]),
        st.lists(parts, min_size=1, max_size=3).map("/".join),
        st.sampled_from(["", "/"]),
    )
    ignores = st.lists(patterns, max_size=4)

    @settings(max_examples=40)
    @given(trees, ignores, ignores)
    def test_as_git_itself_sees_it(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        tree: list[str],
        top: list[str],
        inner: list[str],
    ) -> None:
        folder = tmp_path_factory.mktemp("tree")
        subprocess.run(["git", "init", "-q", folder], check=True)
        for path in tree:
            file = folder / path
            if not any(one.is_file() for one in (file, *file.parents)) and not file.is_dir():
                make(folder, path)
        make(folder, git="\n".join(top))
        if (folder / "a").is_dir():
            make(folder / "a", git="\n".join(inner))
        words = ["git", "-C", folder, "ls-files", "-z", "-c", "-o", "--exclude-standard"]
        listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        expected = {path for path in listed.split("\0") if path and ".gitignore" not in path}
        assert found(find_code(str(folder))) == expected


class TestLinks:
    @pytest.fixture
    def code(self, tmp_path: Path) -> Path:
        make(tmp_path, "outside/lib/util.py", "outside/one.py")
        return make(tmp_path / "code", "train.py", "pkg/mod.py")

    def entries(self, code: Path) -> dict[str, str]:
        """Return what becomes of paths: the target of a link, else the kind."""
        return {entry.path: entry.target or entry.kind for entry in find_code(str(code)).entries}

    def test_inside_they_stay_links(self, code: Path) -> None:
        (code / "pkg/up").symlink_to("../train.py")
        (code / "latest").symlink_to("./pkg")
        (code / "dangling").symlink_to("not-yet")
        seen = self.entries(code)
        assert (seen["pkg/up"], seen["latest"]) == ("../train.py", "./pkg")
        assert seen["dangling"] == "not-yet"
        assert "latest/mod.py" not in seen

    def test_an_absolute_one_that_leads_inside_becomes_relative(self, code: Path) -> None:
        (code / "pkg/up").symlink_to(code / "train.py")
        assert self.entries(code)["pkg/up"] == "../train.py"

    def test_a_relative_one_that_leads_out_is_followed(self, code: Path) -> None:
        (code / "lib").symlink_to("../outside/lib")
        (code / "one.py").symlink_to("../outside/one.py")
        make(code, git="lib/extra.py\n")
        make(code.parent / "outside/lib", "extra.py", "deep/x.py")
        (code.parent / "outside/lib/deep/same.py").symlink_to("../util.py")
        (code.parent / "outside/lib/home.py").symlink_to("../../code/train.py")
        seen = self.entries(code)
        assert (seen["lib"], seen["lib/util.py"], seen["one.py"]) == ("folder", "file", "file")
        assert (seen["lib/deep/same.py"], seen["lib/home.py"]) == ("../util.py", "../train.py")
        assert "lib/extra.py" not in seen

    def test_an_absolute_one_that_leads_out_stays(self, code: Path) -> None:
        (code / "data").symlink_to(code.parent / "outside")
        assert self.entries(code)["data"] == str(code.parent / "outside")

    def test_circles_end(self, code: Path) -> None:
        (code / "above").symlink_to("..")
        (code / "lib").symlink_to("../outside/lib")
        (code.parent / "outside/lib/again").symlink_to("../../outside/lib")
        (code.parent / "outside/lib/self").symlink_to("self")
        code_found = find_code(str(code))
        assert {"above", "lib/again"} <= {one.path for one in code_found.entries if one.target}
        assert any(text.startswith("above leads to a directory") for text in code_found.warnings)

    def test_one_that_leads_out_and_nowhere_is_told(self, code: Path) -> None:
        (code / "lib").symlink_to("../gone")
        assert find_code(str(code)).warnings == ("lib leads nowhere: ../gone",)


class TestRefusals:
    def test_what_is_no_file_is_told_and_left_out(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "socket"))
            code = find_code(str(tmp_path))
        assert code.entries == ()
        assert sorted(code.warnings) == [
            f"{name} is neither file nor directory: not copied" for name in ("pipe", "socket")
        ]

    def test_too_many_bytes_name_the_biggest_directories(self, tmp_path: Path) -> None:
        make(tmp_path, "train.py", "small/x")
        for number in range(4):
            file = make(tmp_path, f"data/set{number % 2}/deep/{number}.bin")
            (file / f"data/set{number % 2}/deep/{number}.bin").write_bytes(bytes(1 << 20))
        with pytest.raises(BadValueError) as caught:
            find_code(str(tmp_path), limits=Limits(size=3 << 20))
        first, second = report(caught.value).splitlines()
        assert f"the code directory {tmp_path} holds more than is code: " in first
        assert "MiB and more, most of it in data/set" in first
        assert second.strip().startswith("Leave out what is no code: a line such as /data/set")
        assert second.endswith(f"/ in {tmp_path}/.slurm-adapter-ignore")

    def test_too_many_files_as_well(self, tmp_path: Path) -> None:
        make(tmp_path, *(f"cache/{number}" for number in range(20)), "t.py")
        with pytest.raises(BadValueError, match=r"most of it in cache/ \(\d+ files\)"):
            find_code(str(tmp_path), limits=Limits(files=10))
        make(tmp_path, ours="/cache/\n")
        assert found(find_code(str(tmp_path), limits=Limits(files=10))) == {"t.py"}

    def test_what_cannot_be_read_is_an_error_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make(tmp_path, "open.py", "closed.py", "shut/x")
        closed = {f"{tmp_path}/closed.py", f"{tmp_path}/shut"}  # root could read anything
        monkeypatch.setattr(os, "access", lambda path, _: path not in closed)
        with pytest.raises(BadValueError, match=r"cannot be read: closed\.py, shut\n"):
            find_code(str(tmp_path))

    def test_a_copy_is_no_code_directory(self, tmp_path: Path) -> None:
        make(tmp_path, MARKER)
        with pytest.raises(BadValueError, match="is itself a copy that --sync made"):
            find_code(str(tmp_path))

    def test_one_that_is_gone(self, tmp_path: Path) -> None:
        with pytest.raises(BadValueError, match="No such file or directory"):
            find_code(f"{tmp_path}/gone")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB")],
)
def test_amounts(size: int, text: str) -> None:
    assert amount(size) == text

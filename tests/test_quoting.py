"""Words, variables and directives survive the real programs that read them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_adapter.errors import BadValueError
from slurm_adapter.quoting import (
    directive,
    export_line,
    shell_word,
    shell_words,
    unset_line,
)
from slurm_adapter.setting import check_variable_name, is_variable_name
from testbed import SlurmCluster

HOSTILE = [
    *("", " ", "  a  b ", "\t", "\n", "a\nb\n", "\r\n", "'", "''", '"', "'\\''"),
    *("\\", "\\\\", "\\n", "$HOME", "${HOME}", "$(id)", "`id`", "$$", "$'a'", "*", "?"),
    *("[a-z]", "{a,b}", "~", "~root", ":~", "a:~b", "!", "!!", "!x", "a!b", "#", "a#b"),
    *("&", ";", "|", "<", ">", "(", ")", "%1", "^", "=", "=ls", "a=b", "A=~", "A=a b"),
    *("--x=~/y", "--x=$HOME a", "--x='", "--x=", "-", "--", "-n", "-e", "@(a)", "%", "+"),
    *("é", "日本語", "\u00a0", "\u2028", "\x01", "\x7f", "\x1b[0m", "x" * 5000),
    *("\udcff", "\udc81\udc88", "a\udc80 b"),
]
SHELLS = {
    "sh": ["/bin/sh"],
    "bash": ["bash", "--norc"],
    "zsh": ["zsh", "-f"],
}
CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.sampled_from(
    [*" \n\t'\"\\$`*?[]{}()!#&;|<>~=-%^", "\udc80", "\udc81", "\udcff"]
)
WORDS = st.lists(st.sampled_from(HOSTILE) | st.text(CHARACTERS, max_size=12), min_size=1)


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    """Give a shell that reads its script from stdin; skipped where it is not installed."""
    found: list[str] = SHELLS[request.param]
    if not shutil.which(found[0]):
        pytest.skip(f"{request.param} is not installed")
    return found


def run(shell: list[str], script: str) -> list[str]:
    """Return what a script prints, split at NUL bytes."""
    done = subprocess.run(
        shell, input=os.fsencode(script), capture_output=True, check=True, env={"PATH": os.defpath}
    )
    assert done.stderr == b""
    return os.fsdecode(done.stdout).split("\0")[:-1]


class TestWords:
    @settings(max_examples=60)
    @given(words=WORDS)
    def test_arrive_byte_for_byte(self, shell: list[str], words: list[str]) -> None:
        assert run(shell, "printf '%s\\0' " + shell_words(words)) == words

    def test_arrive_when_all_hostile_ones_are_together(self, shell: list[str]) -> None:
        assert run(shell, "printf '%s\\0' " + shell_words(HOSTILE)) == HOSTILE

    @pytest.mark.parametrize(
        ("word", "text"),
        [
            ("train.py", "train.py"),
            ("/a/b-c_d:1,2+3@4%5", "/a/b-c_d:1,2+3@4%5"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("a=b", "a=b"),
            ("LR=a b", "LR='a b'"),
            ("=ls", "'=ls'"),
            ("1=ls", "'1=ls'"),
            ("--lr=1e-3", "--lr=1e-3"),
            ("--name=a b", "--name='a b'"),
            ("--name=", "--name="),
            ("--a b=c", "'--a b=c'"),
            ("é", "'é'"),
        ],
    )
    def test_stay_readable(self, word: str, text: str) -> None:
        assert shell_word(word) == text

    @pytest.mark.parametrize("name", ["A=1", "a b", "$x", "!", "~x", "=ls", "it's", "é\udcff"])
    def test_name_the_program(self, shell: list[str], name: str, tmp_path: Path) -> None:
        program = tmp_path / name
        program.write_text("#!/bin/sh\nprintf '%s\\0' ran \"$@\"\n")
        program.chmod(0o755)
        assert run(shell, f"PATH={tmp_path}\n{shell_words([name, 'B=2'])}") == ["ran", "B=2"]

    def test_may_be_none(self) -> None:
        assert shell_words([]) == ""

    @pytest.mark.parametrize("words", [["\0"], ["echo", "a\0b"], ["echo", "--x=\0"]])
    def test_hold_no_nul(self, words: list[str]) -> None:
        with pytest.raises(BadValueError, match="NUL byte"):
            shell_words(words)


class TestExports:
    @settings(max_examples=40)
    @given(values=WORDS)
    def test_arrive_byte_for_byte(self, shell: list[str], values: list[str]) -> None:
        names = [f"V{index}" for index in range(len(values))]
        script = "\n".join(map(export_line, names, values))
        shown = run(shell, f"{script}\nexec env -0")
        ours = [entry for entry in shown if re.match(r"V[0-9]+=", entry)]
        assert sorted(ours) == sorted(f"{n}={v}" for n, v in zip(names, values, strict=True))

    def test_are_undone(self, shell: list[str]) -> None:
        script = f"{export_line('A', '1')}\n{unset_line(['A', 'NEVER_SET'])}\n"
        assert run(shell, script + "printf '%s\\0' \"${A-gone}\"") == ["gone"]

    @pytest.mark.parametrize("name", ["A", "_", "a1", "_1", "PATH", "MA_VJ_NAME", "data_url"])
    def test_have_these_names(self, name: str) -> None:
        assert is_variable_name(name)
        assert check_variable_name(name) == name

    @pytest.mark.parametrize(
        "name", ["", "1", "1a", "BAD-NAME", "a b", "a=b", "a\n", "é", "a.b", "A[0]", "\u0661", "$A"]
    )
    def test_have_no_other_names(self, name: str) -> None:
        assert not is_variable_name(name)
        with pytest.raises(BadValueError, match="cannot be the name of an environment variable"):
            export_line(name, "1")
        with pytest.raises(BadValueError, match="cannot be the name of an environment variable"):
            unset_line(["A", name])


class TestDirectives:
    @pytest.mark.parametrize(
        ("option", "value", "line"),
        [
            ("exclusive", None, "#SBATCH --exclusive"),
            ("nodes", "2", "#SBATCH --nodes=2"),
            ("gres", "gpu:v100:4", "#SBATCH --gres=gpu:v100:4"),
            ("output", "/r/log/%x-%j.out", "#SBATCH --output=/r/log/%x-%j.out"),
            ("constraint", "[a|b]&c", "#SBATCH --constraint=[a|b]&c"),
            ("nodelist", "n[01-04]", "#SBATCH --nodelist=n[01-04]"),
            ("job-name", "my job", '#SBATCH --job-name="my job"'),
            ("comment", "", '#SBATCH --comment=""'),
            ("comment", 'say "hi"', r'#SBATCH --comment="say \"hi\""'),
            ("comment", "it's", '#SBATCH --comment="it\'s"'),
            ("comment", "a\\b", r'#SBATCH --comment="a\\b"'),
            ("comment", "a # b", '#SBATCH --comment="a # b"'),
            ("comment", "é", '#SBATCH --comment="é"'),
        ],
    )
    def test_are_lines(self, option: str, value: str | None, line: str) -> None:
        assert directive(option, value) == line

    @pytest.mark.parametrize("value", ["a\nb", "\n", "a\n#SBATCH --wrap=id", "a\rb", "a\0", "\x7f"])
    def test_hold_no_line_break(self, value: str) -> None:
        with pytest.raises(BadValueError, match="the value of comment holds a line break"):
            directive("comment", value)

    def test_sb_01_are_read_by_sbatch_as_they_were_meant(self, slurm: SlurmCluster) -> None:
        meant = [
            *("plain", "my job", "a  b ", " a", "it's", 'say "hi"', "a\\b", "\\", '\\"', "$HOME"),
            *(
                "a # b",
                "#",
                "a;b",
                "`id`",
                "*",
                "é 日本語",
                "'",
                '"',
                "a=b",
                "[x]~^&|!",
                "-n",
                "%j",
            ),
        ]
        ids = []
        for comment in meant:
            slurm.write("held.sh", f"#!/bin/sh\n{directive('comment', comment)}\nexit 0\n")
            done = slurm.run(["sbatch", "--parsable", "--hold", "held.sh"])
            ids.append(done.stdout.strip())
        show = ["squeue", "--noheader", "--jobs", ",".join(ids), "--format", "%i %k|"]
        shown = dict(line.split(" ", 1) for line in slurm.run(show).stdout.splitlines())
        slurm.run(["scancel", *ids])
        assert [shown[job] for job in ids] == [f"{comment}|" for comment in meant]

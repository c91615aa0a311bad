"""The one place where words become text for a shell or a directive.

Everything else keeps argv and environment as data.
"""

from __future__ import annotations

from slurm_adapter.errors import BadValueError
from slurm_adapter.setting import (
    NAME_CHARACTERS,
    check_one_line,
    check_variable_name,
    is_variable_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN_WORD = NAME_CHARACTERS | frozenset("%+,-./:@")
_PLAIN_DIRECTIVE = NAME_CHARACTERS | frozenset("%+,-./:=@[]*^~&|!")


def shell_words(words: Iterable[str]) -> str:
    """Return words as one line that `sh`, `bash` and `zsh` split into exactly these words.

    Newlines, non-ASCII characters and undecodable bytes (as surrogates) are kept.
    """
    words = [_without_nul(word) for word in words]
    # A first word NAME=value must not become an assignment.
    first = _quote if words and not words[0].startswith("--") else shell_word
    return " ".join([*map(first, words[:1]), *map(shell_word, words[1:])])


def shell_word(word: str) -> str:
    """Return one word quoted for a shell; `--name=` and `NAME=` stay readable outside quotes."""
    _without_nul(word)
    name, equals, value = word.partition("=")
    if equals and is_variable_name(name.removeprefix("--").replace("-", "_")):
        return f"{name}={_quote(value) if value else ''}"
    return _quote(word)


def _without_nul(word: str) -> str:
    if "\0" in word:
        raise BadValueError(
            f"{word!r} holds a NUL byte, which no argument can", "Take it out of the value."
        )
    return word


def _quote(text: str) -> str:
    # Fewer characters stay bare than in shlex: zsh expands a leading = (=ls is /bin/ls).
    if text and _PLAIN_WORD.issuperset(text):
        return text
    quoted = "'" + text.replace("'", "'\\''") + "'"
    # sbatch refuses a script with DOS line breaks, wherever they stand.
    return quoted.replace("\r", "'\"$(printf '\\r')\"'")


def export_line(name: str, value: str) -> str:
    """Return `export NAME=value` for a shell."""
    check_variable_name(name)
    assignment = f"{name}={_quote(value)}"
    # A command substitution inside `export` would hide its own status (shellcheck SC2155).
    return f"{assignment}\nexport {name}" if "\r" in value else f"export {assignment}"


def copy_line(name: str, source: str) -> str:
    """Return `export NAME="$SOURCE"`: one variable's value under another's name, too."""
    return f'export {check_variable_name(name)}="${check_variable_name(source)}"'


def unset_line(names: Iterable[str]) -> str:
    """Return `unset A B C`, which no shell minds where a name is not set."""
    return "unset " + " ".join(check_variable_name(name) for name in names)


def directive(option: str, value: str | None = None) -> str:
    """Return one `#SBATCH` line; a value with blanks or quotes arrives unchanged (SB-01).

    sbatch ends a directive's word at white space unless it stands in double quotes, in which
    a backslash takes the next character as it is. A line break cannot be carried at all.
    """
    if value is None:
        return f"#SBATCH --{option}"
    check_one_line(f"the value of {option}", value)
    if not value or not _PLAIN_DIRECTIVE.issuperset(value):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        value = f'"{escaped}"'
    return f"#SBATCH --{option}={value}"

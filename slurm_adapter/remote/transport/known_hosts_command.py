"""KnownHostsCommand: a program of the user's that prints known_hosts lines, run as ssh runs it."""

from __future__ import annotations

import os
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slurm_adapter.remote.transport.connect_error import ConnectError
from slurm_adapter.remote.transport.known_hosts import KnownHosts, fingerprint
from slurm_adapter.remote.transport.tokens import expand, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_adapter.remote.transport.known_hosts import KnownKey
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

Why = Literal["ORDER", "HOSTNAME", "ADDRESS"]
BY_COMMAND = "KnownHostsCommand-"
"""What its lines are said to stand in, with what it was asked for."""
_LIMIT_S = 30.0
_BLANKS = " \t"


def keys_by_command(
    settings: SshSettings,
    why: Why,
    name: str,
    shown: tuple[str, bytes] | None,
    say: Callable[[str], None],
) -> tuple[KnownKey, ...]:
    """Return the keys that the command knows under a name; none without a command.

    Args:
        settings: of the host.
        why: what it is asked for, as `%I` has it.
        name: what its lines are searched for.
        shown: type and bytes of the key that the host has shown.
        say: gets why it cannot be run: ssh, too, goes on without it then.

    Raises:
        ConnectError: it failed.
        BadValueError: it has a token or variable that does not exist.
    """
    command = settings.known_hosts_command
    if command is None:
        return ()
    words = split_words(command)
    problem = _problem(words)
    if words is None or problem:
        say(f"KnownHostsCommand {command} is left out: {problem}")
        return ()
    known = {
        **_own_tokens(settings),
        **_key_tokens(shown, settings.fingerprint_hash),
        "H": name,
        "I": why,
    }
    words = [words[0], *(expand(word, known, os.environ) for word in words[1:])]
    output = _output(words, command)
    return KnownHosts.of_text(output, Path(f"{BY_COMMAND}{why}")).keys(name)


def split_words(text: str) -> list[str] | None:
    """Return a command's words as OpenSSH splits it; None where a quote has no end.

    Not as a shell does: a backslash is one unless it stands before a quote, another backslash,
    or a blank outside of quotes.
    """
    words: list[str] = []
    word: str | None = None
    quote = ""
    letters = iter(enumerate(text))
    for place, letter in letters:
        following = text[place + 1 : place + 2]
        if not quote and letter in _BLANKS:
            words += [] if word is None else [word]
            word = None
            continue
        word = word or ""
        if letter == "\\" and (following in ("'", '"', "\\") or (following == " " and not quote)):
            word += next(letters)[1]
        elif letter == quote:
            quote = ""
        elif letter in "'\"" and not quote:
            quote = letter
        else:
            word += letter
    if quote:
        return None
    return words if word is None else [*words, word]


def _problem(words: list[str] | None) -> str:
    """Return why it cannot be run, empty where it can."""
    if words is None:
        return "a quote has no end"
    if not words or not words[0].startswith("/"):
        return "it is not the whole path of a program"
    return "" if os.path.exists(words[0]) else "there is no such program"


def _output(words: list[str], command: str) -> bytes:
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_LIMIT_S
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _failed(command, why or "") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise _failed(command, said[-500:] or f"exit status {done.returncode}")
    return done.stdout


def _failed(command: str, why: str) -> ConnectError:
    return ConnectError(
        f"KnownHostsCommand {command} failed: {why}",
        "ssh refuses every host then. Run it by hand, or take it out of the ssh config.",
    )


def _own_tokens(settings: SshSettings) -> dict[str, str]:
    return tokens(
        settings.name, settings.hostname, settings.port, settings.user, settings.host_key_alias
    )


def _key_tokens(shown: tuple[str, bytes] | None, fingerprint_hash: str) -> dict[str, str]:
    if shown is None:
        return {"t": "NONE", "f": "NONE", "K": "NONE"}
    kind, blob = shown
    return {"t": kind, "f": fingerprint(blob, fingerprint_hash), "K": b64encode(blob).decode()}

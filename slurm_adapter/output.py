"""Writing to stdout and stderr: the one way of our own words to a terminal, a pipe or a log.

What others have a part in (nodes, servers, files) reaches stderr with nothing in it that a
terminal would obey; on stdout that holds where it is a terminal. Elsewhere every byte is as it is,
whatever encoding is set.
"""

from __future__ import annotations

import os

from slurm_adapter.errors import AdapterError, message, printable, report


def complain(error: AdapterError) -> int:
    """Write an error to stderr and return the exit status it stands for."""
    _write_stderr(report(error) + "\n")
    return error.exit_status


def say(text: str) -> None:
    """Say one thing on stderr; where nobody hears it any more, the job's end goes on."""
    _write_stderr(message(text) + "\n")


def repeat(text: str) -> None:
    """Write on stderr what another program has said there, line by line."""
    _write_stderr("".join(f"{printable(line)}\n" for line in text.expandtabs().splitlines()))


def _write_stderr(text: str) -> None:
    # In one piece: several ranks may complain into the same log at once.
    try:  # noqa: SIM105 - contextlib costs start-up time
        os.write(2, os.fsencode(text))
    except OSError:  # a closed stderr changes nothing about the status
        pass


def write_stdout(text: str, *, styled: bool = False) -> None:
    """Write a text to stdout; a reader that has seen enough is no error.

    Args:
        text: lines.
        styled: whether colours in it are ours.

    Raises:
        AdapterError: where the bytes cannot be written (a full disk, a closed descriptor).
    """
    data = os.fsencode(_for_terminal(text, styled=styled) if os.isatty(1) else text)
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return
    except OSError as error:
        raise AdapterError(f"stdout cannot be written: {error.strerror}") from error


def _for_terminal(text: str, *, styled: bool) -> str:
    import re  # a pipe has no need of it

    parts = re.split(r"(\x1b\[[0-9;]*m|[\n\t])" if styled else r"([\n\t])", text)
    parts[::2] = map(printable, parts[::2])
    return "".join(parts)

"""Writing to stdout and stderr: every byte as it is, whatever encoding is set."""

from __future__ import annotations

import os

from slurm_adapter.errors import AdapterError, report


def complain(error: AdapterError) -> int:
    """Write an error to stderr and return the exit status it stands for.

    In one piece: several ranks may complain into the same log at once.
    """
    try:  # noqa: SIM105 - contextlib costs start-up time
        os.write(2, os.fsencode(report(error) + "\n"))
    except OSError:  # a closed stderr changes nothing about the status
        pass
    return error.exit_status


def write_stdout(text: str) -> None:
    """Write a text to stdout; a reader that has seen enough is no error.

    Raises:
        AdapterError: where the bytes cannot be written (a full disk, a closed descriptor).
    """
    data = os.fsencode(text)
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return
    except OSError as error:
        raise AdapterError(f"stdout cannot be written: {error.strerror}") from error

"""Writing to stdout: every byte as it is, whatever encoding is set, and errors as errors."""

from __future__ import annotations

import os

from slurm_adapter.errors import AdapterError


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

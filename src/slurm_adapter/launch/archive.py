"""The agent's archive: what runs on a node, in one file that needs nothing but an interpreter.

It holds source, which any Python of the right age reads, and what this Python compiled from it,
so that one of the same version need not compile.
"""

from __future__ import annotations

import io
import marshal
import struct
import zipfile
from functools import cache
from hashlib import blake2b
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import slurm_adapter

_ROOMS = ("node", "contracts", "cluster")
_FILES = ("plan", "layout", "job", "quoting", "setting", "output", "record", "paths", "errors")
_MAIN = """\
import sys
from slurm_adapter.node.main import main
sys.exit(main())
"""
# PEP 552: belongs to its source whatever that says, so nobody compares times.
_UNCHECKED = 0b01


@cache
def agent_archive() -> tuple[bytes, str]:
    """Return (the archive, its BLAKE2b digest of 32 bytes in hexadecimal digits)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        root = Path(slurm_adapter.__file__).parent
        rooms = [path for room in _ROOMS for path in sorted((root / room).glob("*.py"))]
        for path in [root / "__init__.py", *(root / f"{name}.py" for name in _FILES), *rooms]:
            name = f"slurm_adapter/{path.relative_to(root)}"
            _add(archive, name, path.read_bytes())
            _add(archive, f"{name}c", _compiled(path))
        _add(archive, "__main__.py", _MAIN.encode())
    data = buffer.getvalue()
    return data, blake2b(data, digest_size=32).hexdigest()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name), data)  # of a fixed date: the same content, same digest


def _compiled(path: Path) -> bytes:
    # Through the loader, which takes what was compiled before where that is current.
    code = SourceFileLoader(f"slurm_adapter.{path.stem}", str(path)).get_code(
        f"slurm_adapter.{path.stem}"
    )
    return MAGIC_NUMBER + struct.pack("<I", _UNCHECKED) + bytes(8) + marshal.dumps(code)


@cache
def first_lines() -> bytes:
    """Return what an interpreter started by `interpreter_words` is to read first."""
    data, digest = agent_archive()
    text = (Path(slurm_adapter.__file__).parent / "node/bootstrap.py").read_text()
    code = f"exec(compile({text!a}, 'slurm-adapter', 'exec'), {{'__name__': '__main__'}})"
    return f"{code}\n{digest} {len(data)}\n".encode()


def interpreter_words(python: str, run: str) -> list[str]:
    """Return the command of an agent: nothing in it but what it is (lists of processes show it)."""
    code = 'exec(open(0,"rb",0,closefd=False).readline())'
    return ["exec", python, "-I", "-S", "-c", code, "slurm-adapter", "agent", run]

"""The agent's archive: what runs on a node, in one file that needs nothing but an interpreter.

A zip archive of the source, which any Python of the right age runs; before it stands what this
Python compiled from that, which one of the same version takes at once (a third of the time that
importing from an archive costs). Readers of zip archives pass over what stands before one.
"""

from __future__ import annotations

import io
import marshal
import os
import zipfile
from functools import cache
from hashlib import blake2b
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
_WITHOUT_DOCSTRINGS = 2
_MARSHAL = 4  # a form that every supported Python reads, to see whether the rest is for it


@cache
def agent_archive() -> tuple[bytes, str]:
    """Return (the archive, its BLAKE2b digest of 32 bytes in hexadecimal digits)."""
    sources = _sources()
    path = _kept(sources)
    try:
        data = path.read_bytes()
    except OSError:
        data = _made(sources)
        _keep(path, data)
    return data, _digest(data)


def _sources() -> dict[str, bytes]:
    """Return the text of each module by its name in the archive."""
    root = Path(slurm_adapter.__file__).parent
    rooms = [path for room in _ROOMS for path in sorted((root / room).glob("*.py"))]
    paths = [root / "__init__.py", *(root / f"{name}.py" for name in _FILES), *rooms]
    return {f"slurm_adapter/{path.relative_to(root)}": path.read_bytes() for path in paths}


def _made(sources: dict[str, bytes]) -> bytes:
    modules = dict(_compiled(name, source) for name, source in sources.items())
    buffer = io.BytesIO(marshal.dumps((MAGIC_NUMBER, modules), _MARSHAL))
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sources.items():
            _add(archive, name, source)
        _add(archive, "__main__.py", _MAIN.encode())
    return buffer.getvalue()


def _compiled(name: str, source: bytes) -> tuple[str, tuple[bool, bytes]]:
    """Return (the module's name, (whether it is a package, its code))."""
    code = compile(source, name, "exec", optimize=_WITHOUT_DOCSTRINGS)
    module = name.removesuffix(".py").replace("/", ".")
    package = module.removesuffix(".__init__")
    return package, (package != module, marshal.dumps(code))


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # Of a fixed date: the same content has the same digest.
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def _kept(sources: dict[str, bytes]) -> Path:
    """Return where this user keeps the archive of these sources: compiling takes 0.3 s."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    digest = _digest(MAGIC_NUMBER + b"".join([_MAIN.encode(), *sources.values()]))
    return Path(cache_home) / "slurm-adapter" / f"archive-{digest[:32]}.pyz"


def _keep(path: Path, data: bytes) -> None:
    own = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own.write_bytes(data)
        own.replace(path)
    except OSError:  # made anew each time, then
        return


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()


@cache
def first_lines() -> bytes:
    """Return what an interpreter started by `interpreter_words` is to read first."""
    data, digest = agent_archive()
    text = _sources()["slurm_adapter/node/bootstrap.py"].decode()
    code = f"exec(compile({text!a}, 'slurm-adapter', 'exec'), {{'__name__': '__main__'}})"
    return f"{code}\n{digest} {len(data)}\n".encode()


def interpreter_words(python: str, run: str) -> list[str]:
    """Return the command of an agent: nothing in it but what it is (lists of processes show it)."""
    code = 'exec(open(0,"rb",0,closefd=False).readline())'
    return ["exec", python, "-I", "-S", "-c", code, "slurm-adapter", "agent", run]

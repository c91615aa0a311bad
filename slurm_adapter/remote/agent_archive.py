"""What an agent is made of: its code, in one file that needs nothing but an interpreter.

There are two such files, of the same modules. One is a zip archive of the source, which any Python
of the right age runs. The other is what this Python compiled from that, which one of the same
version takes in a third of the time.
"""

from __future__ import annotations
import __future__

import ast
import io
import marshal
import os
import zipfile
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from slurm_adapter import errors

_ROOMS = ("node", "contracts", "cluster", "network", "job")
_FILES = (
    "plan",
    "quoting",
    "setting",
    "output",
    "record",
    "record_help",
    "paths",
    "errors",
    "signals",
)
# A container's interpreter may be any: also one that could not even read our modules.
_MAIN = """\
import sys
if sys.version_info < (3, 10):
    sys.stderr.write(
        "slurm-adapter: %s is Python %d.%d; 3.10 or later is needed.\\n"
        "  Name another with --python, or take a newer image.\\n"
        % ((sys.executable,) + tuple(sys.version_info[:2]))
    )
    sys.exit(3)
from slurm_adapter.node.step.main import main
sys.exit(main())
"""
_WITHOUT_DOCSTRINGS = 2
# Every Python reads this form; the later ones refer back to what was written before, depending
# on what else the process holds: the same sources would not have the same digest.
_MARSHAL = 2
# What the interpreter reads first goes byte by byte, at half a microsecond each: it fetches more.
_FIRST = """\
import os
data = b""
while len(data) < {size}:
    data += os.read(0, {size} - len(data)) or os._exit(1)
exec(data[{rest}:])
"""
# Understood by any Python, to have one that is too old say so.
_SECOND = """\
import marshal, sys
if sys.version_info < (3, 10):
    version = "%d.%d.%d" % tuple(sys.version_info[:3])
    os.write(1, ("\\nslurm-adapter-agent old " + version + "\\n").encode())
    os._exit(0)
same = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER == {magic!r}
text, code = data[:{text}], data[{text}:{rest}]
names = {{"__name__": "slurm_adapter_bootstrap"}}
exec(marshal.loads(code) if same else compile(text, "slurm-adapter", "exec"), names)
names["main"](same, *({code_id} if same else {archive_id}))
"""


@dataclass(frozen=True)
class AgentFiles:
    """What is sent to have an agent, and when."""

    first: bytes
    """What an interpreter started by `interpreter_words` reads first."""
    code: bytes
    """What this Python made of the source, for one of the same version that asks for it."""
    archive: bytes
    """The source, for any other; a file that `python -I -S FILE` runs, too."""


@cache
def agent_files() -> AgentFiles:
    """Return an agent's code; made the first time, and kept for this user's next starts.

    To be called before there are threads: Python 3.11 fails where two read source at once.
    """
    sources = _sources()
    path = _kept(sources)
    try:
        return AgentFiles(*marshal.loads(path.read_bytes()))  # noqa: S302 - this user's own
    except (OSError, ValueError, EOFError, TypeError):
        code, archive = _made_code(sources), _made_archive(sources)
        files = AgentFiles(_first_lines(sources, code, archive), code, archive)
        _keep(path, marshal.dumps((files.first, code, archive)))
        return files


def _sources() -> dict[str, bytes]:
    """Return the text of each module by its name in the archive."""
    root = Path(errors.__file__).parent
    rooms = [path for room in _ROOMS for path in sorted((root / room).rglob("*.py"))]
    paths = [root / "__init__.py", *(root / f"{name}.py" for name in _FILES), *rooms]
    return {f"slurm_adapter/{path.relative_to(root)}": path.read_bytes() for path in paths}


def _made_archive(sources: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sources.items():
            _add(archive, name, source)
        _add(archive, "__main__.py", _MAIN.encode())
    return buffer.getvalue()


def _made_code(sources: dict[str, bytes]) -> bytes:
    """Return a table (by module: whether it is a package, where its code is), then all code."""
    table: dict[str, tuple[bool, int, int]] = {}
    codes = b""
    for name, source in sources.items():
        module = name.removesuffix(".py").replace("/", ".")
        package = module.removesuffix(".__init__")
        code = _code(name, source)
        table[package] = (package != module, len(codes), len(codes) + len(code))
        codes += code
    head = marshal.dumps(table, _MARSHAL)
    return b"%8d" % len(head) + head + codes


def _code(name: str, source: bytes) -> bytes:
    """Compile a module without what only readers and type checkers need."""
    tree = _Bare().visit(ast.parse(source))
    flags = __future__.annotations.compiler_flag
    code = compile(tree, name, "exec", flags, dont_inherit=True, optimize=_WITHOUT_DOCSTRINGS)
    return marshal.dumps(code, _MARSHAL)


class _Bare(ast.NodeTransformer):
    """Takes away annotations of functions, and the import that lets classes keep theirs as text."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        return None if node.module == "__future__" else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # Of a fixed date: the same content has the same digest.
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def _kept(sources: dict[str, bytes]) -> Path:
    """Return where this user keeps the archive of these sources: compiling takes 0.3 s."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    own = Path(__file__).read_bytes()
    digest = _digest(MAGIC_NUMBER + b"".join([own, *sources.values()]))
    return Path(cache_home) / "slurm-adapter" / f"head-{digest[:32]}"


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


def _first_lines(sources: dict[str, bytes], agent_code: bytes, archive: bytes) -> bytes:
    name = "slurm_adapter/node/agent/bootstrap.py"
    text = sources[name]
    code = _code(name, text)
    places = {"text": len(text), "rest": len(text) + len(code)}
    code_id, archive_id = [(_digest(file), len(file)) for file in (agent_code, archive)]
    second = _SECOND.format(magic=MAGIC_NUMBER, code_id=code_id, archive_id=archive_id, **places)
    data = text + code + second.encode()
    first = _FIRST.format(size=len(data), rest=places["rest"])
    return f"exec({first!r})\n".encode() + data


def interpreter_words(python: str, run: str) -> list[str]:
    """Return the command of an agent that a given interpreter runs."""
    return ["exec", python, *agent_words(run)]


def agent_words(run: str) -> list[str]:
    """Return what its interpreter gets: only what it is, for lists of processes show it."""
    code = 'exec(open(0,"rb",0,closefd=False).readline())'
    return ["-I", "-S", "-c", code, "slurm-adapter", "agent", run]

"""What an agent does first: have its code, checked by hash, then run it.

The head sends this file, as it is and compiled, to an interpreter that has nothing else; the code
itself only where it is asked for. A node's home that cannot be written costs nothing but that
transfer.
"""

from __future__ import annotations

import gc
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types


def _read(count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            sys.exit(1)
        data += more
    return data


def _digest(data: bytes) -> str:
    try:
        from _blake2 import blake2b  # what hashlib uses, without its 4 ms
    except ImportError:
        from hashlib import blake2b
    return blake2b(data, digest_size=32).hexdigest()


def _greet(word: bytes) -> None:
    os.write(1, b"\nslurm-adapter-agent " + word + b"\n")


def _have(word: bytes, ending: str, digest: str, size: int) -> tuple[bytes, str]:
    """Return a file's bytes, and its path; empty where it could not be kept.

    `word` is what to greet with where it has to be sent.
    """
    home = os.path.expanduser("~")
    folder = (os.environ.get("XDG_CACHE_HOME") or home + "/.cache") + "/slurm-adapter"
    path = folder + "/agent-" + digest[:32] + ending
    try:
        with open(path, "rb") as file:
            data = file.read()
        if _digest(data) == digest:
            _greet(b"have")
            return data, path
    except OSError:
        pass
    _greet(word)
    data = _read(size)
    if _digest(data) != digest:
        sys.exit("the agent's code did not arrive whole")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        own = path + "." + os.uname()[1] + "." + str(os.getpid())
        with open(own, "wb") as file:
            file.write(data)
        os.replace(own, path)
    except OSError:
        path = ""
    return data, path


class _Compiled:
    """Finds the modules that the head's Python compiled, which is of this version."""

    def __init__(self, data: bytes) -> None:
        end = 8 + int(data[:8])
        # By name: whether it is a package, and where its code begins and ends.
        self._table: dict[str, tuple[bool, int, int]] = marshal.loads(data[8:end])  # noqa: S302
        self._codes = memoryview(data)[end:]

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        del path, target
        from _frozen_importlib import ModuleSpec

        if name not in self._table:
            return None
        return ModuleSpec(name, self, is_package=self._table[name][0])  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        del spec

    def exec_module(self, module: types.ModuleType) -> None:
        _, begin, end = self._table[module.__name__]
        exec(marshal.loads(self._codes[begin:end]), module.__dict__)  # noqa: S102, S302


def _import_from(archive: bytes, path: str) -> None:
    """Have modules found in a zip archive, which may have to be where nothing can be kept."""
    if not path:
        descriptor = os.memfd_create("slurm-adapter-agent")
        os.write(descriptor, archive)
        path = "/proc/self/fd/" + str(descriptor)
    sys.path.insert(0, path)


def main(compiled: bool, digest: str, size: int) -> None:  # noqa: FBT001 - no call of ours
    """Become the agent, whose code, compiled or not, has this digest and so many bytes."""
    gc.disable()  # until ranks run: what is loaded by then is no garbage
    if compiled:
        data, _ = _have(b"need", ".code", digest, size)
        sys.meta_path.insert(0, _Compiled(data))  # type: ignore[arg-type]
    else:
        _import_from(*_have(b"need source", ".pyz", digest, size))
    from slurm_adapter.node.agent.main import main as serve

    status = serve(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)  # nothing to tidy up: an interpreter's own end takes milliseconds

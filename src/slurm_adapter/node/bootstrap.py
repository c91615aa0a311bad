"""What an agent does first: have its archive, checked by hash, then run what is in it.

The head sends this file, as it is and compiled, to an interpreter that has nothing else; the
archive itself only where it is asked for. A node's home that cannot be written costs nothing but
that transfer.
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
        from _blake2 import blake2b  # noqa: PLC0415 - what hashlib uses, without its 4 ms
    except ImportError:
        from hashlib import blake2b  # noqa: PLC0415
    return blake2b(data, digest_size=32).hexdigest()


def _greet(word: bytes) -> None:
    os.write(1, b"\nslurm-adapter-agent " + word + b"\n")


def _have(digest: str, size: int) -> tuple[bytes, str]:
    """Return the archive's bytes, and its path; empty where it could not be kept."""
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib costs start-up time
    folder = (os.environ.get("XDG_CACHE_HOME") or home + "/.cache") + "/slurm-adapter"
    path = folder + "/agent-" + digest[:32] + ".pyz"
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
        if _digest(data) == digest:
            _greet(b"have")
            return data, path
    except OSError:
        pass
    _greet(b"need")
    data = _read(size)
    if _digest(data) != digest:
        sys.exit("the archive did not arrive whole")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
        own = path + "." + os.uname()[1] + "." + str(os.getpid())
        with open(own, "wb") as file:  # noqa: PTH123
            file.write(data)
        os.replace(own, path)  # noqa: PTH105
    except OSError:
        path = ""
    return data, path


class _Compiled:
    """Finds the modules that the head's Python compiled, which is of this version."""

    def __init__(self, modules: dict[str, tuple[bool, bytes]]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        del path, target
        from _frozen_importlib import ModuleSpec  # noqa: PLC0415

        if name not in self._modules:
            return None
        return ModuleSpec(name, self, is_package=self._modules[name][0])  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        del spec

    def exec_module(self, module: types.ModuleType) -> None:
        exec(marshal.loads(self._modules[module.__name__][1]), module.__dict__)  # noqa: S102, S302


def _offer(data: bytes, path: str) -> None:
    """Let the archive's modules be imported."""
    from _frozen_importlib_external import MAGIC_NUMBER  # noqa: PLC0415

    magic, modules = marshal.loads(data)  # noqa: S302 - from whom the rest of the code is
    if magic == MAGIC_NUMBER:
        sys.meta_path.insert(0, _Compiled(modules))  # type: ignore[arg-type]
        return
    if not path:
        descriptor = os.memfd_create("slurm-adapter-agent")
        os.write(descriptor, data)
        path = "/proc/self/fd/" + str(descriptor)
    sys.path.insert(0, path)


def main(digest: str, size: int) -> None:
    """Become the agent, whose archive has this digest and so many bytes."""
    gc.disable()  # until ranks run: what is loaded by then is no garbage
    _offer(*_have(digest, size))
    from slurm_adapter.node.agent import main as serve  # noqa: PLC0415

    status = serve(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)  # nothing to tidy up: an interpreter's own end takes milliseconds

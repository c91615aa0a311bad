"""Who runs on a host of the cluster, or for a command: seen from outside, whatever namespaces."""

import contextlib
from pathlib import Path


def on_host(holder_pid: int) -> list[int]:
    """Return every process in the network namespace of `holder_pid`; one that ended is nowhere."""
    wanted = Path(f"/proc/{holder_pid}/ns/net").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # A process may end while we look; what is gone is not on the host.
        with contextlib.suppress(OSError):
            if (process / "ns/net").readlink() == wanted:
                found.append(int(process.name))
    return sorted(found)


def in_pid_namespace(name: str) -> list[int]:
    """Return who lives in a PID namespace, by what its link in /proc reads: `pid:[40265...]`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((process / "ns/pid").readlink()) == name:
                found.append(int(process.name))
    return found


def with_variable(name: str, value: str) -> list[int]:
    """Return who has a variable with this value; one that ended has none."""
    wanted = f"\0{name}={value}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in b"\0" + (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def program(pid: int) -> str:
    """Return the name of the file that `pid` executes, or nothing when it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""


def title(pid: int) -> str:
    """Return the command line as `ps` shows it, which daemons rewrite to tell what they do."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return b" ".join(words).decode(errors="replace")
    return ""


def listens(pid: int, port: int) -> bool:
    """Tell whether anybody listens on a TCP port, all addresses, in the network of `pid`."""
    try:
        sockets = Path(f"/proc/{pid}/net/tcp").read_text()
    except OSError:
        return False
    return f" 00000000:{port:04X} 00000000:0000 0A" in sockets

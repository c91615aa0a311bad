"""A real sshd on loopback, with keys, known hosts and an ssh config of its own.

One on 0.0.0.0 is as many hosts as there are addresses 127.0.0.1 to 127.0.0.254.
"""

import contextlib
import getpass
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO

from testbed.child import Child
from testbed.waiting import LONG_S, until

_SSHD = "/usr/sbin/sshd"
_OPTIONS = {
    "UsePAM": "no",
    "PidFile": "none",
    "StrictModes": "no",
    "UseDNS": "no",
    "LogLevel": "VERBOSE",
    "PermitRootLogin": "yes",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "MaxStartups": "1000",
    "MaxSessions": "100",
    "Subsystem": "sftp internal-sftp",
    # bash then takes no session for its first shell, and leaves the caller's ~/.bashrc alone.
    "SetEnv": "SHLVL=1",
}
_PORTS_TO_TRY = 20


def why_no_sshd() -> str:
    """Return why none can run here, empty where one can."""
    missing = [name for name in (_SSHD, "ssh", "ssh-keygen") if not shutil.which(name)]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install openssh-server openssh-client"
    if _surroundings() and subprocess.run(_surrounded("true"), check=False).returncode:
        return "sshd as root needs a mount namespace here, which this machine does not permit"
    return ""


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "", comment: str = "x") -> Path:
    """Make a key pair, return the path of its private half."""
    words = ["-q", "-t", kind, "-N", passphrase, "-C", comment, "-f", str(path)]
    subprocess.run(["ssh-keygen", *words], check=True)
    return path


def public_part(key: Path) -> str:
    """Return `TYPE BASE64` of a key pair."""
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


@dataclass
class LoopbackSshd:
    """A running server; `config` is an ssh config file that leads to it under every name."""

    folder: Path
    port: int
    process: "subprocess.Popen[str]"
    log: list[str] = field(default_factory=list)
    """What the server has said so far, a line each; all of it once it was stopped."""
    news: threading.Condition = field(default_factory=threading.Condition)
    """Notified with each new line of `log`."""
    _reader: threading.Thread | None = None

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        *,
        listen: str = "127.0.0.1",
        host_keys: tuple[str, ...] = ("ed25519",),
        password: str = "",
        **options: str,
    ) -> Iterator["LoopbackSshd"]:
        """Start one and wait until it listens.

        Args:
            listen: its address.
            host_keys: their types.
            password: of the user, for this server only (as root); with `UsePAM` it is asked for
                by keyboard-interactive.
            options: as in sshd_config(5).
        """
        with tempfile.TemporaryDirectory(prefix="sshd-") as name:
            folder = Path(name)
            user_key = make_key(folder / "id_ed25519")
            shutil.copy(f"{user_key}.pub", folder / "authorized_keys")
            keys = [make_key(folder / f"host_{kind}", kind) for kind in host_keys]
            words = _words(folder, keys, listen, options)
            server = cls(folder, *_listening(words, _password_lines(folder, password)))
            server._reader = threading.Thread(target=server._read_log, daemon=True)
            server._reader.start()
            try:
                server.known_hosts.write_text(
                    "".join(f"[127.0.0.*]:{server.port} {public_part(key)}\n" for key in keys)
                )
                server.write_config()
                yield server
            finally:
                server.stop()

    @property
    def config(self) -> Path:
        """The ssh config file that leads here."""
        return self.folder / "config"

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, for a socket."""
        return "127.0.0.1", self.port

    @property
    def known_hosts(self) -> Path:
        """The only file in which host keys are looked for."""
        return self.folder / "known_hosts"

    @property
    def key(self) -> Path:
        """The user's key, which the server accepts."""
        return self.folder / "id_ed25519"

    def write_config(self, before: str = "", after: str = "", **settings: str) -> Path:
        """Write the config file: `before`, one `Host *` block with `settings` in it, `after`."""
        standard = {
            "User": getpass.getuser(),
            "Port": str(self.port),
            "IdentityFile": str(self.key),
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": f"{LONG_S:.0f}",
        }
        block = "".join(f"    {key} {value}\n" for key, value in (standard | settings).items())
        self.config.write_text(f"{before}\nHost *\n{block}{after}\n")
        return self.config

    def stop(self) -> None:
        """End the server and the connections it still serves, nothing else; may be called again."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
            # Once it has stopped it makes no more of them.
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            for pid in self.serving():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
        if self._reader:
            self._reader.join(LONG_S)

    def serving(self) -> list[int]:
        """Return the processes that serve a connection now, and what runs below them."""
        return _descendants(self.process.pid)

    def wait_until_idle(self) -> None:
        """Wait until nothing serves a connection any more.

        What the log says at the end of one differs with who noticed it first.
        """
        assert until(lambda: not self.serving()), "\n".join(self.log)

    def connections(self) -> int:
        """Stop the server; return how many connections were made to it in its time."""
        self.stop()
        return len([line for line in self.log if line.startswith("Connection from ")])

    def wait_for_line(self, pattern: str, count: int = 1, limit_s: float = LONG_S) -> list[str]:
        """Wait until `count` lines of the log match, return them."""

        def found() -> list[str]:
            return [line for line in self.log if re.search(pattern, line)]

        with self.news:
            assert self.news.wait_for(lambda: len(found()) >= count, limit_s), "\n".join(self.log)
            return found()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.news:
                self.log.append(line.rstrip())
                self.news.notify_all()
        self.process.stderr.close()


def _words(folder: Path, keys: list[Path], listen: str, more: dict[str, str]) -> list[str]:
    options = {
        **_OPTIONS,
        "ListenAddress": listen,
        "AuthorizedKeysFile": str(folder / "authorized_keys"),
        **more,
    }
    pairs = [f"{key}={value}" for key, value in options.items() if value]
    pairs += [f"HostKey={key}" for key in keys]
    words = [_SSHD, "-D", "-e", "-f", "/dev/null"]
    return [*words, *(word for pair in pairs for word in ("-o", pair))]


def _listening(words: list[str], lines: str) -> tuple[int, "subprocess.Popen[str]"]:
    """Start sshd on a free port, return the port and the process once it listens."""
    said = ""
    for _ in range(_PORTS_TO_TRY):
        with closed_port() as port:
            pass  # so it was a moment ago: sshd cannot take it over
        process = Child(
            _surrounded(*words, "-o", f"Port={port}", lines=lines),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(process)
            stack.callback(process.kill)
            said = _until_listening(process.stderr)
            if not said:
                stack.pop_all()
                return port, process
    raise RuntimeError(f"sshd does not start: {said}")


def _until_listening(lines: IO[str] | None) -> str:
    assert lines is not None
    said = ""
    for line in lines:
        if line.startswith("Server listening"):
            return ""
        said += line
    return said or "it ended at once"


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Have a port for a while on which nothing listens."""
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", 0))
        yield int(holder.getsockname()[1])


@cache
def _surroundings() -> str:
    """Return shell lines for what sshd as root misses on this machine, empty where nothing.

    A service manager would have made its folder; and without PAM it refuses an account whose
    password is locked with `!`. Both are put right where only this sshd sees it.
    """
    if os.geteuid() != 0:
        return ""
    lines = []
    if not Path("/run/sshd").is_dir():
        lines += ["mount -t tmpfs -o mode=755 tmpfs /run", "mkdir -m 755 /run/sshd"]
    user = getpass.getuser()
    shadow = Path("/etc/shadow")
    if shadow.exists() and re.search(f"^{re.escape(user)}:!", shadow.read_text(), re.MULTILINE):
        change = shlex.quote(f"s/^{re.escape(user)}:!*/{user}:*/")
        lines += [
            "copy=$(mktemp)",
            f"sed {change} /etc/shadow > $copy",
            "mount --bind $copy /etc/shadow",
            "rm -f $copy",
        ]
    return "\n".join(lines)


def _password_lines(folder: Path, password: str) -> str:
    """Return shell lines that give the user a password where only this sshd sees it."""
    if not password:
        return ""
    user = getpass.getuser()
    hashed = subprocess.run(
        ["openssl", "passwd", "-6", password], capture_output=True, text=True, check=True
    ).stdout.strip()
    change = shlex.quote(f"s|^{re.escape(user)}:[^:]*:|{user}:{hashed}:|")
    shadow, pam = folder / "shadow", folder / "pam"
    pam.write_text("auth required pam_unix.so\naccount required pam_permit.so\n")
    return "\n".join(
        [
            f"touch {shadow}",
            f"chmod 600 {shadow}",
            f"sed {change} /etc/shadow > {shadow}",
            f"mount --bind {shadow} /etc/shadow",
            f"mount --bind {pam} /etc/pam.d/sshd",
        ]
    )


def _surrounded(*words: str, lines: str = "") -> list[str]:
    if not _surroundings() and not lines:
        return list(words)
    script = f'set -e\n{_surroundings()}\n{lines}\nexec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", *words]


def _descendants(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        children = [int(word) for word in path.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [one for child in children for one in (child, *_descendants(child))]

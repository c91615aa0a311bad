"""Each hook into paramiko is still there: where one is gone, this says which, and nothing else."""

import inspect
import re
import socket
from importlib.metadata import version
from types import ModuleType

import paramiko
import pytest
from paramiko import auth_handler, transport
from paramiko.agent import AgentSSH
from paramiko.packet import Packetizer

from slurm_adapter.remote.transport import paramiko_hooks

INSTALLED = f"paramiko {version('paramiko')}"
HOOKS: dict[tuple[object, str], tuple[str, ...]] = {
    (paramiko.util, "tb_strings"): (),
    (paramiko.Transport, "run"): ("self",),
    (Packetizer, "read_message"): ("self",),
    (Packetizer, "send_message"): ("self", "data"),
    (Packetizer, "_check_keepalive"): ("self",),
    (Packetizer, "start_handshake"): ("self", "timeout"),
    (Packetizer, "handshake_timed_out"): ("self",),
    (Packetizer, "complete_handshake"): ("self",),
    (Packetizer, "need_rekey"): ("self",),
    (AgentSSH, "_connect"): ("self", "conn"),
    (AgentSSH, "_close"): ("self",),
    (AgentSSH, "_send_message"): ("self", "msg"),
}
ATTRIBUTES = (
    *("active", "auth_timeout", "clear_to_send", "handshake_timeout", "packetizer"),
    *("in_kex", "saved_exception"),
)
CALLS = {
    (transport, "util.tb_strings()"): "a traceback is made for the log",
    (transport, "self.packetizer.read_message()"): "the next message is asked for",
    (transport, "self.packetizer.start_handshake(self.handshake_timeout)"): "a handshake begins",
    (transport, "if self.packetizer.need_rekey() and not self.in_kex:"): "new keys are due",
    (transport, "No existing session"): "a key exchange went unanswered",
    (auth_handler, "Authentication timeout"): "a login went unanswered",
}


@pytest.mark.parametrize(("owner", "name"), HOOKS)
def test_a_hook_is_there(owner: object, name: str) -> None:
    found = getattr(owner, name, None)
    assert found is not None, f"{INSTALLED} has no {owner}.{name}"
    parameters = tuple(inspect.signature(found).parameters)
    expected = HOOKS[owner, name]
    assert parameters == expected, f"{INSTALLED}: {owner}.{name} takes {parameters}"


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_transport_has(name: str) -> None:
    here, there = socket.socketpair()
    with here, there:
        made = paramiko.Transport(here)
        assert hasattr(made, name), f"{INSTALLED}: a Transport has no {name}"


def test_so_many_bytes_go_with_the_same_keys() -> None:
    assert isinstance(Packetizer.REKEY_BYTES, int), f"{INSTALLED}: no REKEY_BYTES"


def test_a_key_has_its_certificate_as() -> None:
    key = paramiko.ECDSAKey.generate()
    assert hasattr(key, "public_blob"), f"{INSTALLED}: a PKey has no public_blob"


@pytest.mark.parametrize(("module", "text"), CALLS)
def test_it_is_still_where(module: ModuleType, text: str) -> None:
    source = inspect.getsource(module)
    assert text in source, f"{INSTALLED}: no `{text}` where {CALLS[module, text]}"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (paramiko_hooks.Transport, paramiko.Transport),
        (paramiko_hooks._Packets, Packetizer),  # noqa: SLF001 - all of the hooks are to be listed
        (paramiko_hooks.SshAgent, AgentSSH),
    ],
)
def test_nothing_else_stands_in_for_something_of_paramiko(ours: type, theirs: type) -> None:
    both = {
        name for name in vars(ours) if hasattr(theirs, name) and not re.fullmatch("__.*__", name)
    }
    assert both <= {name for _, name in HOOKS}

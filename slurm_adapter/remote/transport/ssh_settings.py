"""What ssh would do for one host, read from the output of `ssh -G`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.remote.transport.tokens import expand, expand_path, home_path, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONNECT_TIMEOUT_S = 10.0
ALIVE_INTERVAL_S = 30
# Debian's ssh has 300 in BatchMode: a cut link would pass for a silent one for 20 minutes.
_LONGEST_ALIVE_INTERVAL_S = 60
_DEFAULT_METHODS = (
    *("gssapi-with-mic", "hostbased", "publickey"),
    *("keyboard-interactive", "password"),
)
# Shorter ones no ssh takes.
_LEAST_RSA_BITS = 1024
_YES = ("yes", "true", "unbound", "host-bound")


@dataclass(frozen=True)
class SshSettings:
    """The options of ssh_config(5) that concern a connection, for one host; paths are whole."""

    name: str
    """The host as the user called it."""
    hostname: str
    """What it is reached by: HostName, or the name itself."""
    port: int
    user: str
    host_key_alias: str | None
    user_known_hosts: tuple[Path, ...]
    global_known_hosts: tuple[Path, ...]
    revoked_host_keys: tuple[Path, ...]
    """Files of keys that no host may show."""
    known_hosts_command: str | None
    """What prints more lines of known_hosts, as it is written."""
    check_host_ip: bool
    """Whether a key is looked up by the host's address, too."""
    fingerprint_hash: str
    """`sha256` or `md5`."""
    least_rsa_bits: int
    """No RSA key may be shorter, neither the host's nor the user's."""
    strict: str
    """StrictHostKeyChecking: `yes`, `ask`, `accept-new` or `no`."""
    hash_known_hosts: bool
    trust_loopback: bool
    """NoHostAuthenticationForLocalhost."""
    host_key_algorithms: tuple[str, ...]
    ciphers: tuple[str, ...]
    macs: tuple[str, ...]
    kex_algorithms: tuple[str, ...]
    public_key_algorithms: tuple[str, ...]
    """Patterns of the signatures that the user's keys may make; empty: any."""
    rekey_bytes: int
    """So many bytes, and the connection's keys are renewed; 0: as many as is usual."""
    rekey_s: int
    """So many seconds, likewise; 0: whenever."""
    methods: tuple[str, ...]
    """Ways to log in that may be tried, the preferred one first."""
    identity_files: tuple[Path, ...]
    certificate_files: tuple[Path, ...]
    identities_only: bool
    identity_agent: str | None
    """The agent's socket, None for none."""
    password_prompts: int
    """How often to ask for a password or passphrase."""
    batch: bool
    """BatchMode: ask nothing."""
    proxy_jump: str | None
    proxy_command: str | None
    """A line for the user's shell, tokens put in."""
    proxy_fdpass: bool
    address_family: str
    """`any`, `inet` or `inet6`."""
    bind_address: str | None
    bind_interface: str | None
    connect_timeout_s: float
    alive_interval_s: int
    """Seconds without a word from the node after which it is asked for one."""
    alive_count_max: int
    """Unanswered questions after which the connection is lost."""
    session_type: str
    """SessionType: what ssh would open there is a command (`default`), a subsystem or nothing."""

    @property
    def host_key_name(self) -> str:
        """The name under which its key stands in known_hosts: `host`, `[host]:port` or an alias."""
        if self.host_key_alias is not None:
            return self.host_key_alias.lower()
        return bracketed(self.hostname.lower(), self.port)


def bracketed(host: str, port: int) -> str:
    """Return `host`, or `[host]:port` where the port is not 22."""
    return host if port == 22 else f"[{host}]:{port}"  # noqa: PLR2004 - ssh's own


def parse_options(text: str) -> dict[str, list[str]]:
    """Return the lines of `ssh -G` as values by lower-case name; an option may come repeatedly."""
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        options.setdefault(name.lower(), []).append(value.strip())
    return options


def read_settings(
    name: str, options: Mapping[str, list[str]], environment: Mapping[str, str]
) -> SshSettings:
    """Return the settings for a host.

    Args:
        name: the host as the user called it.
        options: what `ssh -G` says about it, by name.
        environment: of the user; SSH_AUTH_SOCK is taken from it.

    Raises:
        BadValueError: a value holds a token or variable that does not exist.
    """

    def last(option: str, default: str = "none") -> str:
        return options.get(option, [default])[-1]

    def optional(option: str) -> str | None:
        value = last(option)
        return None if value.lower() == "none" else value

    def yes(option: str) -> bool:
        return last(option).lower() in _YES

    hostname, port, user = last("hostname", name), int(last("port", "22")), last("user", "")
    alias = optional("hostkeyalias")
    known = tokens(name, hostname, port, user, alias)

    def paths(option: str) -> tuple[Path, ...]:
        values = [value for value in options.get(option, []) if value.lower() != "none"]
        return tuple(Path(expand_path(value, known, environment)) for value in values)

    def path_list(option: str) -> tuple[Path, ...]:
        # ssh has put tokens in here already, and a second time would spoil a `%`.
        words = " ".join(options.get(option, [])).split()
        words = [home_path(word) for word in words if word != "none"]
        return tuple(map(Path, _rejoined(words)))

    command = optional("proxycommand")
    timeout = optional("connecttimeout")
    rekey = [int(word) for word in [*last("rekeylimit", "0 0").split(), "0"]]
    return SshSettings(
        name=name,
        hostname=hostname,
        port=port,
        user=user,
        host_key_alias=alias,
        user_known_hosts=path_list("userknownhostsfile"),
        global_known_hosts=path_list("globalknownhostsfile"),
        revoked_host_keys=path_list("revokedhostkeys"),
        known_hosts_command=optional("knownhostscommand"),
        check_host_ip=yes("checkhostip"),
        fingerprint_hash=last("fingerprinthash", "sha256").lower(),
        least_rsa_bits=max(
            _LEAST_RSA_BITS, int(last("requiredrsasize", "0")), int(last("rsaminsize", "0"))
        ),
        strict=_strictness(last("stricthostkeychecking", "ask").lower()),
        hash_known_hosts=yes("hashknownhosts"),
        trust_loopback=yes("nohostauthenticationforlocalhost"),
        host_key_algorithms=tuple(last("hostkeyalgorithms", "").split(",")),
        ciphers=tuple(last("ciphers", "").split(",")),
        macs=tuple(last("macs", "").split(",")),
        kex_algorithms=tuple(last("kexalgorithms", "").split(",")),
        public_key_algorithms=_listed(
            optional("pubkeyacceptedalgorithms") or optional("pubkeyacceptedkeytypes")
        ),
        rekey_bytes=rekey[0],
        rekey_s=rekey[1],
        methods=_methods(optional("preferredauthentications"), options),
        identity_files=paths("identityfile"),
        certificate_files=paths("certificatefile"),
        identities_only=yes("identitiesonly"),
        identity_agent=_agent(last("identityagent", "SSH_AUTH_SOCK"), known, environment),
        password_prompts=int(last("numberofpasswordprompts", "3")),
        batch=yes("batchmode"),
        proxy_jump=optional("proxyjump"),
        proxy_command=None if command is None else expand(command, known),
        proxy_fdpass=yes("proxyusefdpass"),
        address_family=last("addressfamily", "any").lower(),
        bind_address=optional("bindaddress"),
        bind_interface=optional("bindinterface"),
        connect_timeout_s=float(timeout) if timeout else CONNECT_TIMEOUT_S,
        alive_interval_s=min(
            int(last("serveraliveinterval", "0")) or ALIVE_INTERVAL_S, _LONGEST_ALIVE_INTERVAL_S
        ),
        alive_count_max=int(last("serveralivecountmax", "3")),
        session_type=last("sessiontype", "default").lower(),
    )


def _listed(value: str | None) -> tuple[str, ...]:
    return tuple(value.split(",")) if value else ()


def _strictness(value: str) -> str:
    return {"true": "yes", "false": "no", "off": "no"}.get(value, value)


def _methods(preferred: str | None, options: Mapping[str, list[str]]) -> tuple[str, ...]:
    switches = {
        "publickey": "pubkeyauthentication",
        "keyboard-interactive": "kbdinteractiveauthentication",
        "password": "passwordauthentication",
    }
    return tuple(
        method
        for method in (preferred.split(",") if preferred else _DEFAULT_METHODS)
        if method in switches and options.get(switches[method], ["yes"])[-1].lower() in _YES
    )


def _agent(value: str, known: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK":
        return environment.get("SSH_AUTH_SOCK") or None
    if value.startswith("$") and not value.startswith("${"):
        return environment.get(value[1:]) or None
    return expand_path(value, known, environment)


def _rejoined(words: Iterable[str]) -> list[str]:
    """Put paths together again that hold a blank: `ssh -G` prints them bare."""
    paths: list[str] = []
    for word in words:
        if paths and not word.startswith("/") and not Path(paths[-1]).exists():
            paths[-1] += f" {word}"
        else:
            paths.append(word)
    return paths

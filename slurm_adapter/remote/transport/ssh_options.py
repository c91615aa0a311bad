"""Every option of ssh_config(5), and what becomes of it here: what ssh refuses is refused.

The names are those of OpenSSH up to 10, and of what Debian, Red Hat and macOS add to it. An option
that is not listed, and that a config sets to other than its default, stops the start: it may make
ssh stricter in a way that is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HONOURED = "honoured"
BY_SSH = "`ssh -G` has seen to it"
"""Its answer is what the option makes of the others."""

# Why the rest may be left alone. As in scp and sftp, which leave out the same of a session, what
# is opened here is for commands of ours.
_NO_FORWARDING = "nothing is forwarded through our connections"
_NO_SESSION = "it is about a session at a terminal, or its only command"
_NO_CERTIFICATE = "host certificates are not accepted here at all"
_ONLY_MORE = "it would only accept more"
_NO_METHOD = "this way to log in is not tried here"
_NO_MASTER = "every connection is our own, and checked as such"
_SHOWN = "it changes what is shown, not what is done"

OPTIONS: dict[str, str] = {
    "addkeystoagent": "keys that were opened here are not handed on",
    "addressfamily": HONOURED,
    "batchmode": HONOURED,
    "bindaddress": HONOURED,
    "bindinterface": HONOURED,
    "canonicaldomains": BY_SSH,
    "canonicalizefallbacklocal": BY_SSH,
    "canonicalizehostname": BY_SSH,
    "canonicalizemaxdots": BY_SSH,
    "canonicalizepermittedcnames": BY_SSH,
    "casignaturealgorithms": _NO_CERTIFICATE,
    "certificatefile": HONOURED,
    "challengeresponseauthentication": "keyboard-interactive has a switch of its own",
    "channeltimeout": "our channels are never silent: heartbeats go both ways",
    "checkhostip": HONOURED,
    "ciphers": HONOURED,
    "clearallforwardings": _NO_FORWARDING,
    "compression": "it changes how bytes travel, not which",
    "connectionattempts": "what passes by itself is tried again for as long as --connect-timeout",
    "connecttimeout": HONOURED,
    "controlmaster": _NO_MASTER,
    "controlpath": _NO_MASTER,
    "controlpersist": _NO_MASTER,
    "dynamicforward": _NO_FORWARDING,
    "enableescapecommandline": _NO_SESSION,
    "enablesshkeysign": _NO_METHOD,
    "escapechar": _NO_SESSION,
    "exitonforwardfailure": _NO_FORWARDING,
    "fingerprinthash": HONOURED,
    "forkafterauthentication": _NO_SESSION,
    "forwardagent": _NO_FORWARDING,
    "forwardx11": _NO_FORWARDING,
    "forwardx11timeout": _NO_FORWARDING,
    "forwardx11trusted": _NO_FORWARDING,
    "gatewayports": _NO_FORWARDING,
    "globalknownhostsfile": HONOURED,
    "gssapiauthentication": _NO_METHOD,
    "gssapiclientidentity": _NO_METHOD,
    "gssapidelegatecredentials": _NO_METHOD,
    "gssapikexalgorithms": _NO_METHOD,
    "gssapikeyexchange": _NO_METHOD,
    "gssapirenewalforcesrekey": _NO_METHOD,
    "gssapiserveridentity": _NO_METHOD,
    "gssapitrustdns": _NO_METHOD,
    "hashknownhosts": HONOURED,
    "host": BY_SSH,
    "hostbasedacceptedalgorithms": _NO_METHOD,
    "hostbasedauthentication": _NO_METHOD,
    "hostbasedkeytypes": _NO_METHOD,
    "hostkeyalgorithms": HONOURED,
    "hostkeyalias": HONOURED,
    "hostname": HONOURED,
    "identitiesonly": HONOURED,
    "identityagent": HONOURED,
    "identityfile": HONOURED,
    "ignoreunknown": BY_SSH,
    "include": BY_SSH,
    "ipqos": "it changes how bytes travel, not which",
    "kbdinteractiveauthentication": HONOURED,
    "kbdinteractivedevices": "the server chooses what it asks",
    "kexalgorithms": HONOURED,
    "knownhostscommand": HONOURED,
    "localcommand": _NO_SESSION,
    "localforward": _NO_FORWARDING,
    "loglevel": _SHOWN,
    "logverbose": _SHOWN,
    "macs": HONOURED,
    "match": BY_SSH,
    "nohostauthenticationforlocalhost": HONOURED,
    "numberofpasswordprompts": HONOURED,
    "obscurekeystroketiming": _NO_SESSION,
    "passwordauthentication": HONOURED,
    "permitlocalcommand": _NO_SESSION,
    "permitremoteopen": _NO_FORWARDING,
    "pkcs11provider": _ONLY_MORE,
    "port": HONOURED,
    "preferredauthentications": HONOURED,
    "proxycommand": HONOURED,
    "proxyjump": HONOURED,
    "proxyusefdpass": HONOURED,
    "pubkeyacceptedalgorithms": HONOURED,
    "pubkeyacceptedkeytypes": HONOURED,
    "pubkeyauthentication": HONOURED,
    "refuseconnection": BY_SSH,
    "rekeylimit": HONOURED,
    "remotecommand": _NO_SESSION,
    "remoteforward": _NO_FORWARDING,
    "requesttty": _NO_SESSION,
    "requiredrsasize": HONOURED,
    "revokedhostkeys": HONOURED,
    "rsaminsize": HONOURED,
    "securitykeyprovider": _ONLY_MORE,
    "sendenv": "only an allow-list of variables crosses to a node",
    "serveralivecountmax": HONOURED,
    "serveraliveinterval": HONOURED,
    "sessiontype": HONOURED,
    "setenv": "only an allow-list of variables crosses to a node",
    "stdinnull": _NO_SESSION,
    "streamlocalbindmask": _NO_FORWARDING,
    "streamlocalbindunlink": _NO_FORWARDING,
    "stricthostkeychecking": HONOURED,
    "syslogfacility": _SHOWN,
    "tag": BY_SSH,
    "tcpkeepalive": "nodes are asked for a word, which does more",
    "tunnel": _NO_FORWARDING,
    "tunneldevice": _NO_FORWARDING,
    "updatehostkeys": _ONLY_MORE,
    "usekeychain": _ONLY_MORE,
    "user": HONOURED,
    "userknownhostsfile": HONOURED,
    "verifyhostkeydns": _ONLY_MORE,
    "versionaddendum": _SHOWN,
    "visualhostkey": _SHOWN,
    "warnweakcrypto": _SHOWN,
    "xauthlocation": _NO_FORWARDING,
}


def check_options(
    name: str,
    options: Mapping[str, list[str]],
    defaults: Callable[[], Mapping[str, list[str]]],
    where: Callable[[str], str],
) -> None:
    """Refuse options that are set and not known here.

    Args:
        name: the host's.
        options: what `ssh -G` says about it, by name.
        defaults: returns what it says without any config.
        where: returns the place where an option is set, empty where not known.

    Raises:
        BadValueError: for the first of them.
    """
    for option in sorted(options.keys() - OPTIONS.keys()):
        if options[option] != defaults().get(option):
            place = where(option)
            raise BadValueError(
                f"{name}: the ssh config sets {option} to {' '.join(options[option])}"
                + (f" ({place})" if place else "")
                + ", which is not known here: ssh may refuse what would be accepted",
                "Take it out for this host, or have SLURM_ADAPTER_SSH_CONFIG name a config"
                " without it.",
            )

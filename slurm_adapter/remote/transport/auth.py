"""Log in as the user's ssh would: keys first, then what has to be asked for at the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import paramiko
from paramiko.auth_strategy import AuthStrategy

from slurm_adapter.remote.transport.connect_error import ConnectError, TurnedAwayError
from slurm_adapter.remote.transport.paramiko_hooks import timed_out
from slurm_adapter.remote.transport.prompts import NoTerminalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_adapter.remote.transport.keys import Identity, KeyRing
    from slurm_adapter.remote.transport.paramiko_hooks import Transport
    from slurm_adapter.remote.transport.prompts import Terminal
    from slurm_adapter.remote.transport.ssh_settings import SshSettings

_SHOWN_KEYS = 4
_TYPING_LIMIT_S = 600.0


class Authenticator(AuthStrategy):  # type: ignore[misc]
    """One login at one host.

    Args:
        settings: of the host.
        keys: the user's.
        terminal: where passwords are asked for.
        secrets: whether the host may be told one: not where its key is not the known one.
    """

    def __init__(
        self, settings: SshSettings, keys: KeyRing, terminal: Terminal, *, secrets: bool = True
    ) -> None:
        super().__init__(ssh_config=None)
        self._settings = settings
        self._terminal = terminal
        self.secrets = secrets
        self._problems: list[str] = []
        self._tried: list[str] = []
        self._identities = keys.identities(settings, self._problems)
        self._prompts = {"keyboard-interactive": 0, "password": 0}
        self._asked_plainly = False
        self._offered: list[str] | None = None
        """What the server accepts next, None while it has not said so."""

    def get_sources(self) -> Iterator[object]:
        """Not used: `authenticate` follows the server's answers, which a fixed list cannot."""
        return iter(())

    def authenticate(self, transport: Transport) -> list[object]:
        """Log in.

        Raises:
            ConnectError: refused; `again` is set only where the server hung up unasked.
        """
        while True:
            try:
                left = self._attempt(transport)
            except paramiko.BadAuthenticationType as error:
                self._offered = list(error.allowed_types)
                continue
            except NoTerminalError:
                left = None
            except (paramiko.SSHException, EOFError, OSError) as error:
                if not transport.is_active():
                    raise self._hung_up(transport, error) from error
                if timed_out(error):
                    raise ConnectError(
                        "no answer to the login", "Is that machine overloaded?"
                    ) from error
                continue  # refused: on to the next
            if left is None:
                raise self._refused(transport)
            if not left:
                return []
            # Half a success: the server wants more.
            self._offered = list(left)

    def _attempt(self, transport: Transport) -> list[str] | None:
        """Make the next attempt there is; return what the server wants on top, None if none."""
        user = self._settings.user
        for method in self._settings.methods:
            if self._offered is not None and method not in self._offered:
                continue
            if method == "publickey":
                identity = next(self._identities, None)
                if identity is not None:
                    return self._try_key(transport, user, identity)
            elif self._may_ask(method):
                self._prompts[method] += 1
                return self._try_secret(transport, user, method)
        if self._offered is None and not self._asked_plainly:
            # Nothing of ours was told what the server would take; and it may ask for nothing.
            self._asked_plainly = True
            return list(transport.auth_none(user))
        return None

    def _try_key(self, transport: Transport, user: str, identity: Identity) -> list[str]:
        self._tried.append(identity.label)
        return list(transport.auth_publickey(user, identity.key))

    def _may_ask(self, method: str) -> bool:
        limit = self._settings.password_prompts
        may = self.secrets and not self._settings.batch and self._prompts[method] < limit
        return may and self._terminal.there()

    def _try_secret(self, transport: Transport, user: str, method: str) -> list[str]:
        transport.auth_timeout = _TYPING_LIMIT_S
        if method == "keyboard-interactive":
            return list(transport.auth_interactive(user, self._answers))
        with self._terminal.turn():
            if not transport.is_active():
                raise EOFError  # it hung up while others were asked
            where = f"{user}@{self._settings.name}"
            word = self._terminal.ask(f"{where}'s password: ", echo=False)
        return list(transport.auth_password(user, word, fallback=False))

    def _answers(self, title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        """Answer the server's questions; called in the transport's thread."""
        # Before each line of theirs: none may pass for a question of ours.
        where = f"({self._settings.user}@{self._settings.name}) "
        lines = [*title.splitlines(), *instructions.splitlines()]
        said = "".join(f"{where}{line}\n" for line in lines if line.strip())
        try:
            with self._terminal.turn():
                return [
                    self._terminal.ask(("" if number else said) + _before(where, prompt), echo=echo)
                    for number, (prompt, echo) in enumerate(prompts)
                ]
        except NoTerminalError as error:
            # That thread has to end in a way that it expects.
            raise paramiko.SSHException(str(error)) from error

    def _hung_up(self, transport: Transport, error: BaseException) -> ConnectError:
        if transport.farewell or self._tried:
            why = transport.farewell or "it hung up"
            return ConnectError(
                "the login was refused", self._remedy(), detail=f"{why}; {self._tries()}"
            )
        return ConnectError("the server hung up during the login", detail=str(error), again=True)

    def _refused(self, transport: Transport) -> ConnectError:
        offers = ", ".join(self._offered or []) or "nothing"
        if not transport.is_active():
            offers = transport.farewell or offers
        return TurnedAwayError(
            f"the login as {self._settings.user} was refused",
            self._remedy(),
            detail=f"the server offers {offers}; {self._tries()}",
        )

    def _tries(self) -> str:
        shown = self._tried[:_SHOWN_KEYS]
        more = len(self._tried) - len(shown)
        tried = "tried " + ", ".join(shown) if shown else "no key could be tried"
        tried += f" and {more} more" if more else ""
        if any(self._prompts.values()):
            tried += " and what you typed"
        elif {"password", "keyboard-interactive"} & set(self._offered or []):
            tried += "; a password was not asked for: " + self._why_not_asked()
        return "; ".join([tried, *self._problems])

    def _why_not_asked(self) -> str:
        if self._settings.batch:
            return "BatchMode is on"
        if not self.secrets:
            return "the host key is not the known one"
        return "the ssh config says no" if self._terminal.there() else "there is no terminal"

    def _remedy(self) -> str:
        return (
            f"Put a public key into ~/.ssh/authorized_keys there (ssh-copy-id"
            f" {self._settings.name}) or name the right one with IdentityFile in ~/.ssh/config."
        )


def _before(where: str, prompt: str) -> str:
    return "\n".join(where + line for line in prompt.splitlines() or [""])

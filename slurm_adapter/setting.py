"""A planned value together with the reason for it, what every plan is made of; and its name."""

from __future__ import annotations

from slurm_adapter.errors import BadValueError
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD")
MASK = "********"
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
NAME_CHARACTERS = _NAME_START | frozenset("0123456789")
"""What the name of a variable may consist of, where a shell is to hold it."""


@record
class Hole:
    """What only a node can put into a value: the entries that it has itself in a search path."""

    variable: str
    """Whose value on the node it is."""
    before: tuple[str, ...] = ()
    """Entries that stand before those of the node, unless they do there already."""
    after: tuple[str, ...] = ()
    """Entries behind them."""

    @property
    def why(self) -> str:
        """Why it cannot be filled elsewhere, for people."""
        return f"{self.variable} as the node has it"

    @property
    def shown(self) -> str:
        """The value with a placeholder for what is missing."""
        return self.filled(f"<{self.variable}>")

    def filled(self, own: str) -> str:
        """Return the whole value on a node that has `own` there."""
        first = tuple(own.split(":")[: len(self.before)])
        before = () if first == self.before else self.before
        return ":".join(filter(None, (*before, own, *self.after)))


@record
class Setting:
    """One environment variable of a rank.

    `known` is False while the value only exists once the job runs (a Slurm job id, say);
    `value` then holds a placeholder in angle brackets.
    """

    name: str
    value: str
    reason: str
    known: bool = True
    hole: Hole | None = None
    """What the node has yet to put in, None where the value is whole."""

    @property
    def shown(self) -> str:
        """The value as it may be printed: masked where the name looks like a secret."""
        return MASK if is_secret(self.name) else self.value

    def filled(self, inherited: Mapping[str, str]) -> Setting:
        """Return it whole, as on a node where ranks would inherit these variables."""
        if self.hole is None:
            return self
        own = inherited.get(self.hole.variable, "")
        return Setting(self.name, self.hole.filled(own), self.reason)

    def put_around(self, inner: Setting) -> Setting:
        """Return it with another value of the same variable in place of the node's own."""
        outer = self.hole
        if outer is None:
            return self
        reason = "; ".join(filter(None, (inner.reason, self.reason)))
        if inner.hole is None:
            return Setting(self.name, outer.filled(inner.value), reason)
        before = (*outer.before, *inner.hole.before)
        after = (*inner.hole.after, *outer.after)
        return extended(self.name, reason, before=before, after=after)


def extended(
    name: str, reason: str, *, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> Setting:
    """Return a search path with more entries than the node has in it: those leave a hole."""
    hole = Hole(name, before, after)
    return Setting(name, hole.shown, reason, known=False, hole=hole)


@record
class Word:
    """One word of a rank's command line, with its reason (empty: the user's own word)."""

    value: str
    reason: str = ""
    known: bool = True


@record
class Removal:
    """A name taken out of a rank's environment, `*` at its end for any rest, with the reason."""

    pattern: str
    reason: str


def unbuffered(environment: Mapping[str, str]) -> tuple[Setting, ...]:
    """Return what makes Python print at once, where the user has not decided about it."""
    setting = Setting("PYTHONUNBUFFERED", "1", "lines reach the log as they are printed")
    return () if setting.name in environment else (setting,)


def is_secret(name: str) -> bool:
    """Say whether a variable of this name is masked wherever it is printed."""
    upper = name.upper()
    return any(word in upper for word in SECRET_WORDS)


def is_variable_name(name: str) -> bool:
    """Say whether a shell can hold a variable of this name: letters, digits, `_`, ASCII only."""
    return bool(name) and name[0] in _NAME_START and NAME_CHARACTERS.issuperset(name)


def check_variable_name(name: str) -> str:
    """Return the name, or raise `BadValueError` (SB-03: `BAD-NAME` is refused)."""
    if not is_variable_name(name):
        raise BadValueError(
            f"{name!r} cannot be the name of an environment variable",
            "Use letters, digits and _, not starting with a digit, as in --env MY_NAME=value.",
        )
    return name


def check_one_line(what: str, value: str) -> str:
    """Return the value, or raise `BadValueError` where it holds a line break or control byte."""
    if any(ord(character) < ord(" ") or character == "\x7f" for character in value):
        raise BadValueError(
            f"{what} holds a line break or another control character: {value!r}",
            "Write it on one line.",
        )
    return value

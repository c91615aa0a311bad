"""A planned value together with the reason for it: what every plan is made of."""

from __future__ import annotations

from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD")
MASK = "********"


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

    @property
    def shown(self) -> str:
        """The value as it may be printed: masked where the name looks like a secret."""
        return MASK if is_secret(self.name) else self.value


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

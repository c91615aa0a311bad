"""What an option is: one declaration, beside the type of its value, from which all else is made.

The command line, the job file's keys, variables, `exec`'s words, paths made absolute and the pages
in docs/ are made from declarations by whoever needs them; this module knows none of them. It is
loaded with every rank.
"""

from __future__ import annotations

from slurm_adapter.errors import BadValueError
from slurm_adapter.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from typing_extensions import dataclass_transform

    T = TypeVar("T")

# The kinds of values: how a text is read as one, and what a path in it is relative to.
COUNT = "count"
COUNTS = "counts"
"""Whole numbers between commas."""
SECONDS = "seconds"
FLAG = "flag"
TEXT = "text"
CHOICE = "choice"
PATH_HERE = "path here"
"""A path where the command is typed."""
PATH_THERE = "path there"
"""A path where the ranks run."""
PATH_ON_NODE = "path on each node"
"""A path that may begin with a variable of each node."""
PROGRAM = "name or path there"
"""A name, or a path where the ranks run: what has a slash."""
IMAGE = "image"
"""The name of a container's image, or a file where the ranks run."""
LIST = "list"
"""Texts, one each time that the option is given."""
ARGUMENTS = "arguments"
"""A list of a program's own words; numbers among them may stand unquoted in a file."""
NAMES = "names"
"""A list that every layer adds to."""
MOUNTS = "mounts"
"""A list of SOURCE[:DESTINATION[:ro]], the sources where the ranks run."""
CHANNELS = "channels"
"""Names with a path where the ranks run, NAME=PATH each."""
VARIABLES = "variables"
"""NAME=VALUE to set, or NAME to keep, each."""
SBATCH = "sbatch options"
"""Long options of sbatch, NAME[=VALUE] each."""
COMPONENTS = "components"
"""Further nodes of another kind, words for each."""
NETWORK = "network"
"""What is said of the network, as `network.overrides` checks it."""

REPEATED = frozenset({LIST, ARGUMENTS, MOUNTS, CHANNELS, VARIABLES, SBATCH, COMPONENTS})
"""Kinds of which each text adds one to the value."""

_METAVARS = {COUNT: "N", SECONDS: "SECONDS"}
PREFIX = "SLURM_ADAPTER_"


@record
class Option:
    """One option, as it was declared."""

    name: str
    """The field that has its value."""
    help: str
    kind: str
    flags: tuple[str, ...] = ()
    """How it is spelled, the long name last; empty: only files have it, or it stands alone."""
    argument: str = ""
    """What it is called where it stands without a name, as SCRIPT does."""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    default: Any = None
    required: bool = False
    commands: tuple[str, ...] = ()
    """The commands that have it."""
    node: tuple[str, ...] = ()
    """Those of `exec` and `env` that have it: the words in a script are made for them."""
    variable: str = ""
    """The environment variable that may say it; empty: none."""
    key: str = ""
    """Its key in a job file, its table before a dot; empty: none."""
    example: str = ""
    """What is right for a file: the value, or what to write where it is a table."""
    job_field: str = ""
    """The field of a `Job` that has what it means, where that has another name."""
    implied: str | None = None
    """The value that is not written out for `exec`, which takes it by itself."""
    into: str = ""
    """The field of which its value becomes a part."""

    @property
    def long(self) -> str:
        """Its long name, or the only one it has."""
        return self.flags[-1] if self.flags else self.argument


_DECLARED: dict[type, tuple[Option, ...]] = {}


def option(help_text: str, *flags: str, kind: str, **more: Any) -> Any:
    """Declare the option of a field: what it is for, how it is spelled, and more of `Option`.

    `variable=True` names it by its long name. In a class whose options files may say its key is
    the field's name, unless `key` says otherwise (empty: none).
    """
    return {"help": help_text, "flags": flags, "kind": kind, **more}


if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True)
    def options(
        *, commands: tuple[str, ...] = (), node: tuple[str, ...] = (), keys: bool = False
    ) -> Callable[[type[T]], type[T]]:
        """Make a class of declared fields a record, its fields what stands for what is not said.

        Args:
            commands: those that have its options, unless a declaration names others.
            node: likewise of `exec` and `env`.
            keys: whether files may say them.
        """

else:

    def options(*, keys: bool = False, **common: Any) -> Callable[[type[T]], type[T]]:
        """Make a class of declared fields a record: see above."""

        def declare(cls: type[T]) -> type[T]:
            found = tuple(
                [
                    _declared(name, {**common, **cls.__dict__[name]}, keys=keys)
                    for name in cls.__annotations__
                ]
            )
            _DECLARED[cls] = found
            for one in found:
                setattr(cls, one.name, one.default)
            return record(cls)

        return declare


def _declared(name: str, said: dict[str, Any], *, keys: bool) -> Option:
    """Return an option with what its declaration leaves to its field, its kind and its class."""
    variable = said.get("variable")
    if variable:
        long = said["flags"][-1].removeprefix("--").upper().replace("-", "_")
        said["variable"] = PREFIX + (long if variable is True else variable)
    if keys:
        said.setdefault("key", name)
    metavar = "|".join(said.get("choices", ())) or _METAVARS.get(said["kind"], "")
    return Option(name=name, **{"metavar": metavar, **said})


def options_of(*classes: type) -> tuple[Option, ...]:
    """Return the options that classes declare, in order."""
    return tuple([one for cls in classes for one in _DECLARED[cls]])


def read_value(option: Option, texts: Sequence[str]) -> Any:
    """Return the value that texts make, the last one where an option takes one only.

    Raises:
        ValueError: with what the text is not.
        BadValueError: for one of several that is not whole.
    """
    kind = option.kind
    if kind in REPEATED:
        return _read_all(option, texts)
    text = texts[-1]
    if kind == COUNT:
        return _read(int, text, "whole number")
    if kind == COUNTS:
        return tuple([_read(int, one, "whole number") for one in text.split(",")])
    if kind == SECONDS:
        return _read(float, text, "number of seconds")
    return text


def _read(make: Callable[[str], T], text: str, what: str) -> T:
    try:
        return make(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a {what}") from error


def _read_all(option: Option, texts: Sequence[str]) -> Any:
    if option.kind == CHANNELS:
        return dict([_channel(option, text) for text in texts])
    if option.kind == SBATCH:
        pairs = [text.removeprefix("--").partition("=") for text in texts]
        return {name: value or None for name, _, value in pairs}
    return tuple(texts)


def _channel(option: Option, text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise BadValueError(
            f"{option.long} {text!r} names no path",
            f"Write {option.long} NAME=PATH, as in {option.long} data_url=/datasets/cifar10.",
        )
    return name, path

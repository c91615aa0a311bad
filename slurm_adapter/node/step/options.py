"""The options of `exec` and `env`, read by the table of options, and the job that they make.

A parser of our own: argparse costs a rank's start more than all that it does here.
"""

from __future__ import annotations

import os

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import Argv, Boot, Channel, Command, Job, Program, field_of, file_stem
from slurm_adapter.job.option import CHOICE, COUNT, FLAG, options_of, read_value
from slurm_adapter.job.options import CONTRACTS, JobOptions, StepOptions
from slurm_adapter.node.job_files import (
    check_requirements,
    find_pre_start,
    locate_boot,
    locate_code,
)
from slurm_adapter.paths import SITE_FILE, absolute, given, on_node, user_file
from slurm_adapter.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from slurm_adapter.job.option import Option


def step_options(action: str) -> dict[str, Option]:
    """Return the options of `exec` or `env` by their long names."""
    return {one.long: one for one in options_of(JobOptions, StepOptions) if action in one.node}


def read_words(action: str, words: Sequence[str]) -> tuple[JobOptions, StepOptions, list[str]]:
    """Return what words say, and those that are no options, with what follows them.

    Args:
        action: `exec` or `env`.
        words: `--NAME VALUE` or `--NAME=VALUE` each, or `--NAME` alone for a flag.

    Raises:
        BadValueError: for a value that is missing, or not what its option wants.
    """
    known = step_options(action)
    texts: dict[str, list[str]] = {}
    strays: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        name, equals, text = word.partition("=")
        if name not in known:
            strays.append(word)
        elif known[name].kind == FLAG:
            if equals:
                raise _wrong(action, name, f"ignored explicit argument {text!r}")
            texts[name] = []
        else:
            if not equals:
                if not rest or _is_option(rest[-1]):
                    raise _wrong(action, name, "expected one argument")
                text = rest.pop()
            texts.setdefault(name, []).append(text)
    values = {known[name].name: _value(action, known[name], one) for name, one in texts.items()}
    own = {one.name for one in options_of(StepOptions)} & values.keys()
    step = StepOptions(**{name: values.pop(name) for name in own})
    return job_options(values), step, strays


def _is_option(word: str) -> bool:
    """Say whether a word cannot be a value: it begins with a dash, and is no negative number."""
    return word.startswith("-") and len(word) > 1 and " " not in word and not word[1:].isdigit()


def _value(action: str, option: Option, texts: list[str]) -> Any:
    if option.kind == FLAG:
        return True
    if option.kind == CHOICE and texts[-1] not in option.choices:
        choices = ", ".join(map(repr, option.choices))
        found = f"invalid choice: {texts[-1]!r} (choose from {choices})"
        raise _wrong(action, option.long, found)
    try:
        return read_value(option, texts)
    except ValueError as error:
        found = f"invalid int value: {texts[-1]!r}" if option.kind == COUNT else str(error)
        raise _wrong(action, option.long, found) from error


def _wrong(action: str, name: str, found: str) -> BadValueError:
    return BadValueError(
        f"argument {name}: {found}", f"slurm-adapter {action} --help lists the options."
    )


def job_options(values: Mapping[str, Any]) -> JobOptions:
    """Return the layer that options of a command line make, values by the fields of the table.

    Raises:
        BadValueError: for what is said of the network and cannot be.
    """
    fields = dict(values)
    if "env" in fields:
        pairs, names = parse_environment(fields.pop("env"))
        fields |= {**({"env": pairs} if pairs else {}), **({"keep": names} if names else {})}
    network = [fields.pop(one.name, None) for one in _OF_NETWORK]
    if any(network):
        from slurm_adapter.network.overrides import from_options

        choice, suffix, pairs = network
        fields["network"] = from_options(choice, suffix, pairs or ())
    return JobOptions(**fields)


_OF_NETWORK = [one for one in options_of(JobOptions) if one.into == "network"]


def step_job(options: JobOptions, step: StepOptions, words: Sequence[str], base: str) -> Job:
    """Return the job that options and the words after `--` describe."""
    gpus = step.gpus_by_component
    more: dict[str, Any] = {
        "gpus_per_node": gpus[0] if len(gpus) == 1 else None,
        "gpus_by_component": gpus if len(gpus) > 1 else (),
        "network": _network(options.network),
    }
    if options.boot is not None and options.command is not None:
        raise BadValueError("--boot and --command are two programs", "Give one of them.")
    options = replace(options, args=tuple(words))
    if options.boot is None and options.command is None:
        if not words:
            raise BadValueError(
                "nothing to run was given",
                "slurm-adapter exec --boot train.py -- --epochs 5   or   slurm-adapter exec --"
                " COMMAND",
            )
        more |= {"program": Argv(tuple(words)), "args": ()}
    return make_job(options, base, more)


def make_job(options: JobOptions, base: str, more: Mapping[str, Any]) -> Job:
    """Return the job that options describe; relative paths are meant from `base`.

    Args:
        options: what was said.
        base: a folder, absolute.
        more: fields of the job in place of those that the options make, or beside them.

    Raises:
        BadValueError: for the first thing that cannot be meant.
    """
    code = locate_code(options.code, base) if options.code is not None else None
    program: Program | None = None
    stem = "job"
    if options.boot is not None:
        boot, code = locate_boot(options.boot, code, base)
        program, stem = Boot(boot), os.path.splitext(os.path.basename(boot))[0]
    elif options.command is not None:
        program = Command(options.command)
    name = stem if options.name is None else options.name
    optional = {
        "contract": options.contract,
        "elastic": _elastic(options.elastic),
        "python": interpreter(options.python, base) if options.python else None,
    }
    fields = {
        "program": program,
        "code": code or base,
        "folder": job_folder(name, options.job_folder, base),
        "name": name,
        "args": options.args or (),
        "max_restarts": options.max_restarts,
        "ranks_by": options.ranks_by,
        "env": options.env or {},
        "keep": options.keep or (),
        "inputs": _channels(options.inputs, base),
        "outputs": _channels(options.outputs, base),
        "channels_as": options.channels,
        "port": options.port,
        "network": options.network or {},
        "view": options.view,
        "cache": options.cache and on_node(options.cache, base),
        "install_requirements": bool(options.install_requirements),
        **_without_field(options),
        **{field: value for field, value in optional.items() if value is not None},
        **more,
    }
    pre_start = find_pre_start(fields["program"], options.contract or CONTRACTS[0])
    job = Job(pre_start=pre_start, **fields)
    check_requirements(job)
    return job


def _without_field(options: JobOptions) -> dict[str, JobOptions]:
    """Return what ranks are told of, too, and a job has no field for."""
    mine = [one.name for one in options_of(JobOptions) if one.node and not field_of(one)]
    said = {name: value for name in mine if (value := getattr(options, name)) is not None}
    return {"options": JobOptions(**said)} if said else {}


def _elastic(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    from slurm_adapter.contracts.elastic import read_elastic

    return read_elastic(text)


def _network(overrides: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return what options say of the network, over what files of this node say."""
    files = [SITE_FILE, user_file(os.environ)]
    files = [path for path in files if os.path.exists(path)]
    if files:
        from slurm_adapter.node.facts.site_file import network_overrides

        return network_overrides(files, dict(overrides or {}))
    return overrides or {}


def job_folder(name: str, folder: str | None, base: str) -> str:
    """Return a job's folder: the one given, else `slurm-adapter/NAME` in `base`."""
    return absolute(folder or f"slurm-adapter/{file_stem(name)}", base)


def interpreter(program: str, base: str) -> str:
    """Return the interpreter: a path made absolute, or a name for the rank's PATH."""
    return absolute(program, base) if "/" in program else program


def parse_environment(texts: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return (variables to set, names to keep) from `NAME=VALUE` and `NAME` texts."""
    values: dict[str, str] = {}
    keep: list[str] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if equals:
            values[name] = value
        else:
            keep.append(name)
    return values, tuple(keep)


def _channels(paths: Mapping[str, str] | None, base: str) -> tuple[Channel, ...]:
    return tuple([Channel(name, given(path, base)) for name, path in (paths or {}).items()])

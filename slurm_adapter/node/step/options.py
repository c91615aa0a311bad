"""The options that `exec` and `env` share, as argparse reads them, and the job they make."""

from __future__ import annotations

import argparse
import os

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.job import (
    CONTRACTS,
    DELIVERIES,
    STARTERS,
    VIEWS,
    Argv,
    Boot,
    Channel,
    Command,
    Job,
    Program,
    file_stem,
)
from slurm_adapter.node.job_files import (
    check_requirements,
    find_pre_start,
    locate_boot,
    locate_code,
)
from slurm_adapter.paths import SITE_FILE, absolute, given, on_node, user_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, NoReturn


_HELP_WIDTH = 96


class Parser(argparse.ArgumentParser):
    """argparse with our kind of error: what was found, what to type, no usage dump."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and leaving."""
        raise BadValueError(message, f"{self.prog} --help lists the options.")


# Our words are English: argparse's are not to be looked for in catalogues of other languages.
setattr(argparse, "_", str)  # noqa: B010 - it is private there


class HelpFormatter(argparse.HelpFormatter):
    """argparse's own, but told its width: it makes one for each option, and would load shutil."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=_HELP_WIDTH)


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which job this rank belongs to."""
    add = parser.add_argument
    add("--boot", metavar="FILE", help="boot file; the contract's options are appended")
    add("--command", metavar="TEXT", help="boot command for /bin/sh -c; nothing is appended")
    add("--code", metavar="DIR", help="code directory (default: the boot file's)")
    add("--contract", choices=CONTRACTS, default=CONTRACTS[0], help="default: %(default)s")
    add("--elastic", metavar="MIN:MAX", help="torchrun: go on with MIN nodes of MAX")
    add("--max-restarts", type=int, metavar="N", help="torchrun: start ranks again after failures")
    add("--ranks-by", choices=STARTERS, help="env: who starts a rank for each GPU (default: slurm)")
    add("--name", metavar="NAME", help="the job's name (default: the boot file's)")
    add("--job-folder", metavar="DIR", help="the job's folder (default: slurm-adapter/NAME)")
    add("--input", metavar="NAME=PATH", action="append", default=[], help="an input channel")
    add("--output", metavar="NAME=PATH", action="append", default=[], help="an output channel")
    add("--channels", choices=DELIVERIES, help="how the script gets them (default: by program)")
    add(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="set a variable, or keep one that the contract takes out",
    )
    add("--port", type=int, metavar="N", help="rendezvous port (default: from job and step id)")
    add("--python", metavar="PROGRAM", default="python", help="interpreter (default: %(default)s)")
    add(
        "--gpus-per-node",
        type=gpu_numbers,
        default=(),
        metavar="N[,N]",
        help="overrules what Slurm says; of a heterogeneous job one for each component",
    )
    add("--network", metavar="SUBNET|IFNAME", help="how nodes meet (default: the kernel's way)")
    add("--master-suffix", metavar="SUFFIX", help="end of the nodes' names on that network")
    add(
        "--network-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="what else the site knows: storage_hcas, rails, gid_index, traffic_class, timeout",
    )
    add("--view", choices=VIEWS, help="the rank's surroundings (default: by contract)")
    add("--cache", metavar="DIR", help="shown as /cache (default: one in the job's folder)")
    add(
        "--in-container",
        action="store_true",
        help="in an image: what it sets itself is not taken for yours",
    )
    add(
        "--install-requirements",
        action="store_true",
        help="install the code's pip-requirements.txt for this run",
    )


def job_from(options: argparse.Namespace, words: Sequence[str], base: str) -> Job:
    """Return the job that options and the words after `--` describe."""
    code = locate_code(options.code, base) if options.code is not None else None
    program: Program
    args = tuple(words)
    stem = "job"
    if options.boot is not None and options.command is not None:
        raise BadValueError("--boot and --command are two programs", "Give one of them.")
    if options.boot is not None:
        boot, code = locate_boot(options.boot, code, base)
        program, stem = Boot(boot), os.path.splitext(os.path.basename(boot))[0]
    elif options.command is not None:
        program = Command(options.command)
    elif words:
        program, args = Argv(args), ()
    else:
        raise BadValueError(
            "nothing to run was given",
            "slurm-adapter exec --boot train.py -- --epochs 5   or   slurm-adapter exec -- COMMAND",
        )
    env, keep = parse_environment(options.env)
    name = options.name or stem
    job = Job(
        program=program,
        code=code or base,
        folder=job_folder(name, options.job_folder, base),
        name=name,
        args=args,
        gpus_per_node=options.gpus_per_node[0] if len(options.gpus_per_node) == 1 else None,
        gpus_by_component=options.gpus_per_node if len(options.gpus_per_node) > 1 else (),
        contract=options.contract,
        elastic=_elastic(options.elastic),
        max_restarts=options.max_restarts,
        ranks_by=options.ranks_by,
        env=env,
        keep=keep,
        inputs=parse_channels(options.input, "--input", base),
        outputs=parse_channels(options.output, "--output", base),
        channels_as=options.channels,
        python=interpreter(options.python, base),
        port=options.port,
        network=_network(options),
        view=options.view,
        cache=options.cache and on_node(options.cache, base),
        pre_start=find_pre_start(program, options.contract),
        install_requirements=options.install_requirements,
    )
    check_requirements(job)
    return job


def gpu_numbers(text: str) -> tuple[int, ...]:
    """Return one number, or one for each component of a heterogeneous job: `4,2`."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of GPUs") from error


def _elastic(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    from slurm_adapter.contracts.elastic import read_elastic

    return read_elastic(text)


def _network(options: argparse.Namespace) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    if options.network or options.master_suffix or options.network_option:
        from slurm_adapter.network.overrides import from_options

        hints = from_options(options.network, options.master_suffix, options.network_option)
    files = [SITE_FILE, user_file(os.environ)]
    files = [path for path in files if os.path.exists(path)]
    if files:
        from slurm_adapter.node.facts.site_file import network_overrides

        return network_overrides(files, hints)
    return hints


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


def parse_channels(texts: Iterable[str], option: str, base: str) -> tuple[Channel, ...]:
    """Return channels from `NAME=PATH` texts, the paths made absolute from `base`."""
    channels = []
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise BadValueError(
                f"{option} {text!r} names no path",
                f"Write {option} NAME=PATH, as in {option} data_url=/datasets/cifar10.",
            )
        channels.append(Channel(name, given(path, base)))
    return tuple(channels)

"""The node side's own small command line: `exec` and `env` inside a Slurm step.

No library of the head's: a rank starts in milliseconds, on a node with nothing installed.
"""

from __future__ import annotations

import os
import sys

from slurm_adapter.contracts import contract_of
from slurm_adapter.errors import AdapterError, BadValueError, NotAStepError
from slurm_adapter.job.options import ENV_FORMATS
from slurm_adapter.node.job_files import working_directory
from slurm_adapter.node.step.options import read_words, step_job, step_options
from slurm_adapter.setting import MASK, is_secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_adapter.job.job import Job
    from slurm_adapter.job.options import JobOptions
    from slurm_adapter.node.step.step import Ready

ACTIONS = {
    "exec": "Inside a Slurm step: set up this rank, then become its command.",
    "env": "Inside a Slurm step: print this rank's variables and the reason for each.",
}
_NAME_WIDTH = 24


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `exec` or `env`; return the exit status (`exec` only returns where it failed)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except KeyboardInterrupt:
        return 130
    except AdapterError as error:
        from slurm_adapter.output import complain

        return complain(error)


def _run(words: list[str]) -> int:
    action, *ours = words or [""]
    if action == "finish":
        from slurm_adapter.node.step.finish import main as finish

        return finish(ours)
    if action not in ACTIONS:
        raise BadValueError(
            f"{action!r} is no action of the node side",
            f"Use one of: {', '.join(ACTIONS)}; slurm-adapter exec --help tells more.",
        )
    ours, command = _split(ours)
    if {"-h", "--help"} & set(ours):
        from slurm_adapter.output import write_stdout

        write_stdout(_help(action))
        return 0
    options, own, strays = read_words(action, ours)
    if strays:
        from slurm_adapter.quoting import shell_words  # only for words

        raise BadValueError(
            f"{strays[0]!r} is no option of slurm-adapter {action}",
            "A command, or a script's own arguments, stand after --: slurm-adapter"
            f" {shell_words([action, *_sorted_out(options, ours, strays), *command])}",
        )
    if action == "env" and not command and options.boot is None and options.command is None:
        command = ["true"]  # the variables do not depend on what would be run
    job = step_job(options, own, command, working_directory())
    from slurm_adapter.node.step import step  # not needed where the options are wrong

    environment = _environment(job, in_container=own.in_container)
    try:
        ready = step.plan_rank(job, environment, only_try=action == "env")
    except NotAStepError as error:
        remedy = _srun_line(error.remedy, job, words)
        raise NotAStepError(error.found, remedy) from error
    for warning in ready.warnings:
        from slurm_adapter.output import say

        say(f"warning: {warning}")
    if action == "env":
        return _show(ready, environment, own.format)
    if job.node_starts_ranks:
        from slurm_adapter.node.step.node_ranks import run_ranks

        return run_ranks(ready, environment, log=own.log)
    from slurm_adapter.node.step.become import become

    return become(ready, environment, log=own.log)


def _show(ready: Ready, environment: Mapping[str, str], form: str) -> int:
    from slurm_adapter.node.step.environment import render
    from slurm_adapter.output import write_stdout

    rank = ready.rank
    if form != ENV_FORMATS[0]:  # for a shell or a program, which stays outside the view
        rank = ready.plan.with_view("off").rank(rank.rank, rank.node_index, rank.local_rank)
    network = None if ready.network is None else ready.network.row(rank.node.name)
    write_stdout(render(form, rank, environment, network))
    return 0


def _environment(job: Job, *, in_container: bool) -> Mapping[str, str]:
    """Return what the rank inherits: the task's own, in a container as the user means it."""
    if not in_container:
        return os.environ
    from slurm_adapter.node.step.container import as_meant

    return as_meant(os.environ, (*job.env, *job.keep))


def _sorted_out(options: JobOptions, ours: list[str], strays: list[str]) -> list[str]:
    """Return what was probably meant: our options, the boot file, `--`, the script's arguments."""
    kept = [word for word in ours if word not in strays]
    programless = options.boot is None and options.command is None
    if programless and strays[0].endswith(".py"):
        boot, *strays = strays
        kept += ["--boot", boot]
    return [*kept, "--", *strays] if strays else kept


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split at the first `--`: what stands after it belongs to the user's program."""
    if "--" not in words:
        return words, []
    position = words.index("--")
    return words[:position], words[position + 1 :]


def _help(action: str) -> str:
    """Return what `--help` prints: a line for each option, from the table."""
    lines = [
        f"usage: srun ... slurm-adapter {action} [options] [--boot FILE] -- [arguments or COMMAND]",
        "",
        ACTIONS[action],
        "",
        "options:",
        "  -h, --help                show this and exit",
    ]
    for one in step_options(action).values():
        spelled = f"{one.long} {one.metavar}".rstrip()
        apart = [f"  {spelled}"] if len(spelled) > _NAME_WIDTH else []
        first = "" if apart else spelled
        lines += [*apart, f"  {first:{_NAME_WIDTH}}  {one.help}"]
    return "\n".join(lines) + "\n"


def _srun_line(remedy: str, job: Job, words: list[str]) -> str:
    """Return the very command that was typed, with srun before it (SL-07)."""
    from slurm_adapter.quoting import shell_words  # only for words

    srun = remedy.partition(" slurm-adapter")[0]
    # Tasks for all GPUs: as many as the job asked for.
    if contract_of(job).per_gpu and not job.node_starts_ranks and "--het-group" not in srun:
        srun = "srun --kill-on-bad-exit=1"
    return f"Start it with srun: {srun} slurm-adapter {shell_words(map(_masked, words))}"


def _masked(word: str) -> str:
    """Hide the value of `--env NAME=VALUE` where the name looks like a secret."""
    option, given = ("--env=", word[6:]) if word.startswith("--env=") else ("", word)
    name, equals, _ = given.partition("=")
    return f"{option}{name}={MASK}" if equals and is_secret(name) else word

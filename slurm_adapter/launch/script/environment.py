"""Modules, an environment and the user's own lines: what a batch script does before its srun.

All of it runs in the batch script, on the job's first node alone. What it leaves in variables
reaches the ranks of all nodes by srun's --export=ALL; what it does to one node does not.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError
from slurm_adapter.quoting import shell_words
from slurm_adapter.setting import check_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurm_adapter.job.job import Job

# Lines of others may do without what `set -u` asks for; the script's own go on under it.
_BEGIN = """
# What others wrote may read variables that are not set.
set +u
"""
_END = "set -u\n"
# RHEL, Debian and Lmod name their files in profile.d differently; all have one of these words.
_MODULES = """\
# A batch shell reads no profile, which is what defines `module`.
if ! type module &> /dev/null; then
    for __profile in "${MODULESHOME:-/usr/share/modules}"/init/bash \\
        /etc/profile.d/*{module,lmod}*.sh; do
        # shellcheck source=/dev/null
        [[ ! -r $__profile ]] || . "$__profile" || true
    done
fi
"""
_VENV = "# `python` is the virtual environment's own from here on.\n"
# conda is on no PATH where only a login shell's function knew it; CONDA_EXE is still passed on.
_CONDA = """\
# `conda activate` is a function of the shell, which conda itself has to define first.
type -P conda &> /dev/null || PATH=$PATH${CONDA_EXE:+:${CONDA_EXE%/*}}
eval "$(conda shell.bash hook)" || true
"""
_PROLOGUE = "# Your own lines.\n"
_LATE_DIRECTIVE = re.compile(r"^\s*#SBATCH\b", re.MULTILINE)


def environment_lines(job: Job) -> Iterator[str]:
    """Yield the lines of a batch script that make the job's environment; none where none is asked.

    Each part ends the job where it fails: a rank would go on with the wrong Python (SB-10).

    Raises:
        BadValueError: for names that cannot be meant, two environments, and lines of the user's
            that would change what stands after them.
    """
    text = "".join((*_modules(job.modules), *_environment(job), *_prologue(job.prologue)))
    if text:
        yield from f"{_BEGIN}{text}{_END}".removesuffix("\n").split("\n")


def check_syntax(prologue: Sequence[str]) -> None:
    """Ask bash whether it can read the user's lines; without a bash here nothing is said.

    Raises:
        BadValueError: with bash's own words: the job would end with them in the queue's time.
    """
    if not prologue:
        return
    text = "".join(_prologue(prologue)).removeprefix(_PROLOGUE)
    try:
        read = subprocess.run(
            ["bash", "-n"],
            input=text.encode(errors="surrogateescape"),
            env={"LC_ALL": "C"},  # no warning of a language that is not installed here
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        return
    if read.returncode or read.stderr:  # an open here-document is a warning only
        said = read.stderr.decode(errors="replace").splitlines()[0].removeprefix("bash: ")
        raise BadValueError(
            f"the prologue cannot be read by bash: {said}",
            "Give whole commands, as in --prologue 'ulimit -n 65536'.",
        )


def warn_of_venv(job: Job) -> tuple[str, ...]:
    """Return a warning where the job's virtual environment is not here: it may be on the nodes."""
    script = Path(f"{job.venv}/bin/activate")
    if job.venv is None or script.is_file():
        return ()
    return (f"{script} is not on this machine: the job ends at once if its node has none either",)


def _modules(names: Sequence[str]) -> Iterator[str]:
    if not names:
        return
    for name in names:
        if not name or name.startswith("-") or any(letter.isspace() for letter in name):
            raise BadValueError(
                f"{name!r} cannot be a module's name",
                "Give one name each time, as in --module gcc/12 --module cuda/12.4.",
            )
        check_one_line("a module's name", name)
    yield _MODULES
    yield f"{shell_words(['module', 'load', *names])} || exit\n"


def _environment(job: Job) -> Iterator[str]:
    if job.venv is not None and job.conda is not None:
        raise BadValueError("venv and conda are two environments", "Give one of them.")
    if job.venv is not None:
        _check_place("--venv", job.venv, "the environment's directory, as in --venv ~/venv")
        yield _VENV
        yield f"{shell_words(['.', f'{job.venv}/bin/activate'])} || exit\n"
    if job.conda is not None:
        _check_place("--conda", job.conda, "an environment's name or path, as in --conda train")
        yield _CONDA
        yield f"{shell_words(['conda', 'activate', job.conda])} || exit\n"


def _check_place(option: str, value: str, what: str) -> None:
    check_one_line(f"the value of {option}", value)
    if not value.strip() or value.startswith("-"):
        raise BadValueError(f"{option} {value!r} names no environment", f"Give {what}.")


def _prologue(texts: Sequence[str]) -> Iterator[str]:
    """Yield the user's lines as they are, the only text that is taken as shell."""
    if not texts:
        return
    yield _PROLOGUE
    for text in texts:
        lines = text.removesuffix("\n")
        if "\r" in lines or "\0" in lines:
            raise BadValueError(
                f"the prologue {text!r} holds a byte that no batch script may",
                "Take it out; lines end with a line feed alone.",
            )
        if _LATE_DIRECTIVE.search(lines):
            raise BadValueError(
                "a #SBATCH line in the prologue would be passed over: it stands after commands",
                "Give it as --sbatch NAME=VALUE.",
            )
        if (len(lines) - len(lines.rstrip("\\"))) % 2:
            raise BadValueError(
                f"the prologue {text!r} ends in a backslash, which would swallow the line after it",
                "Take it out.",
            )
        yield f"{lines}\n"

"""An image for a job's ranks: how srun's tasks get into it, and what of the job they see there.

Inside, the node side becomes the rank as it does anywhere: names, directories and variables are
made there, after the image's own. So a runtime is told no more than the image and the mounts.
Pure: which runtime a machine has is found out by `slurm.py`.

Sources: pyxis' own options (srun --help there), apptainer-exec(1). Neither runs on our machines:
what they do with the words is theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_adapter.errors import BadValueError
from slurm_adapter.job.options import CONTAINER_RUNTIMES
from slurm_adapter.node.step.container import PREFIX
from slurm_adapter.quoting import copy_line
from slurm_adapter.setting import check_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_adapter.job.component import HetComponent
    from slurm_adapter.job.job import Container, Job

_PYXIS = "pyxis"
# Both write mounts as SOURCE:DESTINATION, pyxis many in one word, as lines of an fstab.
_SPLITTING = ':,"\\'
_SPLITTING_PYXIS = _SPLITTING + " \t"
# Options that would take Slurm's variables, or its processes, from the ranks.
_BARRING = ("--cleanenv", "--containall", "--compat", "--pid", "-e", "-C", "-p")
_OWN = ("--container-image", "--container-mounts", "--container-workdir")
_MODES = ("ro", "rw")
_GPU_OPTIONS = ("--nv", "--nvccli", "--rocm")


def check_container(job: Job) -> None:
    """Refuse what cannot be meant.

    Raises:
        BadValueError: with the remedy.
    """
    container = job.container
    if container is None:
        return
    image = check_one_line("the image's name", container.image)
    if not image.strip() or image.startswith("-"):
        raise BadValueError(
            f"--container {image!r} names no image",
            "Give a file or a registry's name, as in --container /images/pytorch.sif.",
        )
    if container.runtime is not None and container.runtime not in CONTAINER_RUNTIMES:
        raise BadValueError(
            f"there is no container runtime {container.runtime!r}",
            f"Choose one of: {', '.join(CONTAINER_RUNTIMES)}.",
        )
    for option, given in (("--venv", job.venv), ("--conda", job.conda)):
        if given is not None:
            raise BadValueError(
                f"{option} is an environment of the machine, and the ranks run in {image}",
                "Leave one of them out; --python names another interpreter of the image.",
            )
    _check_options(container)
    for _ in _mounts(job, container):
        pass


def srun_options(job: Job) -> list[list[str]]:
    """Return what srun itself is told of the image, a list of words for each line: pyxis' options.

    They are said for each component of a heterogeneous job.
    """
    container = job.container
    if container is None or container.runtime != _PYXIS:
        return []
    return [
        [f"--container-image={container.image}"],
        [f"--container-mounts={','.join(_mounts(job, container))}"],
        [f"--container-workdir={job.code}"],
        *([option] for option in container.options),
    ]


def program_words(job: Job) -> list[list[str]]:
    """Return what stands between srun and the node side, a list of words for each line."""
    container = job.container
    if container is None or container.runtime == _PYXIS:
        return []
    kinds: list[Job | HetComponent] = [job, *job.components]
    cards = any(one.accelerator == "gpu" and one.gpus_per_node != 0 for one in kinds)
    driver = ["--nv"] if cards and not {*_GPU_OPTIONS} & {*container.options} else []
    return [
        [str(container.runtime), "exec", *driver, *container.options],
        *([f"--bind={mount}"] for mount in _mounts(job, container)),
        [f"--pwd={job.code}"],
        [container.image],
    ]


def handed_over(job: Job) -> Iterator[str]:
    """Yield the lines that hand the user's variables to the node side, whatever the image sets."""
    names = (*job.env, *job.keep)
    if not names:
        return
    yield ""
    yield "# Under names that no image sets: the job's own values win inside."
    for name in names:
        yield copy_line(PREFIX + name, name)


def interpreter(job: Job) -> str:
    """Return the image's interpreter that runs the node side."""
    return "python3" if job.python == "python" else job.python


def _check_options(container: Container) -> None:
    for option in container.options:
        check_one_line("an option of the container runtime", option)
        name = option.partition("=")[0]
        if not option.startswith("-") or (container.runtime == _PYXIS and name in _OWN):
            raise BadValueError(
                f"--container-option {option!r} is no option that can be added",
                "Give one word each time, as in --container-option=--rocm.",
            )
        if name in _BARRING:
            raise BadValueError(
                f"--container-option {option} would keep Slurm's variables or processes from the"
                " ranks, which learn their place by them",
                "Leave it out.",
            )


def _mounts(job: Job, container: Container) -> Iterator[str]:
    """Yield the job's own directories that are not in one another, then the user's mounts."""
    splitting = _SPLITTING_PYXIS if container.runtime == _PYXIS else _SPLITTING
    cache = [job.cache] if job.cache is not None and "$" not in job.cache else []
    own = [job.code, job.folder, *(channel.path for channel in job.channels), *cache]
    for path in own:
        if any(letter in splitting for letter in path):
            raise BadValueError(
                f"{path} cannot be mounted into a container: its name holds one of"
                f" {' '.join(map(repr, splitting))}",
                "Name a directory without (--code, --job-folder, --input, --output).",
            )
    for path in dict.fromkeys(own):
        if not any(path.startswith(f"{other}/") for other in own):
            yield f"{path}:{path}"
    for text in container.mounts:
        yield _mount(text, splitting)


def _mount(text: str, splitting: str) -> str:
    check_one_line("a mount", text)
    source, target, mode = _parts(text.split(":"))
    plain = not any(letter in splitting for letter in source + target)
    if plain and mode in _MODES and source.startswith("/") and target.startswith("/"):
        return f"{source}:{target}" if mode == "rw" else f"{source}:{target}:{mode}"
    raise BadValueError(
        f"--container-mount {text} is not understood",
        "Write SOURCE, SOURCE:DESTINATION or SOURCE:DESTINATION:ro with absolute paths, as in"
        " --container-mount /datasets:/data:ro.",
    )


def _parts(parts: list[str]) -> tuple[str, str, str]:
    match parts:
        case [source]:
            return source, source, "rw"
        case [source, target]:
            return source, target, "rw"
        case [source, target, mode]:
            return source, target, mode
    return "", "", ""

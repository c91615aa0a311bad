"""`slurm-adapter sbatch`: write the script, submit it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from slurm_adapter.cli.report import boot_warnings, check_format, print_dry_run, say, warn
from slurm_adapter.cli.request import job_from_layers, settings_of
from slurm_adapter.cluster.cluster import Cluster, Node, Run
from slurm_adapter.cluster.hostlist import expand_hostlist
from slurm_adapter.contracts import wanted_view
from slurm_adapter.errors import BadValueError
from slurm_adapter.launch import slurm
from slurm_adapter.launch.batch.records import BatchRecord, keep, state_folder
from slurm_adapter.launch.directives import tasks_per_node
from slurm_adapter.launch.environment import check_syntax, warn_of_venv
from slurm_adapter.launch.life import CHAIN
from slurm_adapter.launch.logpath import log_file
from slurm_adapter.launch.parts import jobs_of_parts
from slurm_adapter.launch.runtime import in_container, warn_of_image
from slurm_adapter.launch.sbatch import HEADER, Script, make_script
from slurm_adapter.launch.snapshot import folder_of, planned, take
from slurm_adapter.launch.zipapp import write_zipapp, zipapp_name
from slurm_adapter.network.choose import not_known_yet
from slurm_adapter.node.program import working_directory
from slurm_adapter.output import write_stdout
from slurm_adapter.plan import Plan, make_plan
from slurm_adapter.quoting import shell_words
from slurm_adapter.setting import unbuffered
from slurm_adapter.show.dryrun import DryRun, SlurmAnswer, made_on_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurm_adapter.job import Job

_HEAD_BYTES = 200


def run_sbatch(
    common: dict[str, Any],
    *,
    options: list[str],
    script_file: str | None,
    parsable: bool,
    preview_nodes: str | None,
    snapshot: bool,
    stay: str,
    own: Mapping[str, Any],
) -> int:
    """Write the script, submit it, and return the exit status.

    `stay` is `follow` or `wait` where the command stays until the job has ended; `own` are the
    options that are keys of a job file, too.
    """
    check_format(common["format"])
    job = job_from_layers(settings_of(common, options, own), common["job"])
    check_syntax(job.prologue)
    job = in_container(job)
    if script_file is None:
        job.check_kept(os.environ)
    code, program = job.code, job.program
    if snapshot:
        job = planned(job)
    made = make_script(
        job, adapter_words(), working_directory(), slurm.site_options(), zipapp_name()
    )
    plan = make_plan(job, _preview(job, preview_nodes), _preview_run(job))
    warnings = (*plan.warnings, *made.warnings, *boot_warnings(plan, program))
    warnings += (*warn_of_venv(job), *warn_of_image(job))
    path = Path(job.folder) / f"{job.file_stem}.sbatch"
    if common["dry_run"]:
        print_dry_run(_dry_run(plan, made, path, warnings), common["format"])
        return 0
    if snapshot:
        warnings += take(code, job)
    if not common["quiet"]:
        warn(warnings)
    if script_file is not None:
        return _only_write(job, made, script_file, quiet=common["quiet"])
    slurm.make_folders(made)
    if job.container is not None:
        write_zipapp(job.folder)
    slurm.write_script(made, path)
    submissions = list(_submit(made, path))
    sys.stderr.write(submissions[0].said)
    sys.stderr.flush()
    write_stdout(f"{submissions[0].job_id if parsable else submissions[0].line}\n")
    if not common["quiet"]:
        _tell(plan, made, submissions[0], path if common["verbose"] else None)
    records = _keep(plan, made, submissions, folder_of(job) if snapshot else "")
    if not stay:
        return submissions[0].status
    from slurm_adapter.cli.batch import follow  # noqa: PLC0415 - most do not stay

    return follow(records[0], output=stay == "follow")


def _tell(plan: Plan, made: Script, submission: slurm.Submission, path: Path | None) -> None:
    """Say where the job writes; where its script is, too, where that is wanted."""
    job, log = plan.job, made.summary["output"] or ""
    if plan.contract.names_workers:
        say(f"output: {job.log_folder}/{plan.workers.log_name(0).replace('-0.', '-<index>.')}")
    say(f"the job's log: {log.replace('%j', submission.job_id)}")
    if path is not None:
        say(f"script: {path}")


def _submit(made: Script, path: Path) -> Iterator[slurm.Submission]:
    """Submit a script, and after it those jobs that may have to go on where it has to stop."""
    chain = {CHAIN: uuid4().hex} if made.resubmissions else {}
    submission = slurm.submit(made, path, chain)
    yield submission
    for _ in range(made.resubmissions):
        submission = slurm.submit(made, path, chain, after=submission.job_id)
        yield submission


def _keep(
    plan: Plan, made: Script, submissions: Sequence[slurm.Submission], snapshot: str
) -> list[BatchRecord]:
    """Keep a record of each job that was submitted, and return them."""
    job, log = plan.job, made.summary["output"] or ""
    base = str(Path(working_directory()) / (made.summary.get("chdir") or ""))
    ids = [one.job_id for one in submissions]
    records = [
        BatchRecord(
            job_id=one.job_id,
            cluster=one.cluster,
            name=job.name,
            folder=job.folder,
            log=log_file(log, base, one.job_id),
            nodes=job.all_nodes,
            ranks=plan.script_world_size,
            node_logs=plan.contract.names_workers,
            submitted_s=time.time(),
            then=tuple(ids[position:]),
            snapshot=snapshot,
        )
        for position, one in enumerate(submissions, 1)
    ]
    for record in records:
        keep(state_folder(os.environ), record, say)
    return records


def adapter_words() -> list[str]:
    """Return what starts slurm-adapter on a node: the absolute path of this very program.

    A path, because nodes need not have the same PATH; the installed command rather than
    `python -m`, which would put the working directory, and any `types.py` in it, before the
    standard library.
    """
    beside = Path(sys.executable).with_name("slurm-adapter")
    if beside.is_file():
        return [str(beside)]
    return [sys.executable, "-m", "slurm_adapter.node"]


def _preview(job: Job, names: str | None) -> Cluster:
    """Return the nodes as far as they are known before Slurm has chosen any."""
    count = job.all_nodes
    if names is None:
        shown = [f"<node {index}>" for index in range(count)]
    else:
        shown = expand_hostlist(names)
        if len(shown) != count:
            raise BadValueError(
                f"--preview-nodes {names} names {len(shown)} nodes, the job wants {count}",
                f"Give {count} names" + ("." if job.parts else f", or --nodes {len(shown)}."),
            )
    settings = not_known_yet(os.environ) if count > 1 else ()
    kinds = [one for one in jobs_of_parts(job) for _ in range(one.nodes)]
    nodes = []
    for name, kind in zip(shown, kinds, strict=True):
        tasks = tasks_per_node(kind)
        nodes.append(
            Node(
                name,
                gpus=kind.gpus_per_node,
                gpus_reason="asked for" if kind.gpus_per_node is not None else "",
                tasks=None if job.node_starts_ranks else tasks,
                settings=settings,
                view=wanted_view(job, tasks),
            )
        )
    return Cluster(tuple(nodes), "the job", known=names is not None)


def _preview_run(job: Job) -> Run:
    """Return what is known of the run before it starts: the port, where it is the user's."""
    settings = unbuffered(os.environ)
    wanted = job.wanted_port(os.environ)
    return Run(settings=settings) if wanted is None else Run(None, *wanted, settings=settings)


def _dry_run(plan: Plan, script: Script, path: Path, warnings: tuple[str, ...]) -> DryRun:
    answer = None
    if slurm.have_sbatch():
        answer = SlurmAnswer(*slurm.test_only(script))
    folders = (f"{folder}/" for folder in script.folders)
    own = [f"{plan.job.folder}/{zipapp_name()}"] if plan.job.container is not None else []
    files = (*folders, str(path), *own, *made_on_nodes(plan))
    return DryRun(plan, files, script, answer, warnings)


def _script_path(file: str) -> Path:
    """Return where to write a script that the user names; nothing else is overwritten."""
    path = Path(os.path.realpath(file))
    if not file or path.is_dir() or not path.parent.is_dir():
        raise BadValueError(
            f"{file!r} cannot be the script's file: its folder is not there, or it is one",
            "Give a file in an existing folder, as in --script train.sbatch.",
        )
    if path.is_file() and HEADER not in path.read_bytes()[:_HEAD_BYTES]:
        raise BadValueError(
            f"{file} is there and was not written by slurm-adapter",
            "Take it away first, or give another file with --script.",
        )
    return path


def _only_write(job: Job, script: Script, file: str, *, quiet: bool) -> int:
    if job.container is not None:
        write_zipapp(job.folder)
    if file == "-":
        write_stdout(script.text)
    else:
        slurm.make_folders(script)
        slurm.write_script(script, _script_path(file))
    if not quiet:
        missing = [folder for folder in script.folders if not Path(folder).is_dir()]
        for folder in missing:
            say(
                f"before submitting it, make its log folder: {shell_words(['mkdir', '-p', folder])}"
            )
        for name in script.environment:
            say(f"{name} is not written into the script: it must be set when it is submitted")
    return 0

"""The options of `ssh` alone, as typer takes them."""

from typing import Annotated

import typer

from slurm_adapter.cli.options import seconds, whole_number

Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "-H", metavar="LIST", help="Hosts, as in gpu01,gpu[02-04]:8; @GROUP of the host file."
    ),
]
HostsFile = Annotated[
    str | None,
    typer.Option("--hosts", metavar="FILE", help="Host file: a line for each host, or TOML."),
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="LIST", help="Hosts to leave out.")
]
MinNodes = Annotated[
    int | None,
    typer.Option(
        "--min-nodes",
        metavar="N",
        parser=whole_number,
        help="Start also where some hosts cannot be reached, on N at least.",
    ),
]
Link = Annotated[
    float,
    typer.Option(
        "--link-timeout",
        metavar="SECONDS",
        parser=seconds,
        help="Silence after which a host is lost, and to a host the head.",
    ),
]
Connect = Annotated[
    float,
    typer.Option(
        "--connect-timeout",
        metavar="SECONDS",
        parser=seconds,
        help="For all attempts to connect to a host, and for its first answer.",
    ),
]
Logs = Annotated[
    str,
    typer.Option(
        "--logs",
        metavar="all|first|none|rank=N",
        help="Whose output is shown (rank=0,4-7 too); the job's record has all.",
    ),
]
Sync = Annotated[
    bool, typer.Option("--sync", help="Copy the code to the hosts, into the job's folder.")
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Return when all ranks run, and print the job's id.")
]

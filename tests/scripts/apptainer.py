#!/usr/bin/python3 -IS
"""Stands in for `apptainer exec` where none can be installed, as apptainer-exec(1) describes it.

An image is a directory with an `environment` (lines NAME=VALUE, which win over the host's own) and
whatever it adds to a machine of Debian's: /usr is the host's, all else is the image's. Options that
are not known here are refused, as there.
"""

import os
import sys


def main(words: list[str]) -> None:
    assert words.pop(0) == "exec"
    binds, directory = [], "/"
    while words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        match name:
            case "--nv":
                continue
            case "--bind":
                source, target, *mode = value.split(":")
                binds += ["--ro-bind" if mode == ["ro"] else "--bind", source, target]
            case "--pwd":
                directory = value
            case _:
                sys.exit(f"Error: unknown flag: {name}")
    image, *command = words
    environment = dict(os.environ)
    with open(f"{image}/environment", encoding="utf-8") as file:  # noqa: PTH123
        environment.update(line.rstrip("\n").split("=", 1) for line in file)
    links = [
        word
        for name in ("bin", "lib", "lib64")
        for word in ("--symlink", f"usr/{name}", f"/{name}")
    ]
    own = [word for name in ("etc", "opt") for word in ("--ro-bind", f"{image}/{name}", f"/{name}")]
    machine = ["--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc", "--bind", "/sys", "/sys"]
    hosts = ["--ro-bind", "/etc/hosts", "/etc/hosts", "--tmpfs", "/tmp"]
    within = [
        "--ro-bind",
        "/usr",
        "/usr",
        *links,
        *own,
        *machine,
        *hosts,
        *binds,
        "--chdir",
        directory,
    ]
    os.execvpe("bwrap", ["bwrap", *within, "--", *command], environment)  # noqa: S606


main(sys.argv[1:])

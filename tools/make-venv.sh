#!/bin/bash
# Make .venv where it is missing and install the project into it: make-venv.sh REQUIREMENT.
# torch 2.13.0 is installed unless a torch >= 2.1 is there already.
set -euo pipefail

has_torch='import sys, torch; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 1))'
usable='import sys, ensurepip; sys.exit(sys.version_info < (3, 10))'

choose_python() {
    # As root the system's interpreter comes first: ordinary users, as whom jobs run on the test
    # cluster, cannot run one that lies under /root.
    local candidates=(python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10)
    [[ $EUID -ne 0 ]] || candidates=(/usr/bin/python3 "${candidates[@]}")
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c "$usable" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "make-venv.sh: no Python 3.10 or later with venv; set PYTHON=/path/to/python" >&2
    exit 1
}

if [[ ! -x .venv/bin/python ]]; then
    python=${PYTHON:-$(choose_python)}
    options=()
    ! "$python" -c "$has_torch" 2>/dev/null || options=(--system-site-packages)
    "$python" -m venv "${options[@]}" .venv
fi
torch=()
.venv/bin/python -c "$has_torch" 2>/dev/null || torch=(torch==2.13.0 numpy)
.venv/bin/pip install -q --no-compile --disable-pip-version-check "$1" "flit_core>=3.11,<5" "${torch[@]}"
# pip would compile one file after the other. A file for another Python version is no reason to stop.
.venv/bin/python -m compileall -q -j 0 -x '/(tests|testing|_internal|onnx|benchmarks|f2py|networkx|pygments|pip|setuptools)/' \
    .venv/lib >/dev/null || true
